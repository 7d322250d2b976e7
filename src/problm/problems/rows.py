"""What evaluates rows, wherever they lie: a model without its data.

`FunctionRows` and `CompiledRows` (and those of `problm.problems.backends`) make a problem of any columns that they are
handed: all of them, a chunk of a file, the share of a worker. They pickle where the user's functions do, so that a
cluster can be sent one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..solver.problem import Problem, Theta
from .numpy_function import FunctionProblem

Array = NDArray[np.float64]
Columns = tuple[NDArray[Any], ...]


class Rows(Protocol):
    """A model of rows: everything but the rows."""

    @property
    def dim(self) -> int: ...

    @property
    def components(self) -> int:
        """Residuals in a block."""
        ...

    @property
    def loss(self) -> Loss: ...

    @property
    def move(self) -> Callable[[Theta, Array], Theta] | None:
        """The retraction of a manifold; None: steps are added."""
        ...

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> Problem:
        """The problem of these rows, all in memory."""
        ...

    def refine_derivatives(self) -> bool:
        """Use more accurate derivatives from now on; whether that was possible."""
        ...


M = TypeVar("M", bound=Rows)


class Modelled(Problem, Generic[M]):
    """What a problem takes over from the model of its rows, wherever these are."""

    def __init__(self, model: M) -> None:
        self.model = model
        self.dim, self.components, self.cost_bound = model.dim, model.components, model.loss.bound
        self.move = model.move


@dataclass
class FunctionRows:
    """A NumPy function of some rows; the arguments of `problm.problems.numpy_function.FunctionProblem` without the
    data."""

    fun: Callable[..., Any]
    jac: str | Callable[..., Any]
    dim: int
    loss: Loss
    components: int = 1
    move: Callable[[Theta, Array], Theta] | None = None
    limits: tuple[Array, Array] | None = None
    total: int = 0
    """Blocks, for a function without data."""

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> FunctionProblem:
        return FunctionProblem(
            self.fun, self.jac, columns, self.dim, self.loss,
            total=self.total, components=self.components, retract=self.move, limits=self.limits, rng=rng,
        )  # fmt: skip

    def refine_derivatives(self) -> bool:
        """Go over from forward to central differences; whether that was possible."""
        if self.jac != "2-point":
            return False
        self.jac = "3-point"
        return True


@dataclass
class CompiledRows:
    """A compiled model; the kernel is made where the rows are."""

    model: Any
    """With ``residual_kernel(shapes, dim, loss, threads) -> Kernel``."""
    shapes: tuple[int, ...]
    """Scalar columns of each array of the data."""
    dim: int
    loss: Loss
    threads: int | None = None
    move: None = None

    @cached_property
    def kernel(self) -> Any:
        return self.model.residual_kernel(self.shapes, self.dim, self.loss, self.threads)

    @property
    def components(self) -> int:
        return int(self.kernel.components)

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> Problem:
        from .compiled import CompiledProblem

        return CompiledProblem(self.kernel, columns, fused=True, rng=rng)

    def refine_derivatives(self) -> bool:
        return False  # they are exact

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "kernel"}


def compiled_rows(model: Any, few: Columns, dim: int, loss: Loss, threads: int | None) -> CompiledRows:
    """`CompiledRows` for data of which ``few`` are the first rows."""
    if not few:
        raise ValueError("data is needed with a compiled model: it is evaluated row by row")
    shapes = tuple(1 if a.ndim == 1 else a.shape[1] for a in few)
    return CompiledRows(model, shapes, dim, loss, threads)


def function_rows(
    fun: Callable[..., Any],
    jac: str | Callable[..., Any],
    few: Columns,
    start: Theta,
    dim: int,
    loss: Loss,
    manifold: Any,
    limits: tuple[Array, Array] | None,
) -> FunctionRows:
    """`FunctionRows` whose block size is learnt from a call on the first rows; no rows: all residuals at once."""
    probe = np.asarray(fun(start, *few))
    if probe.dtype.kind not in "fiub":
        raise ValueError(f"fun must return real numbers, got dtype {probe.dtype}")
    if probe.ndim not in (1, 2):
        raise ValueError(f"fun must return residuals of shape (k,) or (k, p), got shape {probe.shape}")
    if few and len(probe) != len(few[0]):
        raise ValueError(
            f"fun returned {len(probe)} residual blocks for {len(few[0])} rows of data: it must use the rows that it "
            "is given, one block a row"
        )
    return FunctionRows(
        fun, jac, dim, loss,
        components=1 if probe.ndim == 1 else probe.shape[1],
        move=None if manifold is None else manifold.retract,
        limits=limits,
        total=len(probe),
    )  # fmt: skip
