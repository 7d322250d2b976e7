"""Models of curves and of rows of residuals that run compiled.

A `Model` holds its function as an expression (a formula, a ready-made model) or as a Python function that is
recorded when the number of columns is known. It makes `problm.kernels.kernel.Kernel` objects for the front doors,
evaluates itself and its derivatives, and guesses a start.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..support.array_kinds import refuse_units
from . import arithmetic
from . import expression as ex
from .derivatives import derivatives, second_order
from .expression import Expression, TraceError
from .node import to_text
from .tracing import outputs, trace

if TYPE_CHECKING:
    from ..kernels.kernel import Kernel

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A model to fit: ``model(x, *parameters)``, with derivatives, for `curve_fit` and `least_squares`.

    Made by `problm.formula`, `problm.model` and the functions of `problm.models`. Models of the same variables can be
    added, subtracted, multiplied and divided, and scaled by numbers. Parameters of different terms with the same name
    get the suffixes _1, _2, ... (or see `prefixed`).

    Examples
    --------
    >>> import problm
    >>> decay = problm.formula("a*exp(-b*x)")
    >>> decay + decay + problm.formula("c + 0*x")
    Model(a_1 * exp(-b_1 * x) + a_2 * exp(-b_2 * x) + c; parameters a_1, b_1, a_2, b_2, c; variable x)
    """

    parameters: tuple[str, ...]
    """Names of the parameters; empty if a function takes any number of them."""
    variables: tuple[str, ...] = ("x",)
    """Names of the data columns."""
    response: str | None = None
    """Name of the fitted column, if the formula gave one."""
    body: Expression | None = None
    function: Callable[..., Any] | None = None
    derivative: Callable[..., Any] | None = None
    terms: tuple[Model, ...] = ()
    """The terms, if the model is a sum."""
    kind: str = ""
    """Name of a ready-made model."""
    _made: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def from_expression(
        cls,
        body: Expression,
        parameters: Sequence[str],
        variables: Sequence[str] = ("x",),
        response: str | None = None,
        kind: str = "",
    ) -> Model:
        return cls(tuple(parameters), tuple(variables), response, body, kind=kind)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.parameters, self.variables, self.response, self.body, self.function, self.derivative)
        return Model, (*parts, self.terms, self.kind)  # programs are recreated

    @property
    def expression(self) -> str:
        """The right side as text, or the name of the function."""
        if self.body is None:
            return getattr(self.function, "__name__", "function")
        return to_text(self.body, self.parameters, self.variables)

    def __repr__(self) -> str:
        left = f"{self.response} ~ " if self.response else ""
        plural = "s" if len(self.variables) > 1 else ""
        named = f"; parameters {', '.join(self.parameters)}" if self.parameters else ""
        data = f"; variable{plural} {', '.join(self.variables)}" if self.body is not None else ""
        return f"Model({left}{self.expression}{named}{data})"

    def __add__(self, other: Any) -> Model:
        return arithmetic.add(self, other) if isinstance(other, Model | float | int) else NotImplemented

    def __radd__(self, other: Any) -> Model:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Model:
        return arithmetic.add(self, -other) if isinstance(other, Model | float | int) else NotImplemented

    def __rsub__(self, other: Any) -> Model:
        return arithmetic.scale(self, -1.0).__add__(other)

    def __neg__(self) -> Model:
        return arithmetic.scale(self, -1.0)

    def __mul__(self, other: Any) -> Model:
        if isinstance(other, float | int):
            return arithmetic.scale(self, float(other))
        return arithmetic.multiply(self, other) if isinstance(other, Model) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Model:
        if isinstance(other, float | int):
            return arithmetic.scale(self, 1.0 / other)
        return arithmetic.multiply(self, other, "div") if isinstance(other, Model) else NotImplemented

    def prefixed(self, prefix: str) -> Model:
        """The same model with other names of its parameters: ``gaussian().prefixed("g_")``."""
        return replace(self, parameters=tuple(f"{prefix}{n}" for n in self.parameters), _made={})

    def convolved(self, shifts: Sequence[float], weights: Sequence[float]) -> Model:
        """The model convolved with an instrument's response: ``sum over j of weights[j] * model(x - shifts[j])``."""
        return arithmetic.convolve(self, shifts, weights)

    def __call__(self, x: Any, *parameters: float) -> Array:
        """Values at ``x``: an array for one variable; a tuple of k arrays or an array (k, N) for several."""
        columns, shape = self._columns(x)
        theta = self._theta(parameters)
        kernel = self._value_kernel(len(columns), len(theta))
        from ..kernels.kernel import describe

        values = kernel.residuals(theta, describe(columns), len(columns[0]))
        return values[:, 0].reshape(shape)[()]

    def jacobian(self, x: Any, *parameters: float) -> Array:
        """Derivatives with respect to the parameters at ``x``, shape (N, d)."""
        columns, _ = self._columns(x)
        theta = self._theta(parameters)
        kernel = self._value_kernel(len(columns), len(theta))
        from ..kernels.kernel import describe

        return kernel.jacobian(theta, describe(columns), len(columns[0]))[:, 0]

    def guess(self, x: Any, y: Any, robust: bool = False) -> Array:
        """A start for the fit of ``y`` at ``x``, ``robust`` if some are outliers; ones for a user's function."""
        if self.body is None:
            if not self.parameters:
                raise ValueError(f"p0 is needed: the number of parameters of {self.expression} is unknown")
            return np.ones(len(self.parameters))
        from .guesses.guess import guess

        return guess(self, x, y, robust)

    def curve_kernel(
        self, n_variables: int, n_parameters: int, weighting: str | None, loss: Loss, threads: int | None
    ) -> Kernel:
        """Kernel of the residuals ``(f(x) - y) / sigma`` of columns x..., y[, sigma]."""
        if weighting not in (None, "sigma"):
            raise ValueError(f"weighting must be None or 'sigma', got {weighting!r}")
        weighted = weighting is not None
        last: Kernel | None = self._made.get(("last", n_variables, n_parameters, weighted))
        if last is not None and last.loss == loss and last.threads == threads:
            return last  # small fits usually come in series
        self._check(n_variables, n_parameters)
        y, sigma = ex.variable(n_variables), ex.variable(n_variables + 1)

        def residual() -> tuple[list[Expression], list[list[Expression]] | None]:
            f, by = self._curve(n_variables, n_parameters)
            if not weighted:
                return [f - y], None if by is None else [by]
            return [(f - y) / sigma], None if by is None else [[g / sigma for g in by]]

        def compiled() -> Any:
            from .numba_function import row_evaluator

            assert self.function is not None
            return row_evaluator(
                self.function, self.derivative, (n_variables,), n_parameters, curve=True, weighted=weighted
            )

        made = self._kernel(("curve", n_variables, n_parameters, weighted), residual, compiled, loss, threads)
        self._made["last", n_variables, n_parameters, weighted] = made
        return made

    def residual_kernel(
        self, shapes: Sequence[int] | int, n_parameters: int, loss: Loss, threads: int | None
    ) -> Kernel:
        """Kernel of the residuals ``row(theta, *columns)`` of rows of data.

        ``shapes`` are the widths of the arrays; an array of width k > 1 is passed to the function as k values. A
        formula takes its variables and, if there is one more column, the response: ``f - y``.
        """
        widths = (1,) * shapes if isinstance(shapes, int) else tuple(shapes)
        if self.body is not None and sum(widths) == len(self.variables) + 1:
            return self.curve_kernel(len(self.variables), n_parameters, None, loss, threads)
        if self.body is not None:
            self._check(sum(widths), n_parameters)

        def residual() -> tuple[list[Expression], list[list[Expression]] | None]:
            return self._rows(widths, n_parameters)

        def compiled() -> Any:
            from .numba_function import row_evaluator

            assert self.function is not None
            return row_evaluator(self.function, self.derivative, widths, n_parameters)

        return self._kernel(("rows", widths, n_parameters), residual, compiled, loss, threads)

    def _kernel(self, key: Any, traced: Any, compiled: Any, loss: Loss, threads: int | None) -> Kernel:
        """The kernel of a program, or of a compiled function if it cannot be recorded; made once."""
        if key not in self._made:
            try:
                residuals, by = traced()
                self._made[key] = kernel_of(residuals, by, key[2])
            except TraceError:
                from ..kernels.kernel import Kernel

                made = compiled()
                self._made[key] = Kernel(made.evaluator, key[2], made.components)
        kernel: Kernel = self._made[key]
        return replace(kernel, loss=loss, threads=threads)

    def _value_kernel(self, n_variables: int, n_parameters: int) -> Kernel:
        def values() -> tuple[list[Expression], list[list[Expression]] | None]:
            f, by = self._curve(n_variables, n_parameters)
            return [f], None if by is None else [by]

        def compiled() -> Any:
            from .numba_function import row_evaluator

            assert self.function is not None
            return row_evaluator(self.function, self.derivative, (n_variables,), n_parameters, curve=True, target=False)

        self._check(n_variables, n_parameters)
        key = ("values", n_variables, n_parameters)
        return self._made.get(key) or self._kernel(key, values, compiled, Loss.named("linear"), 1)

    def _check(self, n_variables: int, n_parameters: int) -> None:
        if self.parameters and n_parameters != len(self.parameters):
            raise ValueError(
                f"{self.expression} has {len(self.parameters)} parameters ({', '.join(self.parameters)}), "
                f"got {n_parameters} values"
            )
        if self.body is not None and n_variables != len(self.variables):
            raise ValueError(
                f"{self.expression} takes {len(self.variables)} data column(s) ({', '.join(self.variables)}), "
                f"got {n_variables}"
            )

    def _curve(self, n_variables: int, n_parameters: int) -> tuple[Expression, list[Expression] | None]:
        if self.body is not None:
            return self.body, None
        columns = [ex.variable(j) for j in range(n_variables)]
        x = columns[0] if n_variables == 1 else _objects(columns)
        theta = [ex.parameter(i) for i in range(n_parameters)]
        (f,) = self._recorded([x, *theta], 1, n_parameters, n_variables)
        if self.derivative is None:
            return f, None
        by = outputs(trace(self.derivative, x, *theta))
        return f, _sized(by, n_parameters)

    def _rows(self, widths: Sequence[int], n_parameters: int) -> tuple[list[Expression], list[list[Expression]] | None]:
        if self.body is not None:
            return [self.body], None
        columns = [ex.variable(j) for j in range(sum(widths))]
        row: list[Any] = []
        for width in widths:
            taken, columns = columns[:width], columns[width:]
            row.append(taken[0] if width == 1 else _objects(taken))
        theta = _objects([ex.parameter(i) for i in range(n_parameters)])
        residuals = self._recorded([theta, *row], None, n_parameters, sum(widths))
        if self.derivative is None:
            return residuals, None
        by = _sized(outputs(trace(self.derivative, theta, *row)), len(residuals) * n_parameters)
        return residuals, [by[c * n_parameters : (c + 1) * n_parameters] for c in range(len(residuals))]

    def _recorded(self, args: list[Any], count: int | None, n_parameters: int, n_columns: int) -> list[Expression]:
        """Trace the function, and compare the record with the function itself at random points."""
        assert self.function is not None
        found = outputs(trace(self.function, *args))
        if count is not None:
            _sized(found, count)
        if not found:
            raise ValueError(f"{self.expression} returned no residuals")
        rng = np.random.default_rng(0)
        for _ in range(4):
            theta, row = rng.uniform(0.1, 2.0, n_parameters), rng.uniform(0.1, 2.0, n_columns)
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    direct = np.ravel(np.asarray(self.function(*(_filled(a, theta, row) for a in args)), dtype=float))
            except Exception:  # noqa: S112  a domain error at a random point says nothing
                continue
            recorded = np.array(ex.evaluate(found, theta.tolist(), row.tolist()), dtype=float)
            if len(direct) != len(recorded) or not np.allclose(direct, recorded, rtol=1e-9, equal_nan=True):
                raise TraceError("the record does not give the function's values")
        return found

    def _columns(self, x: Any) -> tuple[list[Array], tuple[int, ...]]:
        refuse_units("x", x)
        apart = isinstance(x, tuple | list) and len(x) > 0 and np.ndim(x[0]) > 0
        parts = [np.asarray(v, dtype=np.float64) for v in (x if apart else [x])]
        if not apart and (len(self.variables) > 1 or (self.body is None and parts[0].ndim > 1)):
            parts = list(parts[0])
        if not parts or any(v.shape != parts[0].shape for v in parts):
            raise ValueError(f"x: expected {len(self.variables)} arrays of one shape")
        return [np.ascontiguousarray(v.ravel()) for v in parts], parts[0].shape

    @staticmethod
    def _theta(parameters: Sequence[float]) -> Array:
        return np.array([float(p) for p in parameters])


def kernel_of(residuals: Sequence[Expression], by: list[list[Expression]] | None, d: int) -> Kernel:
    """The kernel of a row's residuals in d parameters, with derivatives ``by`` if they are the user's."""
    from ..kernels import tape
    from ..kernels.kernel import Kernel
    from .assembler import assemble

    second = second_order(residuals, by or derivatives(residuals, d), d)
    program = assemble(residuals, by or derivatives(residuals, d, guarded=True), d)
    return Kernel(tape.run, d, program.components, program.code, program.constants, second=second)


def _objects(nodes: Sequence[Expression]) -> NDArray[Any]:
    array = np.empty(len(nodes), dtype=object)
    array[:] = nodes
    return array


def _filled(argument: Any, theta: Array, row: Array) -> Any:
    """An argument of a trace with numbers in place of its nodes."""
    if isinstance(argument, np.ndarray):
        return np.array([_filled(a, theta, row) for a in argument])
    source = theta if argument.op == "parameter" else row
    return float(source[int(argument.value)])


def _sized(found: list[Expression], wanted: int) -> list[Expression]:
    if len(found) != wanted:
        raise ValueError(f"the function returned {len(found)} values for a row, expected {wanted}")
    return found


def model(function: Callable[..., Any], jacobian: Callable[..., Any] | None = None) -> Model:
    """Make a compiled model from a Python function of one row.

    The function is recorded by calling it once with symbols, and differentiated exactly; nothing is compiled. If it
    cannot be recorded (an ``if`` on a value, a loop until convergence), Numba compiles it, and derivatives come from
    the complex step or central differences.

    Parameters
    ----------
    function : callable
        ``f(x, *parameters)`` for `problm.curve_fit`: the value at one point; ``x`` is a number, or k numbers for k
        variables. ``row(theta, *row)`` for `problm.least_squares`: the residual, or p residuals, of one row of the
        data; an array with k columns gives k values.
    jacobian : callable, optional
        A function of the same arguments that returns the derivatives with respect to the parameters, d or (p, d)
        values.

    Returns
    -------
    `Model`

    Examples
    --------
    >>> import math
    >>> def decay(x, a, b):
    ...     return a * math.exp(-b * x)
    >>> compiled = model(decay)
    >>> compiled([0.0, 1.0, 2.0], 2.0, 0.5).round(3)
    array([2.   , 1.213, 0.736])
    >>> compiled.jacobian(1.0, 2.0, 0.5).round(3)
    array([[ 0.607, -1.213]])
    """
    if isinstance(function, Model):
        return function
    if not callable(function):
        raise TypeError(
            f"model: expected a function f(x, *parameters) or row(theta, *row), got {type(function).__name__}"
        )
    if jacobian is not None and not callable(jacobian):
        raise TypeError(f"model: jacobian must be a function, got {type(jacobian).__name__}")
    return Model(_signature(function), (), function=function, derivative=jacobian)


def _signature(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        kinds = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()
    if any(p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY) for p in kinds):
        return ()
    return tuple(p.name for p in kinds[1:] if p.default is p.empty)
