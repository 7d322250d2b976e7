r"""Sparse Cholesky factorisation of a block matrix, by supernodes.

*Order.* The node with the fewest neighbours is eliminated next, and its neighbours become a clique. Sets of nodes are
Python's integers, whose bits are compared and counted a word at a time; a few thousand nodes take a fraction of a
second, once per problem.

*Supernodes.* Nodes that follow each other in the elimination tree and have nearly the same later neighbours are taken
together, so that all work is in dense panels: with w columns and r rows below the diagonal, a panel (w + r, w) is
factored by LAPACK and BLAS, and ``-L L^T`` of its lower part is added to the panels of its ancestors.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..jit import types
from ..jit.njit import njit
from .blocks import BlockMatrix, Pattern
from .lapack import dpotrf, dpotri, dtrsm

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_f8, _i8 = types.float64, types.int64
_ZEROS = 0.2
"""Largest share of zeros in a panel that two supernodes are joined in."""
_NARROW = 48
"""Number of columns up to which half of a joined panel may be zeros: calls cost more than what they compute."""


def _bits(number: int) -> Iterator[int]:
    """Places of the ones of a number, ascending."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def minimum_degree(neighbours: list[int]) -> tuple[list[int], list[int]]:
    """An order of elimination, and for each node the set of its later neighbours, as bits.

    Examples
    --------
    >>> minimum_degree([0b1110, 0b0001, 0b0001, 0b0001])  # a star: its leaves first
    ([1, 2, 0, 3], [8, 1, 1, 0])
    """
    adjacent, n = list(neighbours), len(neighbours)
    later, order = [0] * n, []
    queue = [(s.bit_count(), v) for v, s in enumerate(adjacent)]
    heapify(queue)
    left = (1 << n) - 1
    while queue:
        degree, v = heappop(queue)
        if not left >> v & 1 or degree != adjacent[v].bit_count():
            continue
        if degree == left.bit_count() - 1:  # the rest is a clique
            for u in _bits(left):
                left ^= 1 << u
                order.append(u)
                later[u] = left
            break
        mine = later[v] = adjacent[v]
        order.append(v)
        gone = ~(1 << v)
        left &= gone
        for u in _bits(mine):
            adjacent[u] = (adjacent[u] | mine) & gone & ~(1 << u)
            heappush(queue, (adjacent[u].bit_count(), u))
    return order, later


def _supernodes(order: list[int], later: list[int], sizes: list[int]) -> list[tuple[list[int], int]]:
    """Nodes and later neighbours of each supernode, children before parents."""
    rank = {v: k for k, v in enumerate(order)}
    members: dict[int, list[int]] = {}  # by their last node
    children: dict[int, list[int]] = {}
    above = dict(enumerate(later))
    zeros = dict.fromkeys(order, 0)

    def width(nodes: int) -> int:
        return sum(sizes[u] for u in _bits(nodes))

    for v in order:
        mine, group = later[v], [v]
        rows, columns = width(mine), sizes[v]
        kept = []
        for child in sorted(children.get(v, []), key=lambda c: -len(members[c])):
            extra = columns + rows - width(above[child])
            narrow = sum(sizes[u] for u in members[child])
            total = narrow + columns
            added = zeros[v] + zeros[child] + narrow * extra
            if extra == 0 or added < (0.5 if total <= _NARROW else _ZEROS) * total * (0.5 * total + rows):
                zeros[v] = added
                group = members.pop(child) + group
                kept += children.pop(child, [])
                columns = total
            else:
                kept.append(child)
        members[v], children[v], above[v] = group, kept, mine
        if mine:
            children.setdefault(min(_bits(mine), key=rank.__getitem__), []).append(v)
    found = []
    waiting = [(v, False) for v in reversed(order) if v in members and not above[v]]
    while waiting:
        v, done = waiting.pop()
        if done:
            found.append((members[v], above[v]))
        else:
            waiting.append((v, True))
            waiting += [(child, False) for child in children[v]]
    return found


class Plan:
    """Everything about the factor of a pattern that does not depend on values."""

    def __init__(self, pattern: Pattern) -> None:
        n, sizes = len(pattern.sizes), pattern.sizes.tolist()
        neighbours = [0] * n
        for a, b in zip(pattern.row.tolist(), pattern.column.tolist(), strict=True):
            if a != b:
                neighbours[a] |= 1 << b
                neighbours[b] |= 1 << a
        groups = _supernodes(*minimum_degree(neighbours), sizes)
        order = [v for members, _ in groups for v in members]
        size = pattern.sizes[order]
        begin = np.concatenate([[0], np.cumsum(size)])
        place = np.empty(n, dtype=np.int64)  # position of a node in the order
        place[order] = np.arange(n)
        self.order = np.concatenate([np.arange(pattern.offset[v], pattern.offset[v + 1]) for v in order])
        """(dim,) parameters in the order of elimination."""
        self.columns = np.concatenate([[0], np.cumsum([sum(sizes[v] for v in members) for members, _ in groups])])
        """First column of each supernode."""
        owner = np.repeat(np.arange(len(groups)), [len(members) for members, _ in groups])
        self.rows: list[Index] = []
        """Positions of the rows of each panel, ascending; its own columns first."""
        self.ancestors: list[list[tuple[int, int, int, Index]]] = []
        """For each panel: an ancestor, its first and last row in this panel, and the places of the rows from there."""
        for s, (_, above) in enumerate(groups):
            nodes = np.sort(place[list(_bits(above))]) if above else np.empty(0, dtype=np.int64)
            own = np.arange(self.columns[s], self.columns[s + 1])
            below = [np.arange(begin[k], begin[k + 1]) for k in nodes]
            self.rows.append(np.concatenate([own, *below]).astype(np.int64))
        for s, rows in enumerate(self.rows):
            w = int(self.columns[s + 1] - self.columns[s])
            which = owner[np.searchsorted(begin, rows[w:], side="right") - 1]
            cuts = np.concatenate([[0], np.flatnonzero(np.diff(which)) + 1, [len(which)]]) if len(which) else [0]
            found = []
            for a, b in pairwise(cuts):
                k = int(which[a])
                found.append((k, int(a), int(b), np.searchsorted(self.rows[k], rows[w + a :])))
            self.ancestors.append(found)
        widths = np.diff(self.columns)
        heights = np.array([len(rows) for rows in self.rows])
        self.at = np.concatenate([[0], np.cumsum(widths * heights)])
        """First entry of each panel."""
        lower = (heights - widths).astype(float)
        self.work = float((widths**3 / 3.0 + widths**2 * lower + widths * lower**2).sum())
        """Multiplications of a factorisation."""
        self._assemble(pattern, place, begin, owner)
        self.diagonal = np.concatenate([self.at[s] + np.arange(w) * (w + 1) for s, w in enumerate(widths.tolist())])
        """Places of the diagonal entries, in the order of elimination."""

    @classmethod
    def of(cls, pattern: Pattern) -> Plan:
        """The plan of a pattern, made once."""
        if pattern.plan is None:
            pattern.plan = cls(pattern)
        plan: Plan = pattern.plan
        return plan

    def _assemble(self, pattern: Pattern, place: Index, begin: Index, owner: Index) -> None:
        """Where the blocks of the matrix go: the first entry, the length of a row, and whether transposed."""
        a, b = place[pattern.row], place[pattern.column]
        low, high = np.maximum(a, b), np.minimum(a, b)
        panel = owner[high]
        where = np.empty(len(a), dtype=np.int64)
        for s in np.unique(panel):
            mine = np.flatnonzero(panel == s)
            where[mine] = np.searchsorted(self.rows[s], begin[low[mine]])
        self.stride = np.diff(self.columns)[panel]
        self.to = self.at[panel] + where * self.stride + begin[high] - self.columns[panel]
        self.turned = a < b

    def panel(self, entries: Array, s: int) -> Array:
        """(rows, columns) of a supernode, a view of all entries."""
        return entries[self.at[s] : self.at[s + 1]].reshape(len(self.rows[s]), -1)


class Factor:
    """``L L^T`` of a block matrix plus a diagonal matrix.

    Parameters
    ----------
    matrix, added
        The matrix and (dim,) what is added to its diagonal.

    Attributes
    ----------
    regular
        Whether every pivot is positive; only then can be solved.
    """

    def __init__(self, matrix: BlockMatrix, added: Array | float = 0.0) -> None:
        pattern = matrix.pattern
        plan = self.plan = Plan.of(pattern)
        entries = self.entries = np.zeros(int(plan.at[-1]))
        place_blocks(
            pattern.row, pattern.column, pattern.at, pattern.sizes, matrix.values, plan.to, plan.stride, plan.turned,
            entries,
        )  # fmt: skip
        entries[plan.diagonal] += added[plan.order] if isinstance(added, np.ndarray) else added
        self.regular = all(self._eliminate(s) for s in range(len(plan.rows)))

    def _eliminate(self, s: int) -> bool:
        plan = self.plan
        panel = plan.panel(self.entries, s)
        w = panel.shape[1]
        # A panel by rows is its transpose by columns, in which L^T is the upper triangle.
        _, failed = dpotrf(panel[:w].T, lower=0, overwrite_a=1, clean=0)
        if failed:
            return False
        if len(panel) == w:
            return True
        dtrsm(1.0, panel[:w].T, panel[w:].T, side=0, lower=0, trans_a=1, overwrite_b=1)
        below = panel[w:]
        for k, a, b, places in plan.ancestors[s]:
            subtract(plan.panel(self.entries, k), places, np.dot(below[a:], below[a:b].T))
        return True

    def solve(self, right: Array) -> Array:
        """The solution for right sides (dim,) or (dim, k)."""
        plan = self.plan
        x = np.asfortranarray(right.reshape(len(right), -1)[plan.order])
        for s, rows in enumerate(plan.rows):
            panel = plan.panel(self.entries, s)
            w, lo, hi = panel.shape[1], plan.columns[s], plan.columns[s + 1]
            x[lo:hi] = dtrsm(1.0, panel[:w].T, x[lo:hi], lower=0, trans_a=1)
            if len(rows) > w:
                x[rows[w:]] -= panel[w:] @ x[lo:hi]
        for s in range(len(plan.rows) - 1, -1, -1):
            panel, rows = plan.panel(self.entries, s), plan.rows[s]
            w, lo, hi = panel.shape[1], plan.columns[s], plan.columns[s + 1]
            part = x[lo:hi] - panel[w:].T @ x[rows[w:]] if len(rows) > w else x[lo:hi]
            x[lo:hi] = dtrsm(1.0, panel[:w].T, part, lower=0, trans_a=0)
        out = np.empty_like(x)
        out[plan.order] = x
        return out.reshape(right.shape)

    def inverse_panels(self) -> Array:
        """Entries of the inverse at the places of the factor's, by Takahashi's recursion from the last supernode on.

        With ``Y = L21 L11^-1`` and Z22 the inverse at the rows below, ``Z21 = -Z22 Y``, ``Z11 = (L11 L11^T)^-1 - Y^T
        Z21``. It takes about twice the work of the factor, and no other memory than its size.
        """
        plan = self.plan
        found = np.empty_like(self.entries)
        for s in range(len(plan.rows) - 1, -1, -1):
            panel, out = plan.panel(self.entries, s), plan.panel(found, s)
            w = panel.shape[1]
            own = dpotri(panel[:w].T, lower=0)[0]
            out[:w] = np.triu(own) + np.triu(own, 1).T
            if len(panel) == w:
                continue
            below = np.empty((len(panel) - w,) * 2)
            for k, a, b, places in plan.ancestors[s]:
                below[a:, a:b] = plan.panel(found, k)[places[:, None], places[: b - a]]
            below = np.tril(below) + np.tril(below, -1).T
            part = dtrsm(1.0, panel[:w].T, panel[w:].T, side=0, lower=0, trans_a=0).T
            out[w:] = -below @ part
            out[:w] -= part.T @ out[w:]
        return found


@njit(
    types.void(
        _i8[::1], _i8[::1], _i8[::1], _i8[::1], _f8[::1], _i8[::1], _i8[::1], types.boolean[::1], _f8[::1]
    ),
    nogil=True, error_model="numpy",
)  # fmt: skip
def place_blocks(row, column, at, sizes, values, to, stride, turned, entries):  # type: ignore[no-untyped-def]
    """Copy the blocks of a matrix to their places in the panels."""
    for k in range(row.shape[0]):
        rows, columns = sizes[row[k]], sizes[column[k]]
        for i in range(rows):
            for j in range(columns):
                place = to[k] + (j * stride[k] + i if turned[k] else i * stride[k] + j)
                entries[place] = values[at[k] + i * columns + j]


@njit(types.void(_f8[:, ::1], _i8[::1], _f8[:, ::1]), nogil=True, error_model="numpy")
def subtract(panel, places, update):  # type: ignore[no-untyped-def]
    """Subtract an update (m, n) from the rows ``places`` (m,) and the columns that are the first n of them."""
    n = update.shape[1]
    together = places[n - 1] - places[0] == n - 1
    for i in range(update.shape[0]):
        row, given = panel[places[i]], update[i]
        if together:
            first = places[0]
            for j in range(n):
                row[first + j] -= given[j]
        else:
            for j in range(n):
                row[places[j]] -= given[j]
