"""Finite-difference derivatives of residuals (`problm.support.differences`), with SciPy's options.

Steps are relative to the parameter's size, as in MINPACK, but the size is at least a hundredth of that at the start
(one if it starts at zero): otherwise a parameter that passes zero would be moved by less than rounding. A parameter may
be large only because its origin is far away (a peak at a Unix time): if its step changes residuals by more than a
thousandth of their size, the steps of that parameter are shortened for good. So are steps of any parameter that change
residuals by more than that, and not in proportion (a frequency, with times since 1970). And so are, where a solve seems
to end, those of a parameter that is smaller than its own step, if a step of its size changes residuals otherwise (a
width that runs to zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..solver.problem import Theta
from ..support.differences import EPS, derivatives, forward, usual_step
from ..support.products import dot
from .stacked import Stacked

Array = NDArray[np.float64]
LARGE = 1e4
"""Size from which a parameter may be large only because its origin is far away."""
_GROWN = 100.0
"""Growth of a parameter since the start, as a factor, from which it is checked, too."""
LONG = 1e-3
"""Change of a residual by a step, relative to the largest residual, above which the step is too long."""
_SEEN = 1e3
"""Change of a residual by a step, relative to its rounding, below which the derivative has fewer than three digits."""
_LAST = 64.0 * EPS
"""Relative length of the shortest steps: shorter ones are lost in the parameter's last digits."""
_MOST_CUTS = 4
_BENT = 0.1
"""Relative change of a derivative, if its step is `_SHORTER`, above which the step is too long."""
_SHORTER = 0.1
_MOST_BENDS = 8
_SMALL = 100.0
"""Size of a parameter, in its own steps, below which these may be too long."""


def least_sizes(start: list[float]) -> list[float]:
    """Lower limits on the sizes of parameters, by their sizes at the start: smaller ones than 1e-12 are rounded
    zeros."""
    return [0.01 * (size if size > 1e-12 else 1.0) for size in start]


class Differences:
    """A difference scheme, its steps, and the groups of parameters that may move together.

    Parameters
    ----------
    scheme
        ``"2-point"``, ``"3-point"`` or ``"cs"`` (complex step).
    dim
        Number of parameters.
    retract
        Moves a point; None in flat space.
    limits
        Bounds that steps must not cross.
    step
        Relative steps, a number or (d,); by default those that balance the errors of rounding and truncation
        (Press et al., 5.7).
    sparsity
        (m, d) sparse matrix, non-zero where a residual depends on a parameter: parameters that share no residual are
        moved together.
    mapped
        ``map``, or that of a pool, to call the function at several points.
    """

    def __init__(
        self,
        scheme: str,
        dim: int,
        retract: Callable[[Theta, Array], Theta] | None = None,
        limits: tuple[Array, Array] | None = None,
        step: Any = None,
        sparsity: Any = None,
        mapped: Callable[..., Iterable[Any]] = map,
    ) -> None:
        self.scheme, self.dim, self.limits, self.sparsity = scheme, dim, limits, sparsity
        self.eps = EPS
        """Relative precision of the residuals."""
        self._retract, self._map = retract, mapped
        self._step = None if step is None else np.broadcast_to(np.asarray(step, dtype=np.float64), (dim,)).tolist()
        self._least: list[float] | None = None
        """Lower limits on the sizes of the parameters: a hundredth of those at the start."""
        self._most: list[float] | None = None
        """Upper limits on the sizes of the parameters, if there are any."""
        self._limited = retract is not None or step is not None or scheme == "cs"
        """Whether such limits were looked for, or are not needed."""
        self._theta: Theta = None
        """The last point."""
        self._shrunken: dict[int, float] = {}
        """Sizes of parameters that were found to be not much larger than their steps."""
        self._groups: NDArray[np.int64] | None = None
        self._stacked = Stacked()

    @property
    def parallel(self) -> bool:
        """Whether the function may be called in other processes."""
        return self._map is not map

    def refine(self) -> bool:
        """Switch from forward to central differences, or look for steps that are too long for parameters that have
        shrunk; return whether that was possible."""
        if self._step is not None or self.scheme == "cs":
            return False
        if self.scheme == "3-point":
            smaller = {a: abs(float(self._theta[a])) for a in self._smaller_than_steps(self._theta)}
            step = _SMALL * usual_step(self.scheme, self.eps)
            if not any(size < step * self._shrunken.get(a, 1e300) for a, size in smaller.items()):
                return False
            self._shrunken |= smaller
        else:
            self._most = None  # its steps are longer
        self.scheme, self._limited = "3-point", self._retract is not None
        return True

    def _smaller_than_steps(self, theta: Theta) -> list[int]:
        """Parameters of the size of their own steps."""
        if theta is None or self._retract is not None or self._least is None:
            return []
        step = _SMALL * usual_step(self.scheme, self.eps)
        pairs = zip(theta.tolist(), self._sizes(theta), strict=True)
        return [a for a, (now, size) in enumerate(pairs) if 0.0 < abs(now) < step * size]

    def check(self, residuals: int) -> None:
        """Raise a ValueError if the sparsity does not fit the number of residuals."""
        if self.sparsity is not None and self.sparsity.shape != (residuals, self.dim):
            raise ValueError(f"jac_sparsity has shape {self.sparsity.shape}, expected {(residuals, self.dim)}")

    def jacobian(
        self,
        evaluate: Callable[[Theta], Array],
        theta: Theta,
        residuals: Array,
        longer: float = 1.0,
        together: Callable[[Array], Any] | None = None,
    ) -> Any:
        """Transposed Jacobian (d, m), with the usual steps times ``longer``; sparse (m, d) if a sparsity is known.

        ``evaluate(point)`` returns residuals (m,); ``residuals`` are those at ``theta``; ``together`` is the function
        itself, which may be called for many points at once.
        """
        if self.sparsity is not None:
            return self._sparse(evaluate, theta, residuals, longer)
        first = not self._limited
        if first:
            self._shorten(evaluate, theta, residuals)
        if self._map is map:
            found = self._derivatives(evaluate, theta, residuals, longer, together)
            if first and self._straighten(evaluate, theta, residuals, found):
                found = self._derivatives(evaluate, theta, residuals, longer, together)
            return found
        values = iter(list(self._map(evaluate, self._points(theta, residuals, longer))))
        return self._derivatives(lambda _: next(values), theta, residuals, longer)

    def _derivatives(
        self,
        evaluate: Callable[[Theta], Array],
        theta: Theta,
        value: Array,
        longer: float,
        together: Callable[[Array], Any] | None = None,
    ) -> Array:
        sizes, self._theta = self._sizes(theta), theta
        if self.scheme == "2-point" and self._retract is None and self.limits is None:
            step = longer * usual_step(self.scheme, self.eps)
            stack = None if together is None else partial(self._stacked.values, together, evaluate)
            return forward(evaluate, theta, [step * size for size in sizes], value, stack)
        return derivatives(
            evaluate, theta, sizes, self.scheme,
            value=value, retract=self._retract, limits=self.limits, eps=self.eps, longer=longer,
        )  # fmt: skip

    def _points(self, theta: Theta, residuals: Array, longer: float) -> list[Theta]:
        """Points where the function is evaluated."""
        points: list[Theta] = []

        def record(point: Theta) -> Array:
            points.append(point)
            return residuals[:1]

        self._derivatives(record, theta, residuals[:1], longer)
        return points

    def _sizes(self, theta: Theta) -> list[float]:
        """Sizes that the steps are relative to."""
        if self._retract is not None:
            return [1.0] * self.dim
        sizes = list(map(abs, theta.tolist()))
        if self._least is None:
            self._least = least_sizes(sizes)
        sizes = list(map(max, sizes, self._least))
        if self._most is not None:
            sizes = list(map(min, sizes, self._most))
        if self._step is None or self.scheme == "cs":
            return sizes
        usual = usual_step(self.scheme, self.eps)
        return [size * given / usual for size, given in zip(sizes, self._step, strict=True)]

    def _shorten(self, evaluate: Callable[[Theta], Array], theta: Array, residuals: Array) -> None:
        """Find the parameters whose usual step is too long for the function, and shorten it.

        Only large parameters are checked, those that have grown much since the start (along a valley, where they
        compensate each other), and those that are not much larger than their steps.
        """
        self._shorten_shrunken(evaluate, theta, residuals)
        sizes, step = self._sizes(theta), usual_step(self.scheme, self.eps)
        assert self._least is not None
        self._limited = True
        large = [a for a, size in enumerate(sizes) if size > min(LARGE, 100.0 * _GROWN * self._least[a])]
        scale = float(np.abs(residuals).max(initial=0.0)) if large else 0.0
        if not (scale > 0.0 and np.isfinite(scale)):
            return
        # Residuals of exact data are only rounding errors, and say nothing about the lengths of steps.
        rounding = np.abs(evaluate(theta * (1.0 + 4.0 * EPS)) - residuals).max(initial=0.0)
        enough = max(LONG * scale, _SEEN * float(rounding))
        self._most = [np.inf] * self.dim if self._most is None else self._most
        for a in large:
            least = _LAST * sizes[a] / step
            for _ in range(_MOST_CUTS):
                moved = theta.copy()
                moved[a] += step * sizes[a]
                change = float(np.abs(evaluate(moved) - residuals).max(initial=0.0))
                if change <= enough or sizes[a] <= least:
                    break
                self._most[a] = sizes[a] = max(max(1e-4, enough / change) * sizes[a], least)

    def _shorten_shrunken(self, evaluate: Callable[[Theta], Array], theta: Array, residuals: Array) -> None:
        """Shorten the steps of parameters that are not much larger than those, if steps of their own size change
        residuals visibly, and not in proportion."""
        step = usual_step(self.scheme, self.eps)
        for a in self._smaller_than_steps(theta):
            size = abs(float(theta[a]))
            long, short = theta.copy(), theta.copy()
            long[a] += step * self._sizes(theta)[a]
            short[a] += step * size
            near = evaluate(short) - residuals
            ahead = (evaluate(long) - residuals) * ((short[a] - theta[a]) / (long[a] - theta[a]))
            short[a] += short[a] - theta[a]
            size_of, small = np.linalg.norm, _SEEN * EPS * np.linalg.norm(residuals)
            # Rounding errors of the function are not twice as large at twice the step.
            real = size_of(near) > small and size_of(evaluate(short) - residuals - 2.0 * near) <= _BENT * size_of(near)
            if real and size_of(near - ahead) > _BENT * size_of(near):
                self._most = [np.inf] * self.dim if self._most is None else self._most
                self._most[a] = size

    def _straighten(self, evaluate: Callable[[Theta], Array], theta: Array, residuals: Array, found: Array) -> bool:
        """Shorten steps along which residuals change much and not in proportion, such as those of a frequency if times
        are in seconds since 1970; return whether any were. ``found`` (d, m) are the derivatives by these steps."""
        if self.limits is not None:
            return False
        sizes, step = self._sizes(theta), usual_step(self.scheme, self.eps)
        # Norms instead of largest entries take a fifth of the time, and show nearly always that no step is too long.
        size = max(sizes) * step
        if size * size * dot(found, found) <= LONG * LONG * dot(residuals, residuals) / len(residuals):
            return False
        scale = np.abs(residuals).max(initial=0.0)
        if not np.isfinite(scale):
            return False
        most, shortened = [np.inf] * self.dim if self._most is None else self._most, False
        for a in np.flatnonzero(np.abs(found).max(axis=1, initial=0.0) * np.array(sizes) * step > LONG * scale):
            size, ahead = sizes[a], found[a] * sizes[a] * step
            for _ in range(_MOST_BENDS):
                if _SHORTER * step * size < _LAST * abs(float(theta[a])):
                    break
                moved = theta.copy()
                moved[a] += _SHORTER * step * size
                near = (evaluate(moved) - residuals) / _SHORTER
                if np.linalg.norm(near - ahead) <= _BENT * np.linalg.norm(near):
                    break
                size, ahead = _SHORTER * size, _SHORTER * near
                most[a], shortened = size, True
        self._most = most if shortened else self._most
        return shortened

    def _sparse(self, evaluate: Callable[[Theta], Array], theta: Array, residuals: Array, longer: float) -> Any:
        """Sparse Jacobian (m, d); the parameters of a group move together, as no residual depends on two of them."""
        from scipy.sparse import csr_array

        steps, central = self._moves(theta, longer)
        groups = self._grouped()
        indptr, columns, rows = self._pattern
        widths = steps if self.scheme == "cs" else (theta + steps) - np.where(central, theta - steps, theta)
        values = np.zeros(len(rows))
        for group in range(int(groups.max(initial=-1)) + 1):
            mine = groups == group
            if self.scheme == "cs":
                change = evaluate(theta + 1j * np.where(mine, steps, 0.0)).imag
            else:
                change = evaluate(theta + np.where(mine, steps, 0.0)) - residuals
                two = mine & central
                if two.any():
                    back = evaluate(theta - np.where(two, steps, 0.0)) - residuals
            entries = np.flatnonzero(mine[columns] & (steps[columns] != 0.0))
            at, by = rows[entries], columns[entries]
            found = change[at]
            if self.scheme != "cs" and two.any():
                found = found - np.where(central[by], back[at], 0.0)
            values[entries] = found / widths[by]
        return csr_array((values, columns, indptr), shape=(len(residuals), self.dim))

    def _moves(self, theta: Array, longer: float) -> tuple[Array, NDArray[np.bool_]]:
        """Steps (d,) of the parameters, zero for fixed ones, and whether each goes to both sides: as by
        `problm.support.differences.derivatives`, all at once."""
        h = longer * usual_step(self.scheme, self.eps) * np.array(self._sizes(theta))
        central = np.full(self.dim, self.scheme == "3-point")
        if self.limits is None or self.scheme == "cs":
            return h, central
        below, above = self.limits[0] - theta, self.limits[1] - theta
        central &= (below <= -h) & (h <= above)
        turned = np.where(below <= -h, -h, np.where(above >= -below, above, below))
        return np.where(central | (h <= above), h, turned), central

    @cached_property
    def _pattern(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Row pointers, columns and rows of the sparsity's entries."""
        pattern = self.sparsity.copy()
        pattern.eliminate_zeros()
        pattern.sum_duplicates()
        return pattern.indptr, pattern.indices, np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))

    def _grouped(self) -> NDArray[np.int64]:
        """Group of each parameter (d,), by first fit: members of a group share no residual."""
        if self._groups is None:
            by_column = self.sparsity.tocsc()
            rows, ends = by_column.indices.tolist(), by_column.indptr.tolist()
            held = [0] * by_column.shape[0]  # groups that move a residual, as bits
            groups = []
            for lo, hi in pairwise(ends):
                used = 0
                for row in rows[lo:hi]:
                    used |= held[row]
                free = ~used & (used + 1)
                for row in rows[lo:hi]:
                    held[row] |= free
                groups.append(free.bit_length() - 1)
            self._groups = np.array(groups)
        return self._groups
