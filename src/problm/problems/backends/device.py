"""Common part of JAX and PyTorch: rows in chunks of fixed shapes, sums on the device, losses.

Chunks have one of two sizes, so that nothing is compiled again as the batch grows: small, and large for passes over
very many rows. The last chunk is padded with copies of its first row, which a mask removes from every sum. A pass over
all of a moderate number of rows is one call, and the rows stay on the device. Only sums come back from it, and the
costs of single rows if requested.

Derivatives are taken in reverse mode, row by row (`by_row`): the gradient of a residual costs a few times the residual,
whatever the number of parameters. JAX's passes go through a chunk in blocks, so derivatives of all rows are never in
memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...linalg.cholesky_compiled import at_hand
from ...linalg.normal import Normal
from ...losses import RULES, USER_CODE, Loss
from ...solver.problem import Problem, Theta
from ...support.digest import code_digest
from ...support.reduction import add_pairwise
from ..row_wise import ROWS, Evaluate, agree, is_row_wise
from ..rows import Columns, Modelled, RowModel
from ..sampled import SampledProblem

Array = NDArray[np.float64]
CHUNK = 8192
"""Rows in a small chunk; a first batch is padded to it, which takes about as long as the call itself."""
LARGE = 65_536
"""Rows in a large chunk. Measured for an exponential with three parameters: 19 ns per row for a linearisation and 7 for
costs, against 30 and 28 in small chunks."""
_LARGE_FROM = 4 * LARGE
"""Rows of a pass from which compiling for large chunks pays off."""
_LARGE_BYTES = 1 << 25
"""Largest size of the derivatives of a chunk, in bytes."""
_UNDER_WAY = 16
_GOLDEN = 0.6180339887498949


class Passes(Protocol):
    """The compiled passes over one chunk, of which ``count`` rows are valid. Results may be asynchronous."""

    in_blocks: bool
    """Whether `linearize` goes through the rows in blocks, so that its memory does not grow with the chunk."""

    def linearize(self, theta: Any, count: int, rows: Columns, outer: bool) -> Any:
        """Sums in one vector, and costs (rows,).

        The sums: cost, weighted products of the columns of [J r] ((d + 1) x (d + 1)), and outer products of the rows'
        gradients (d x d) if requested.
        """
        ...

    def costs(self, theta: Any, count: int, rows: Columns) -> Any:
        """cost, costs (rows,)."""
        ...

    def residuals(self, theta: Any, rows: Columns) -> Any:
        """(rows, p)."""
        ...

    def fetch(self, value: Any) -> Any:
        """A result as NumPy arrays."""
        ...

    def put(self, rows: Columns) -> Columns:
        """Rows on the device."""
        ...

    def room(self, n: int) -> int:
        """Number of rows to which n rows are padded, so that few programs are compiled for all lengths."""
        ...


@dataclass
class Prepared:
    """A function as prepared by a library that has seen its data."""

    passes: Passes
    for_all_rows: Callable[[], Passes]
    """Makes the passes of a function whose rows turn out to influence each other."""
    components: int
    whole: bool
    evaluate: Evaluate
    """Residuals of some rows, evaluated together."""
    move: Callable[[Theta, Array], Theta] | None
    """The user's retraction, for NumPy arrays."""


class DeviceModel:
    """A model of rows that runs on a device (`problm.problems.rows.RowModel`).

    Parameters
    ----------
    prepare
        ``(fun, points, columns, dim, loss, move) -> Prepared``, from the library's module.
    fun
        Residuals of a batch of rows, or of a single one.
    move
        The user's retraction, in the library's arrays.
    record
        ``(fun, points, columns, dim, loss)`` -> a row model without the library, or None.
    """

    def __init__(
        self,
        prepare: Callable[..., Prepared],
        fun: Callable[..., Any],
        dim: int,
        loss: Loss,
        move: Callable[[Any, Any], Any] | None = None,
        record: Callable[..., RowModel | None] | None = None,
    ) -> None:
        self._prepare, self.fun, self.dim, self.loss, self._user_move = prepare, fun, dim, loss, move
        self._record = record if loss.code != USER_CODE else None
        self._seen: tuple[Sequence[Theta], Columns] | None = None
        self._made: Prepared | None = None
        self._all = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function and some rows, from which the compiled programs can be made again."""
        return _rebuilt, (self._prepare, self.fun, self.dim, self.loss, self._user_move, self._seen, self._all)

    @property
    def made(self) -> Prepared:
        if self._made is None:
            raise RuntimeError("the model has not seen its data: call prepared first")
        return self._made

    @property
    def passes(self) -> Passes:
        return self.made.passes

    @property
    def components(self) -> int:
        return self.made.components

    @property
    def whole(self) -> bool:
        return self._all or self.made.whole

    @property
    def move(self) -> Callable[[Theta, Array], Theta] | None:
        return self.made.move

    def prepared(self, points: Sequence[Theta], columns: Columns, *, together: bool = False) -> RowModel:
        """The model, completed by calls on its data, or one that needs no device. Chunks are padded, so rows are never
        simply evaluated together."""
        if not columns:
            raise ValueError("data is needed with JAX and PyTorch functions: residuals are evaluated batch by batch")
        if self._record is not None:
            model = self._record(self.fun, points, columns, self.dim, self.loss)
            if model is not None:
                return model
        self._made = self._prepare(self.fun, points, columns, self.dim, self.loss, self._user_move)
        self._seen = list(points), tuple(c[:ROWS] for c in columns)
        return self

    def problem(self, columns: Columns, rng: np.random.Generator | int | None = 0) -> DeviceProblem:
        return DeviceProblem(self, columns, rng)

    def refine_derivatives(self) -> bool:
        return False  # derivatives are exact

    def holds(self, theta: Theta, columns: Columns, problem: Problem | None) -> bool:
        if isinstance(problem, DeviceProblem) and problem.at_once:
            return problem.is_row_wise_at(theta)  # half of all rows, which says more than a few
        if not is_row_wise(self.made.evaluate, [theta], columns):
            return False
        return not isinstance(problem, DeviceProblem) or problem.is_row_wise_at(theta)

    def with_loss(self, loss: Loss) -> DeviceModel:
        return DeviceModel(self._prepare, self.fun, self.dim, loss, self._user_move, self._record)

    def with_all_rows(self) -> DeviceModel:
        again = DeviceModel(self._prepare, self.fun, self.dim, self.loss, self._user_move)
        made = self.made
        again._made, again._seen, again._all = replace(made, passes=made.for_all_rows(), whole=True), self._seen, True
        return again


def _rebuilt(prepare: Any, fun: Any, dim: int, loss: Loss, move: Any, seen: Any, everything: bool) -> DeviceModel:
    model = DeviceModel(prepare, fun, dim, loss, move)
    if seen is not None:
        model.prepared(*seen)
    return model.with_all_rows() if everything else model


def by_row(dim: int, components: int) -> bool:
    """Whether reverse mode is faster than forward mode.

    Measured on 10,000 rows: a damped sine with 5 parameters 0.63 against 1.4 ms (JAX) and 4.2 against 5.2 (PyTorch), a
    small network with 50 parameters 4.3 against 54 and 22 against 197.
    """
    return dim > 2 * components


class DeviceProblem(SampledProblem, Modelled[DeviceModel]):
    """Residual blocks of columns in memory, evaluated chunk by chunk on a device."""

    fused = True
    few = 4 * CHUNK
    """Number of rows that one call evaluates about as fast as a first batch."""
    least_batch = CHUNK
    """Smallest size of the first batch: smaller batches are padded to it."""

    def __init__(self, model: DeviceModel, columns: Columns, rng: np.random.Generator | int | None = 0) -> None:
        Modelled.__init__(self, model)
        SampledProblem.__init__(self, columns, model.dim, rng)
        self.robust = not model.loss.is_linear
        size = 8 * self.n * (self.dim + 1) * self.components
        together = size <= _LARGE_BYTES or model.passes.in_blocks
        self.at_once = not model.whole and self.n < _LARGE_FROM and together
        """Whether one call evaluates all rows."""
        self._cholesky = at_hand(self.dim) if self.at_once else None
        self._on_device: Columns | None = None
        self._last: tuple[Theta, Any] | None = None
        """The last point at which all rows were linearised in one call, and their costs there, on the device."""

    def fingerprint(self) -> dict[str, Any]:
        loss = self.model.loss
        return {**super().fingerprint(), "model": code_digest(self.model.fun), "loss": [loss.name, loss.scale]}

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        passes = self.model.passes

        def evaluate(theta: Theta, count: int, rows: Columns) -> Any:
            # Small chunks always compute outer products: almost no work, and one program fewer to compile.
            return passes.linearize(theta, count, rows, outer or (len(rows[0]) == CHUNK and not self.at_once))

        def sums() -> Iterator[Normal]:
            for at, count, (values, each) in self._results(evaluate, theta, lo, hi):
                if costs is not None:
                    costs[at : at + count] = passes.fetch(each)[:count]
                if count == self.n:
                    self._last = theta, each
                yield self._normal(count, passes.fetch(values), outer)

        return add_pairwise(sums())

    def _normal(self, count: int, values: Array, outer: bool) -> Normal:
        d = self.dim
        products = values[1 : 1 + (d + 1) ** 2].reshape(d + 1, d + 1)
        hessian = products[:d, :d]
        total = values[1 + (d + 1) ** 2 :].reshape(d, d) if outer else None
        whole = self._cholesky if count == self.n else None
        return Normal(
            count, float(values[0]), products[:d, d].copy(), 0.5 * (hessian + hessian.T), total, compiled=whole
        )

    def for_compiled_loop(self) -> tuple[Any, ...] | None:
        return () if self._cholesky is not None and self.move is None and self.n <= self.few else None

    def costs(self, theta: Theta, lo: int, hi: int) -> Array:
        passes = self.model.passes
        costs = np.empty(hi - lo)
        for at, count, (_, each) in self._results(passes.costs, theta, lo, hi):
            costs[at : at + count] = passes.fetch(each)[:count]
        return costs

    def cost(self, theta: Theta) -> float:
        passes = self.model.passes
        return add_pairwise(float(passes.fetch(r[0])) for _, _, r in self._results(passes.costs, theta, 0, self.n))

    def residuals(self, theta: Theta) -> Array:
        """Residuals of all blocks in the user's order, (n, p)."""
        passes = self.model.passes
        return np.concatenate(
            [passes.fetch(passes.residuals(theta, rows))[:count] for _, count, rows in self._chunks(0, self.n)]
        )

    def first_bad_row(self, theta: Theta) -> int | None:
        """The first row, in the user's order, whose residual or gradient is not finite."""
        passes = self.model.passes
        for at, count, rows in self._chunks(0, self.n):
            bad = ~np.isfinite(passes.fetch(passes.costs(theta, count, rows)[1])[:count])
            if bad.any():
                return at + int(np.argmax(bad))
        return None

    def is_row_wise_at(self, theta: Theta) -> bool:
        """Whether rows have the same costs in another company: all of them where one call evaluates all, otherwise
        those of some chunks, cut elsewhere and reversed."""
        if self.model.whole:
            return True
        if self.at_once:
            return self._same_in_other_company(theta)
        passes, size = self.model.passes, CHUNK

        def costs(at: int, back: bool) -> Array:
            rows: Columns = tuple(c[at : at + size][:: -1 if back else 1] for c in self.data.columns)
            found = np.asarray(passes.fetch(passes.costs(theta, size, rows)[1]))[:size]
            return found[::-1] if back else found

        for at in sorted({0, (self.n - size) // 2, self.n - size}):
            last = max(0, at - size // 2)
            overlap = slice(at - last, None), slice(None, size - (at - last))
            if not agree([costs(at, True)[overlap[1]]], [costs(last, False)[overlap[0]]]):
                return False
        return True

    def _same_in_other_company(self, theta: Theta) -> bool:
        """Whether half of the rows, from all over and in another order, have the costs that they have among all."""
        passes = self.model.passes
        if self._last is None:
            self.linearize(theta, 0, self.n, outer=False, costs=None)
        assert self._last is not None
        theta = self._last[0]  # the last step may have been taken without evaluating it
        stride = next(k for k in range(int(_GOLDEN * self.n) + 1, 2 * self.n + 2) if math.gcd(k, self.n) == 1)
        half = stride * np.arange((self.n + 1) // 2) % self.n
        rows = tuple(_filled(c[half], passes.room(self.n)) for c in self.data.columns)
        apart = passes.fetch(passes.costs(theta, len(half), rows)[1])[: len(half)]
        return agree([np.asarray(apart)], [np.asarray(passes.fetch(self._last[1]))[half]])

    def _results(self, function: Any, theta: Theta, lo: int, hi: int) -> Iterator[tuple[int, int, Any]]:
        """Results of the chunks in order; several are computed while the next is prepared."""
        waiting: deque[tuple[int, int, Any]] = deque()
        for at, count, rows in self._chunks(lo, hi):
            waiting.append((at, count, function(theta, count, rows)))
            if len(waiting) > _UNDER_WAY:
                yield waiting.popleft()
        yield from waiting

    def _chunks(self, lo: int, hi: int) -> Iterator[tuple[int, int, Columns]]:
        """Start of each chunk, counted from lo, number of its valid rows, and its rows."""
        if self.model.whole:
            yield 0, self.n, self.data.columns
            return
        if self.at_once and lo == 0 and hi == self.n:
            if self._on_device is None:
                passes = self.model.passes
                self._on_device = passes.put(tuple(_filled(c, passes.room(self.n)) for c in self.data.columns))
            yield 0, self.n, self._on_device
            return
        columns = self.data.rows(lo, hi)
        n, at = hi - lo, 0
        wide = 8 * LARGE * (self.dim + 1) * self.components > _LARGE_BYTES
        while at < n:
            size = LARGE if n >= _LARGE_FROM and n - at >= LARGE and not wide else CHUNK
            rows: Columns = tuple(c[at : at + size] for c in columns)
            count = len(rows[0])
            yield at, count, tuple(_filled(c, size) for c in rows)
            at += count


def _filled(column: NDArray[Any], size: int) -> NDArray[Any]:
    """The column, padded to ``size`` rows with copies of its first one."""
    if len(column) == size:
        return column
    full = np.empty((size, *column.shape[1:]), dtype=column.dtype)
    full[: len(column)] = column
    full[len(column) :] = column[0]
    return full


def cost_and_weight(loss: Loss, squares: Any, xp: Any) -> tuple[Any, Any]:
    """Cost and weight of blocks with these squared norms, in the library ``xp`` (`problm.losses`)."""
    if loss.is_linear:
        return 0.5 * squares, xp.ones_like(squares)
    z = squares / loss.scale**2
    if loss.code != USER_CODE:
        rho, weight = RULES[loss.name].value_and_weight(z, xp)
    else:  # a user-defined loss, which must be written for this library's arrays
        rho, weight = getattr(loss.function, "__wrapped__", loss.function)(z)[:2]
    return 0.5 * loss.scale**2 * rho, weight
