"""Row models: they evaluate rows from any source, and hold no data.

`FunctionModel` and `CompiledModel` (and `problm.problems.backends.device.DeviceModel`) are row models. They make a
problem from any rows: all of them, a chunk of a file, the share of a worker. They can be pickled if the user's
functions can, and sent to a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..solver.problem import Problem, Theta
from ..support.array_kinds import refuse_units
from .differences import Differences
from .numpy_function import FunctionProblem
from .row_wise import is_row_wise

if TYPE_CHECKING:
    from .compiled import CompiledProblem

Array = NDArray[np.float64]
Columns = tuple[NDArray[Any], ...]


class RowModel(Protocol):
    """A model of rows: everything but the rows."""

    @property
    def dim(self) -> int: ...

    @property
    def components(self) -> int:
        """Number of residuals per block."""
        ...

    @property
    def loss(self) -> Loss: ...

    @property
    def move(self) -> Callable[[Theta, Array], Theta] | None:
        """The retraction of a manifold; None: steps are added."""
        ...

    @property
    def whole(self) -> bool:
        """Whether all rows must be evaluated together: no batches, no chunks."""
        ...

    def prepared(self, points: Sequence[Theta], columns: Columns, *, together: bool) -> RowModel:
        """The model, completed by a first call on its data.

        Parameters
        ----------
        points
            Points near the start, and the start last, at which to test whether the function is row-wise.
        columns
            The data, or its first rows; empty for a function without data.
        together
            Whether all rows will be evaluated together anyway, so that the function need not be row-wise.
        """
        ...

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> Problem:
        """The problem of these rows, all in memory."""
        ...

    def refine_derivatives(self) -> bool:
        """Use more accurate derivatives from now on; return whether that was possible."""
        ...

    def holds(self, theta: Theta, columns: Columns, problem: Problem | None) -> bool:
        """Whether rows get the same values at ``theta`` in any selection: checked on some rows and, if given, on a
        solved problem of this model with its chunks."""
        ...

    def with_all_rows(self) -> RowModel:
        """The same model, ``whole``."""
        ...

    def with_loss(self, loss: Loss) -> RowModel:
        """The same model with another loss, as it was before it was prepared."""
        ...


M = TypeVar("M", bound=RowModel)


class Modelled(Problem, Generic[M]):
    """Hooks that a problem takes from its row model, wherever the rows are."""

    def __init__(self, model: M) -> None:
        self.model = model
        self.dim, self.components, self.cost_bound = model.dim, model.components, model.loss.bound
        self.move = model.move

    def identity(self, rows: Columns) -> dict[str, Any]:
        """What the fingerprint of a problem says about its model; of the rows only kinds and shapes count."""
        found = self.model.problem(rows).fingerprint()
        return {name: value for name, value in found.items() if name != "rows"}


@dataclass
class FunctionModel:
    """A NumPy function of some rows; the arguments of `problm.problems.numpy_function.FunctionProblem` without the
    data."""

    fun: Callable[..., Any]
    jac: str | Callable[..., Any]
    dim: int
    loss: Loss
    components: int = 1
    move: Callable[[Theta, Array], Theta] | None = None
    limits: tuple[Array, Array] | None = None
    whole: bool = False
    total: int = 0
    """Number of blocks, for a function without data."""
    known: tuple[Theta, Array] | None = None
    """The start, and the residuals of all rows there."""
    differences: Differences | None = None
    """Difference scheme and its options, for a ``jac`` that is not a function."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Kinds of Jacobians (``sparse``, ``operator``) that are refused, with the reasons."""

    def prepared(self, points: Sequence[Theta], columns: Columns, *, together: bool) -> FunctionModel:
        self.whole = together or not is_row_wise(self._evaluate, points, columns)
        start = points[-1]
        rows = columns if self.whole else tuple(c[:8] for c in columns)
        returned = self.fun(start.copy() if self.move is None else start, *rows)
        refuse_units("the array that fun returns", returned)
        probe = _real(np.asarray(returned))
        self._learn(probe, len(rows[0]) if rows else None)
        if self.whole:
            self.total = len(probe) if probe.ndim else 1
            double = probe.dtype.kind == "f" and probe.dtype.itemsize >= 8
            self.known = (start, np.array(probe, dtype=np.float64).reshape(-1)) if double else None
        return self

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> FunctionProblem:
        return FunctionProblem(
            self.fun, self.jac, columns, self.dim, self.loss,
            total=self.total, components=self.components, retract=self.move, limits=self.limits, whole=self.whole,
            known=self.known, differences=self.differences, refused=self.refused, rng=rng,
        )  # fmt: skip

    def holds(self, theta: Theta, columns: Columns, problem: Problem | None) -> bool:
        if not is_row_wise(self._evaluate, [theta], columns):
            return False
        return not isinstance(problem, FunctionProblem) or problem.is_row_wise_at(theta)

    def with_all_rows(self) -> FunctionModel:
        return replace(self, whole=True, known=None)

    def with_loss(self, loss: Loss) -> FunctionModel:
        return replace(self, loss=loss, whole=False, known=None, differences=copy(self.differences))

    def refine_derivatives(self) -> bool:
        """Switch from forward to central differences; return whether that was possible."""
        if self.differences is not None:
            return not callable(self.jac) and self.differences.refine()
        if self.jac != "2-point":
            return False
        self.jac = "3-point"
        return True

    def _evaluate(self, theta: Theta, rows: Columns) -> list[NDArray[Any]]:
        """Residuals, and derivatives if the user computes them."""
        point = theta.copy() if self.move is None else theta
        values = [np.asarray(self.fun(point, *rows))]
        if callable(self.jac):
            values.append(np.asarray(self.jac(point, *rows)))
        return values

    def _learn(self, probe: NDArray[Any], rows: int | None) -> None:
        """Learn the number of residuals per block from the result of a call with ``rows`` rows."""
        if probe.dtype.kind not in "fiu":
            raise ValueError(f"fun must return real numbers, got dtype {probe.dtype}")
        if not probe.size:
            raise ValueError(f"fun must return residuals, got an empty array of shape {probe.shape}")
        if probe.ndim not in (1, 2) and not (rows is None and probe.ndim == 0):
            raise ValueError(f"fun must return residuals of shape (k,) or (k, p), got shape {probe.shape}")
        if rows is None and probe.ndim == 2 and probe.shape[1] == 1:
            raise ValueError(f"fun must return residuals of shape (m,), at most 1-dimensional, got shape {probe.shape}")
        if rows is not None and len(probe) != rows:
            raise ValueError(
                f"fun returned {len(probe)} residual blocks for {rows} rows of data: it must return one block per row"
            )
        if _is_outer_sum(probe):
            raise ValueError(
                f"fun returned shape {probe.shape}, the sums of all pairs of two arrays: shapes (k,) and (k, 1) were "
                "broadcast against each other; ravel the arrays, or the residuals if they are meant"
            )
        self.components = 1 if probe.ndim < 2 else probe.shape[1]
        if self.differences is not None:
            self.differences.check(probe.size)


def _real(returned: NDArray[Any]) -> NDArray[Any]:
    """Numbers that were returned as objects, such as fractions, as doubles; others unchanged."""
    if returned.dtype.kind != "O":
        return returned
    try:
        return returned.astype(np.float64)
    except (TypeError, ValueError):
        return returned


def _is_outer_sum(r: NDArray[Any]) -> bool:
    """Whether residuals (k, k) are ``a[:, None] + b``, as if arrays (k, 1) and (k,) had been subtracted."""
    if r.ndim != 2 or r.shape[0] != r.shape[1] or len(r) < 4:
        return False
    size = np.abs(r).max()
    rest = np.abs(r - r[:, :1] - r[:1] + r[0, 0]).max()
    return bool(np.ptp(r[0]) > 1e-6 * size and np.ptp(r[:, 0]) > 1e-6 * size and rest <= 1e-12 * size)


@lru_cache(maxsize=1)
def _compiled_problem() -> type[CompiledProblem]:
    from .compiled import CompiledProblem

    return CompiledProblem


@dataclass
class CompiledModel:
    """A compiled model; the kernel is made where the rows are."""

    model: Any
    """The model, with ``residual_kernel(shapes, dim, loss, threads) -> Kernel``, or ``curve_kernel`` for a curve."""
    dim: int
    loss: Loss
    threads: int | None = None
    curve: str | None = None
    """``"plain"`` or ``"weighted"``: columns are x..., y or x..., y, sigma of a curve; None: rows of residuals."""
    shapes: tuple[int, ...] = ()
    """Number of scalar columns of each array of the data."""

    move: None = None
    whole = False
    _kernel: Any = field(default=None, init=False, repr=False, compare=False)

    @property
    def kernel(self) -> Any:
        """The kernel of these shapes, made on first use."""
        if self._kernel is None:
            how = self.dim, self.loss, self.threads
            if self.curve is None:
                self._kernel = self.model.residual_kernel(self.shapes, *how)
            else:
                weighting, others = ("sigma", 2) if self.curve == "weighted" else (None, 1)
                self._kernel = self.model.curve_kernel(sum(self.shapes) - others, how[0], weighting, *how[1:])
        return self._kernel

    @property
    def components(self) -> int:
        return int(self.kernel.components)

    def prepared(self, points: Sequence[Theta], columns: Columns, *, together: bool) -> CompiledModel:
        if not columns:
            raise ValueError("data is needed with a compiled model: it is evaluated row by row")
        self.shapes = tuple([1 if a.ndim == 1 else a.shape[1] for a in columns])
        return self

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> Problem:
        return _compiled_problem()(self.kernel, columns, fused=True, rng=rng)

    def refine_derivatives(self) -> bool:
        return False  # derivatives are exact

    def holds(self, theta: Theta, columns: Columns, problem: Problem | None) -> bool:
        return True

    def with_loss(self, loss: Loss) -> CompiledModel:
        return replace(self, loss=loss)

    def with_all_rows(self) -> CompiledModel:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kernel": None}
