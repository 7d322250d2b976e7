"""The short way of `curve_fit`: a NumPy function or formula of few points, fitted without bounds or options.

Such a fit takes a dozen calls of the function, and the general way (`problm.api.curve_fit.fit`) as long again for what
it does not need: checks of options, a result, its history. Here the same steps (`problm.solver.compiled.advance`) are
taken from plain arrays. The fit ends here where the general way would end with the same certificate; anything else (a
singular Jacobian, exact data, derivatives that are not finite, Ctrl-C) is handed over, and the general way goes on from
the last point.

A function that is linear in its parameters takes one step, whatever the number of points: batches would save nothing.
It is recognised on a few points (`looks_linear`), and the step shows on all of them whether that is true.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from inspect import CO_VARARGS
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.cholesky import REFINE
from ..linalg.cholesky_compiled import MOST_PARAMETERS, CompiledCholesky
from ..linalg.dense import inverse_spd
from ..linalg.normal import Normal
from ..linalg.quadratic import NEAR
from ..losses import as_loss
from ..problems.backends import detect
from ..problems.differences import LARGE, LONG, least_sizes
from ..problems.numpy_function import FunctionProblem
from ..problems.quotients import quotients
from ..problems.row_wise import tried_rows
from ..problems.rows import CompiledModel
from ..problems.stacked import Stacked
from ..solver import rules
from ..solver.options import Options
from ..solver.termination import DIGITS, last_digits
from ..support.caller import UNDEFINED
from ..support.differences import EPS, moved_points, usual_step
from ..support.products import dot, times

if TYPE_CHECKING:
    from ..solver.compiled.advance import Steps

Array = NDArray[np.float64]
_DOUBLE = np.dtype(np.float64)
_NONE = np.empty(0)
_STEP = usual_step("2-point", EPS)
_LOOKS = 2
"""Number of steps after which the function is looked at, whether it is linear in its parameters."""
_SHARE = 1e-6
"""Least share of each parameter in a step that shows it, as a squared length."""
_LEFT = 5e-7
"""Largest cosine that may be left at the end of a linear function; errors of forward differences leave some 1e-7."""
_EXACT = 1e-6
"""Largest relative difference between actual and predicted decrease of such a step."""
_LOOK_FROM = 5_000
"""Number of points from which the function is looked at before the first step."""
_MOST_ENTRIES = 1 << 19
"""Largest number of entries of the Jacobian of more points than are otherwise fitted here."""
_GOLDEN = 0.6180339887498949
_ROUNDED = 1e-12
"""Largest second difference of a linear function, relative to its values."""


def plain_fit(
    f: Any, xdata: Any, ydata: Any, p0: Any, sigma: Any, absolute: bool, jac: Any
) -> tuple[Array, Array] | Steps | None:
    """Parameters and covariance; or the steps from which the general way goes on; or None if it must begin.

    Arguments as of `problm.curve_fit`.
    """
    compiled = p0 is not None and jac is None and hasattr(f, "curve_kernel")
    plain = type(f) is FunctionType and (jac is None or callable(jac)) and detect(f) == "numpy"
    if not (compiled or plain) or (p0 is None and f.__code__.co_flags & CO_VARARGS):
        return None
    dim = f.__code__.co_argcount - 1 if p0 is None else np.size(p0)
    if type(xdata) is not np.ndarray or type(ydata) is not np.ndarray or xdata.shape[-1:] != ydata.shape:
        return None
    n, start = len(ydata), np.ones(dim) if p0 is None else np.array(p0)
    few = n <= FunctionProblem.few
    if not (xdata.dtype is _DOUBLE is ydata.dtype and xdata.ndim <= 2 and dim < n):
        return None
    if not few and (compiled or n * dim > _MOST_ENTRIES):
        return None
    if start.dtype.kind not in "fi" or start.shape != (dim,) or dim > MOST_PARAMETERS:
        return None
    start = start.astype(np.float64)
    linear = plain and n >= _LOOK_FROM and (jac is None or not few) and looks_linear(f, xdata, start)
    if not (few or linear):
        return None
    if not (max(map(abs, start.tolist())) <= LARGE and math.isfinite(dot(xdata, xdata) + dot(ydata, ydata))):
        return None
    if sigma is not None:
        sigma = np.full(n, float(sigma)) if isinstance(sigma, (int, float)) else sigma
        if not _are_deviations(sigma, n):
            return None
    from ..solver.compiled.advance import Steps, at_hand

    if not (at_hand() and quotients.ahead_of_time):
        return None
    if compiled:
        return _compiled_fit(f, (xdata, ydata) if sigma is None else (xdata, ydata, sigma), start, absolute)
    curve, steps = PlainCurve(f, jac, xdata, ydata, sigma, linear), None
    try:
        normal = curve.begin(start)
        if not math.isfinite(normal.cost + sum(normal.gradient.tolist())):
            return None
        steps = Steps(n, dim, normal.cost, _limits(n))
        steps.take(start, normal, curve.linearized, curve.cost)
    except NotPlain:
        return None
    except KeyboardInterrupt:
        if steps is None or linear:
            raise  # nothing is known yet
        steps.interrupted = True
        return steps
    except UNDEFINED:
        return None
    except Exception as error:
        if steps is not None:
            error.add_note(f"problm: raised after {steps.count} iterations; best point: {steps.theta!r}")
        raise
    found = _ended(steps, absolute, None if curve.left is None else curve.normal)
    return None if linear and type(found) is not tuple else found


def _limits(n: int) -> tuple[float, ...]:
    """As of `problm.solver.compiled.advance.propose`, with the default options of `problm.curve_fit`."""
    most = float(Options.max_iter - 1)
    return rules.SMALL_CHANGE, 0.0, DIGITS, DIGITS**2, REFINE, NEAR, most, last_digits(n), 0.0, math.inf


def looks_linear(f: Callable[..., Any], x: Array, theta: Array) -> bool:
    """Whether second differences of f along a direction of all parameters vanish at a few of the points.

    Examples
    --------
    >>> x = np.linspace(0.0, 1.0, 1000)
    >>> looks_linear(lambda x, a, b: a * np.exp(x) + b, x, np.ones(2))
    True
    >>> looks_linear(lambda x, a, b: a * np.exp(b * x), x, np.ones(2))
    False
    """
    rows = x[..., tried_rows(x.shape[-1])]
    step = [length * _uneven(k) for k, length in enumerate(_lengths(theta))]
    at = [[np.float64(t + k * s) for t, s in zip(theta.tolist(), step, strict=True)] for k in range(3)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            first, middle, last = [np.asarray(f(rows, *point), dtype=np.float64) for point in at]
            size = max(np.abs(first).max(), np.abs(last).max())
            return bool(np.abs(first + last - 2.0 * middle).max() <= _ROUNDED * size)
        except Exception:
            return False  # it may need all points


def _uneven(k: int) -> float:
    """Factor of the step of parameter k, between one and two, so that terms of two parameters do not cancel."""
    return 1.0 + (_GOLDEN * k) % 1.0


def _lengths(theta: Array) -> list[float]:
    """Steps of the parameters of a linear function: long ones, whose differences are hardly rounded."""
    return [max(abs(t), 1.0) for t in theta.tolist()]


def _compiled_fit(
    f: Any, columns: tuple[Array, ...], start: Array, absolute: bool
) -> tuple[Array, Array] | Steps | None:
    """The fit of a compiled model."""
    from ..solver.compiled.advance import Steps
    from ..solver.compiled.loop import take

    if columns[0].ndim > 1:
        return None
    model = CompiledModel(f, len(start), as_loss("linear"), None, "plain" if len(columns) == 2 else "weighted")
    problem = model.prepared([start], columns, together=True).problem(columns)
    compiled = problem.for_compiled_loop()
    if compiled is None or not problem.n <= min(problem.few, problem.digits_up_to):
        return None
    with np.errstate(all="ignore"):
        normal = problem.linearize(start, 0, problem.n, outer=False, costs=None)
        if not math.isfinite(normal.cost + sum(normal.gradient.tolist())):
            return None
        steps = Steps(problem.n, len(start), normal.cost, _limits(problem.n))
        take(steps, compiled, start, normal)
    return _ended(steps, absolute)


def _are_deviations(sigma: Any, n: int) -> bool:
    """Whether sigma is an array (n,) of positive doubles."""
    if type(sigma) is not np.ndarray or sigma.dtype is not _DOUBLE or sigma.shape != (n,):
        return False
    return bool(sigma.min() > 0.0) and math.isfinite(dot(sigma, sigma))


def _ended(steps: Steps, absolute: bool, linear: Normal | None = None) -> tuple[Array, Array] | Steps:
    """Parameters and covariance if the steps have led to the minimum, as that of a ``linear`` function, or nearly."""
    x, n, cost, normal = steps.theta, steps.n, steps.cost, steps.normal
    if linear is not None:
        normal = linear
    elif normal is None or not steps.count:
        return steps
    elif not rules.gradient_vanishes(steps.decrement, cost / n, DIGITS, steps.last_decrement):
        last = steps.decrement, cost / n, steps.last_decrement, last_digits(n), steps.agreed, steps.rest
        if not rules.one_step_left(*last):
            return steps
        step, predicted = steps.next_step()
        x, cost = x + step, cost - n * predicted
    covariance, singular = inverse_spd(normal.hessian)
    if singular:
        return steps
    return x, covariance if absolute else covariance * (2.0 * cost / (n - len(x)))


def _own(a: Array) -> Array:
    """The array, or a copy if compiled code cannot read it."""
    return a if a.flags.carray else a.copy()


class NotPlain(Exception):
    """Raised for values that the general way must convert, or complain about."""


class PlainCurve:
    """Residuals ``(f(x) - y) / sigma`` of all points and their sums, with the bits of the general way; and the end of a
    function that is linear in its parameters.

    Parameters
    ----------
    f : ``f(x, *theta) -> (n,)`` array of doubles.
    jac : ``jac(x, *theta) -> (n, d)``; None for forward differences.
    x, y : the points; y is (n,).
    sigma : (n,) standard deviations of y; None for equal ones.
    linear : whether f looks linear. Differences are then exact but for rounding, and `NotPlain` is raised if it is not.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        jac: Callable[..., Any] | None,
        x: Any,
        y: Array,
        sigma: Array | None,
        linear: bool = False,
    ) -> None:
        self.f, self.jac, self.x, self.y, self.sigma, self.linear = f, jac, x, _own(y), sigma, linear
        self._sigma = _NONE if sigma is None else _own(sigma)
        self.shape = y.shape
        self._least: list[float] = []
        self._widths: Array = _NONE
        self._quotients = quotients.compiled
        self._looks = _LOOKS
        self._stacked = Stacked()
        self.normal: Normal
        """Sums at the last point that was linearised."""
        self.left: float | None = None
        """Cosine between residuals and tangent space that is left at the end of a linear function."""

    def begin(self, theta: Array) -> Normal:
        """Sums at the start."""
        self._least = least_sizes(list(map(abs, theta.tolist())))
        self._widths = np.empty(len(theta))
        self.cost(theta)
        normal = self._normal(theta)
        if self.jac is None and not self.linear:
            # As in `problm.problems.differences`: steps may be too long for parameters with a far origin.
            sizes = list(map(max, map(abs, theta.tolist()), self._least))
            size = max(sizes) * _STEP
            if size * size * sum(normal.hessian.diagonal().tolist()) > LONG * LONG * 2.0 * normal.cost / normal.count:
                raise NotPlain
        return normal

    def cost(self, theta: Array) -> float:
        """The cost of a trial."""
        self._trial = r = self._residuals(list(theta))
        self._cost = cost = 0.5 * dot(r, r)
        return cost

    def linearized(self, theta: Array) -> Normal | None:
        """Sums at the last trial; None if the step to it leads to the minimum of a linear function."""
        if self._looks:
            self._looks -= 1
            if self._is_linear(theta):
                return None
            if self.linear:
                raise NotPlain
        return self._normal(theta)

    def _values(self, theta: list[Any]) -> Array:
        values = self.f(self.x, *theta)
        if type(values) is np.ndarray and values.dtype is _DOUBLE and values.shape == self.shape:
            return values
        raise NotPlain

    def _residuals(self, theta: list[Any]) -> Array:
        r: Array = self._values(theta) - self.y
        if self.sigma is not None:
            r /= self.sigma
        return r

    def _normal(self, theta: Array) -> Normal:
        r = self._trial
        j = self._differences(theta, r) if self.jac is None else self._jacobian(theta)
        self.normal = normal = Normal(len(r), self._cost, times(j, r), times(j, j.T), None, None, CompiledCholesky)
        self._point = theta, r, j
        return normal

    def _differences(self, theta: Array, r: Array) -> Array:
        """Transposed Jacobian (d, n) by forward differences, as by `problm.support.differences.forward`."""
        if self._stacked.pays(len(theta), len(r)) and (found := self._in_one_call(theta, r)) is not None:
            return found
        f, x, shape, widths = self.f, self.x, self.shape, self._widths
        j, at, here = np.empty((len(theta), len(r))), list(theta), theta.tolist()
        for a, step in enumerate(_lengths(theta) if self.linear else self._least):
            was, kept = here[a], at[a]
            to = was + (step if self.linear else _STEP * max(abs(was), step))
            widths[a] = to - was
            at[a] = np.float64(to)
            values = f(x, *at)
            if type(values) is not np.ndarray or values.dtype is not _DOUBLE or values.shape != shape:
                raise NotPlain
            j[a] = values
            at[a] = kept
        self._quotients(j, self.y, self._sigma, r, widths)
        return j

    def _in_one_call(self, theta: Array, r: Array) -> Array | None:
        """The same, with the same bits, if f broadcasts its parameters."""
        sizes = zip(theta.tolist(), self._least, strict=True)
        lengths = _lengths(theta) if self.linear else [_STEP * max(abs(t), least) for t, least in sizes]
        ends = theta + lengths
        j = self._stacked.values(
            lambda parameters: self.f(self.x, *parameters), lambda point: self._values(list(point)),
            moved_points(theta, ends), len(r),
        )  # fmt: skip
        if j is None:
            return None
        j = j.copy()  # the function may keep its values
        self._quotients(j, self.y, self._sigma, r, ends - theta)
        return j

    def _jacobian(self, theta: Array) -> Array:
        assert self.jac is not None
        j = self.jac(self.x, *theta)
        if type(j) is not np.ndarray or j.dtype is not _DOUBLE or j.shape != (*self.shape, len(theta)):
            raise NotPlain
        return j.T if self.sigma is None else j.T / self.sigma

    def _is_linear(self, theta: Array) -> bool:
        """Whether the Gauss-Newton step to the last trial changed every residual as predicted, to rounding.

        The remainder e of the residuals after a step s is half of their second derivative along it. What is left at
        the end is at most e itself, and the residuals times the change of the Jacobian, twice e relative to J s. One
        direction tells it for all of them if every parameter has its share in it; otherwise, as where a parameter
        starts with its value at the end, another one is tried.
        """
        normal, (before, r, j) = self.normal, self._point
        step = theta - before
        bent = normal.hessian.dot(step)
        slope, bend = float(normal.gradient.dot(step)), float(step.dot(bent))
        predicted = -slope - 0.5 * bend
        now, cost = self._trial, self._cost
        if not (predicted > 0.0 and abs(slope + bend) <= 1e-9 * bend and cost > 0.0):
            return False  # damped
        if abs(normal.cost - cost - predicted) > _EXACT * predicted + rules.ROUNDING * cost:
            return False
        e = now - r
        e -= step.dot(j)
        size = math.sqrt(dot(e, e))
        left = size / math.sqrt(2.0 * cost) + 2.0 * size / math.sqrt(bend)
        if left <= _LEFT and not min((normal.hessian.diagonal() * step * step).tolist()) >= _SHARE * bend:
            left += self._bent(theta, now, cost)
        self.left = left if left <= _LEFT else None
        return self.left is not None

    def _bent(self, theta: Array, r: Array, cost: float) -> float:
        """Relative remainder of the residuals r after a step from the last trial in which every parameter has its
        share: it changes residuals as much as they are large."""
        diagonal = self.normal.hessian.diagonal().tolist()
        if not min(diagonal) > 0.0:
            return math.inf
        step = np.array([_uneven(k) * math.sqrt(2.0 * cost / h) for k, h in enumerate(diagonal)])
        change = step.dot(self._point[2])
        e = self._residuals(list(theta + step)) - r
        e -= change
        return math.sqrt(dot(e, e) / dot(change, change))
