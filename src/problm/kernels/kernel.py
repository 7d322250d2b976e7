r"""`Kernel`: compiled passes over the rows, with a model, its loss and threads.

A model supplies one small compiled function, the *evaluator* (`problm.kernels.evaluator`), which computes residuals and
derivatives of a block of at most 128 rows. The passes (`problm.kernels.passes`), which are the same for every model, do
the rest. A `Kernel` combines the two. Sums are accumulated block by block within a chunk of 32,768 rows and pairwise
over chunks. Chunks are cut at fixed positions, so the number of threads does not change the bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import address_of
from ..linalg.cholesky_compiled import CompiledCholesky
from ..linalg.normal import Normal, Runs
from ..linalg.packed import places, square
from ..losses import USER_CODE, Loss
from ..support.descriptors import ROW_NUMBER, describe, loadable, loadable_type
from ..support.reduction import add_pairwise
from ..support.threads import available_threads, pool
from .chunks import CHUNK, split
from .evaluator import BLOCK, EVALUATOR, FASTMATH, evaluator
from .passes import (
    LINEARIZE,
    concentration_chunk,
    costs_chunk,
    linearize_chunk,
    linearize_runs,
    rows_chunk,
    tools,
)
from .second_order import SecondOrder

__all__ = [
    "BLOCK",
    "CHUNK",
    "EVALUATOR",
    "FASTMATH",
    "ROW_NUMBER",
    "Kernel",
    "address_of",
    "available_threads",
    "describe",
    "evaluator",
    "loadable",
    "loadable_type",
    "square",
]  # fmt: skip

fill_function = evaluator  # former name
Array = NDArray[np.float64]
Part = TypeVar("Part", float, Array)

GROUP = 64
"""Number of chunks that are noted together: two million rows, about 20 ms."""
_NO_INT = np.empty(0, dtype=np.int64)
_NO_FLOAT = np.empty(0)


class Notes(Protocol):
    """Record of the progress of a pass (`problm.solver.journal`)."""

    def resume(self, form: str) -> tuple[int, Any]:
        """Number of finished groups, and their sums in this form."""
        ...

    def note(self, groups: int, sums: Any) -> None:
        """Record the number of finished groups and their sums."""
        ...


@dataclass(frozen=True)
class Kernel:
    """An evaluator with its own data: everything except the rows and the point."""

    evaluator: Any
    """The compiled evaluator function."""
    dim: int
    """Number d of tangent parameters."""
    components: int = 1
    """Number p of residuals per block."""
    program: NDArray[np.int64] = field(default_factory=lambda: _NO_INT)
    constants: Array = field(default_factory=lambda: _NO_FLOAT)
    keep: tuple[Any, ...] = ()
    """Objects whose memory ``program`` points to."""
    loss: Loss = field(default_factory=lambda: Loss.named("linear"))
    threads: int | None = 1
    """Number of threads. None: as many as there are cores, determined only if there is work for more than one."""
    second: Callable[[], SecondOrder | None] | None = field(default=None, repr=False, compare=False)
    """Makes the kernel of the second derivatives, if they are known."""
    address: int = field(init=False, repr=False, compare=False)
    fixed: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", address_of(self.evaluator, EVALUATOR))
        if self.loss.code == USER_CODE:
            raise TypeError(
                f"loss={self.loss.name!r}: a user-defined loss cannot be used inside a compiled model; "
                "pass the model as a NumPy function, or choose a built-in loss"
            )
        # Arguments of the passes after the rows, collected once: a small fit calls them every few microseconds.
        called = tools(not self.loss.is_linear)
        fixed = (
            self.program, self.constants, self.dim, self.components, self.loss.code, called, float(self.loss.scale),
        )  # fmt: skip
        object.__setattr__(self, "fixed", fixed)

    @property
    def work(self) -> float:
        """Rough time of linearising a row in ns; the same number on every machine, as decisions depend on it."""
        evaluated = 1.0 + 0.025 * len(self.program) if len(self.program) else 8.0
        return evaluated + 0.03 * self.dim**2 + (0.0 if self.loss.is_linear else 2.0)

    def linearize(
        self, theta: Array, columns: NDArray[np.int64], n: int, *, outer: bool, costs: Array | None,
        notes: Notes | None = None,
    ) -> Normal:  # fmt: skip
        """Sums over the first ``n`` rows of the described columns; groups are recorded in ``notes`` if given."""
        d = self.dim
        triangle = d * (d + 1) // 2
        width = 1 + d + triangle * (2 if outer else 1)

        def chunk(lo: int, hi: int) -> Array:
            sums = np.zeros(width)
            part = _NO_FLOAT if costs is None else costs[lo:hi]
            linearize_chunk.compiled(self.address, theta, columns, lo, hi, *self.fixed, int(outer), part, sums)
            return sums

        sums = chunk(0, n) if n <= CHUNK else self._reduce(chunk, n, notes)
        products = sums.take(places(d, 1 + d + triangle)) if outer else None
        return Normal(n, sums.item(0), sums[1 : 1 + d], sums.take(places(d, 1 + d)), products, None, CompiledCholesky)

    def linearize_groups(
        self, theta: Array, columns: NDArray[np.int64], edges: NDArray[np.intp]
    ) -> tuple[Array, Array]:
        """Sums of the gradient (m, d) and of the Gauss-Newton matrix (m, d, d) over m groups of consecutive rows."""
        d = self.dim
        sums = np.zeros((len(edges) - 1, 1 + d + d * (d + 1) // 2))
        bounds = edges.tolist()
        for part, lo, hi in zip(sums, bounds, bounds[1:], strict=False):
            linearize_chunk.compiled(self.address, theta, columns, lo, hi, *self.fixed, 0, _NO_FLOAT, part)
        return sums[:, 1 : 1 + d], sums[:, places(d, 1 + d)]

    def linearize_runs(self, theta: Array, columns: NDArray[np.int64], starts: NDArray[np.int64], length: int) -> Runs:
        """Sums over m runs of consecutive rows."""
        d = self.dim
        sums = np.zeros((len(starts), 1 + d + d * (d + 1) // 2))
        by = address_of(linearize_chunk, LINEARIZE)

        def run(lo: int, hi: int) -> None:
            linearize_runs(by, self.address, theta, columns, starts[lo:hi], length, *self.fixed, sums[lo:hi])

        split(run, len(starts), length, self.threads)
        return Runs(length, sums[:, 0], sums[:, 1 : 1 + d], sums[:, 1 + d :])

    def costs(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Costs of the first ``n`` rows."""
        costs = np.empty(n)
        self._sum(theta, columns, n, costs)
        return costs

    def cost(self, theta: Array, columns: NDArray[np.int64], n: int, notes: Notes | None = None) -> float:
        """Sum of the costs of the first ``n`` rows; groups are recorded in ``notes`` if given."""
        return self._sum(theta, columns, n, _NO_FLOAT, notes)

    def _sum(self, theta: Array, columns: NDArray[np.int64], n: int, costs: Array, notes: Notes | None = None) -> float:
        def chunk(lo: int, hi: int) -> float:
            part: float = costs_chunk(self.address, theta, columns, lo, hi, *self.fixed, costs[lo:hi])
            return part

        return self._reduce(chunk, n, notes)

    def residuals(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Residuals of the first ``n`` rows, shape (n, p)."""
        residuals = np.empty((n, self.components))

        def chunk(lo: int, hi: int) -> Array:
            self._rows(theta, columns, lo, hi, 0, residuals[lo:hi])
            return _NO_FLOAT

        self._reduce(chunk, n)
        return residuals

    def jacobian(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Derivatives of the residuals of the first ``n`` rows, shape (n, p, d)."""
        d, p = self.dim, self.components
        values = np.empty((n, p * (1 + d)))

        def chunk(lo: int, hi: int) -> Array:
            self._rows(theta, columns, lo, hi, 1, values[lo:hi])
            return _NO_FLOAT

        self._reduce(chunk, n)
        return values[:, p:].reshape(n, p, d)

    def factor(self, theta: Array, columns: NDArray[np.int64], n: int) -> Array:
        """Triangular factor of the weighted [J r] of the first ``n`` rows, (d + 1, d + 1): a QR over chunks."""
        d, p = self.dim, self.components
        triangle: Any = np.zeros((0, d + 1))
        for lo in range(0, n, CHUNK):
            hi = min(lo + CHUNK, n)
            values = np.empty((hi - lo, p * (1 + d)))
            self._rows(theta, columns, lo, hi, 1, values)
            residuals = values[:, :p]
            weight = self.loss.cost_and_weight(np.einsum("kp,kp->k", residuals, residuals))[1]
            both = np.concatenate([values[:, p:].reshape(-1, p, d), residuals[:, :, None]], axis=2)
            both *= np.sqrt(weight)[:, None, None]
            triangle = np.linalg.qr(np.vstack([triangle, both.reshape(-1, d + 1)]), mode="r")
        return np.asarray(triangle)

    def concentration(self, theta: Array, columns: NDArray[np.int64], n: int, root: Array) -> Array:
        """``sum h_i U_i^T U_i`` over the first ``n`` rows, (rank, rank), with ``U_i = sqrt(w_i) J_i root``."""
        root = np.ascontiguousarray(root)
        sums = np.zeros((root.shape[1], root.shape[1]))
        for lo in range(0, n, CHUNK):
            concentration_chunk(self.address, theta, columns, lo, min(lo + CHUNK, n), *self.fixed, root, sums)
        return sums + np.tril(sums, -1).T

    def _rows(self, theta: Array, columns: NDArray[np.int64], lo: int, hi: int, jacobian: int, values: Array) -> None:
        """Write to ``values`` what the evaluator computes for the rows [lo, hi)."""
        rows_chunk(self.address, theta, columns, lo, hi, *self.fixed[:4], self.fixed[5], jacobian, values)

    def _reduce(self, chunk: Callable[[int, int], Part], n: int, notes: Notes | None = None) -> Part:
        if n <= CHUNK:
            return chunk(0, n)
        count = -(-n // CHUNK)
        parts = self._parts(chunk, n, 0, count) if notes is None else self._noted(chunk, n, count, notes)
        return add_pairwise(parts)

    def _noted(self, chunk: Callable[[int, int], Part], n: int, count: int, notes: Notes) -> list[Part]:
        """Sums of groups of 2^k chunks, which are nodes of the tree over all chunks, so the bits are the same."""
        groups: list[Part] = list(notes.resume("groups")[1] or ())
        for first in range(len(groups) * GROUP, count, GROUP):
            groups.append(add_pairwise(self._parts(chunk, n, first, min(first + GROUP, count))))
            notes.note(len(groups), list(groups))
        return groups

    def _parts(self, chunk: Callable[[int, int], Part], n: int, first: int, last: int) -> list[Part]:
        """Sums of the chunks [first, last) in the order of the rows; each thread gets one run of chunks."""
        threads = min(self.threads or available_threads(), last - first)
        cuts = [first + (last - first) * t // threads for t in range(threads + 1)]

        def run(lo: int, hi: int) -> list[Part]:
            return [chunk(k * CHUNK, min((k + 1) * CHUNK, n)) for k in range(lo, hi)]

        jobs = [pool(os.getpid()).submit(run, a, b) for a, b in pairwise(cuts[1:])]
        parts = run(cuts[0], cuts[1])
        for job in jobs:
            parts += job.result()
        return parts
