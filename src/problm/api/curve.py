"""The points of a curve: xdata, ydata and sigma as SciPy's `curve_fit` takes them, and their residuals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.array_kinds import refuse_units
from . import arguments as inputs

Array = NDArray[np.float64]
Columns = tuple[NDArray[Any], ...]


@dataclass
class Points:
    """N points: the argument of f, the measured values and their standard deviations."""

    x: Any
    """In the form that f receives."""
    y: NDArray[Any]
    sigma: Array | None
    """(N,) or (N, N)."""
    axis: int | None
    """Axis of x that runs over points; None if x cannot be sliced."""

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def sliceable(self) -> bool:
        return self.axis is not None and (self.sigma is None or self.sigma.ndim == 1)

    @property
    def _x(self) -> NDArray[Any]:
        """x as an array."""
        return self.x if type(self.x) is np.ndarray else inputs.column("xdata", self.x)

    @property
    def columns(self) -> Columns:
        """x, y[, sigma] with one row per point; only y if x cannot be sliced."""
        if self.axis is None:
            return (self.y,)
        x = self._x
        errors = () if self.sigma is None or self.sigma.ndim == 2 else (self.sigma,)
        return (x.T if self.axis == 1 else x, self.y, *errors)

    def check(self, nan_policy: str | None, check_finite: bool | None) -> None:
        """Raise for values that are not finite, or leave out points with a NaN."""
        if nan_policy == "omit":
            self._omit()
        elif check_finite or (check_finite is None and self.n <= inputs.CHECK_UP_TO):
            inputs.finite(zip(("xdata", "ydata", "sigma"), self._named(), strict=False))
        elif nan_policy == "raise":
            arrays = [a for a in self._named() if a.dtype.kind in "fc"]
            if any(np.isnan(a).any() for a in arrays):
                raise ValueError("The input contains nan values: remove such points, or pass nan_policy='omit'")

    def _named(self) -> list[NDArray[Any]]:
        x = self._x if _is_array(self.x) else np.zeros(self.n)
        rows = np.moveaxis(x, -1, 0) if self.axis is None and x.ndim > 1 else (x.T if self.axis == 1 else x)
        return [rows, self.y] if self.sigma is None else [rows, self.y, self.sigma]

    def _omit(self) -> None:
        """Leave out the points with a NaN in x or y; x may have its points along the last of any number of axes."""
        bad = np.isnan(self.y) if self.y.dtype.kind in "fc" else np.zeros(self.n, dtype=bool)
        if _is_array(self.x):
            x = self._x
            last = x if self.axis == 0 else np.moveaxis(x, -1, 0)
            if len(last) != self.n:
                raise ValueError(f"nan_policy='omit' needs xdata with {self.n} points, got shape {x.shape}")
            if x.dtype.kind in "fc":
                bad = bad | np.isnan(last.reshape(self.n, -1)).any(axis=1)
            if bad.any():
                frame = hasattr(self.x, "columns")
                self.x = self.x[~bad] if frame else (x[~bad] if self.axis == 0 else x[..., ~bad])
        if bad.all():
            raise ValueError("nan_policy='omit': every point has a NaN, so there is nothing to fit")
        if self.sigma is not None and bad.any():
            self.sigma = self.sigma[~bad] if self.sigma.ndim == 1 else self.sigma[~bad][:, ~bad]
        self.y = self.y[~bad]


def points_of(xdata: Any, ydata: Any, sigma: Any, *, convert: bool) -> Points:
    """Make points from SciPy's arguments; ``convert`` turns integers into floats, as SciPy does for functions."""
    y = inputs.column("ydata", np.atleast_1d(ydata) if np.ndim(ydata) == 0 else ydata)
    if y.dtype.kind == "c":
        raise ValueError(
            "ydata is complex: problm.fit takes a complex function; or fit real and imaginary parts as two residuals"
        )
    if y.ndim != 1:
        y = y.ravel()
    if not y.size:
        raise ValueError("ydata is empty: there is nothing to fit")
    axis = None
    if _is_array(xdata):
        x = inputs.column("xdata", xdata)
        if not x.size:
            raise ValueError("xdata is empty: there is nothing to fit")
        if x.ndim == 1 and len(x) == len(y):
            axis = 0
        elif x.ndim == 2 and len(y) in x.shape:
            axis = 0 if x.shape[1] != len(y) or (hasattr(xdata, "columns") and x.shape[0] == len(y)) else 1
        elif not convert and x.ndim <= 2:
            n = len(y)
            raise ValueError(f"xdata has shape {x.shape} but ydata has {n} points: expected ({n},) or (k, {n})")
        if not convert and x.dtype.kind == "c":
            raise ValueError("xdata is complex, but a formula takes real numbers: pass a function")
        if convert and x.dtype.kind in "iu":
            x = x.astype(np.float64)
        xdata = xdata if hasattr(xdata, "columns") else x
    else:
        refuse_units("xdata", xdata)
    return Points(xdata, y, sigmas(sigma, len(y)), axis)


def _is_array(xdata: Any) -> bool:
    return isinstance(xdata, (list, tuple, np.ndarray)) or hasattr(xdata, "to_numpy")


def shape_of(xdata: Any, points: Points) -> str | Frame:
    """How some of the points are passed to f: in the form in which the user gave all of them."""
    names = getattr(xdata, "columns", None)
    if names is not None and points.axis == 0 and np.ndim(xdata) == 2:
        return Frame(type(xdata), tuple(names))
    return "columns" if points.axis == 1 else "rows"


@dataclass(frozen=True)
class Frame:
    """Rows of a pandas or polars data frame."""

    kind: Any
    names: tuple[Any, ...]

    def of(self, x: NDArray[Any]) -> Any:
        return self.kind({name: x[:, i] for i, name in enumerate(self.names)})


@dataclass(frozen=True)
class Curve:
    """Residuals ``(f(x) - y) / sigma`` of the columns x..., y[, sigma]."""

    f: Callable[..., Any]
    jac: Any
    shape: str | Frame
    """``"rows"``: x unchanged; ``"columns"``: SciPy's (k, N), kept as (N, k) so that rows can be sliced; ``"stacked"``:
    several columns; or a data frame."""
    weighted: bool

    def residuals(self, theta: Any, *columns: Any) -> Any:
        y = columns[-2 if self.weighted else -1]
        values = self.f(self._abscissae(columns), *theta)
        r = values - y
        # (k, 1) minus (k,) is (k, k). At many points (`problm.problems.stacked`) there is a row for each.
        if r.shape != y.shape and not (np.ndim(theta) == 3 and r.shape == (len(theta), *y.shape)):
            raise ValueError(f"f returned shape {np.shape(values)} for {len(y)} points, expected ({len(y)},)")
        return r / columns[-1] if self.weighted else r

    def jacobian(self, theta: Any, *columns: Any) -> Any:
        j = np.asarray(self.jac(self._abscissae(columns), *theta))
        return j / columns[-1][:, None] if self.weighted else j

    def _abscissae(self, columns: Any) -> Any:
        x = columns[0]
        if self.shape == "rows":
            return x
        if self.shape == "columns":
            return x.T
        if self.shape == "stacked":
            return np.stack(columns[: -2 if self.weighted else -1])
        assert isinstance(self.shape, Frame)
        return self.shape.of(x)


class WholeCurve:
    """Residuals of all points at once, for x that cannot be sliced or correlated errors."""

    def __init__(self, f: Callable[..., Any], jac: Any, points: Points) -> None:
        self.f, self.jac, self.points = f, jac, points
        self.factor: Array | None = None
        if points.sigma is not None and points.sigma.ndim == 2:
            try:
                self.factor = np.asarray(np.linalg.cholesky(points.sigma), dtype=np.float64)
            except np.linalg.LinAlgError as error:
                raise ValueError("sigma must be a positive definite covariance matrix") from error

    def residuals(self, theta: Any) -> Any:
        values = np.asarray(self.f(self.points.x, *theta))
        if values.shape not in ((), self.points.y.shape) and len(self.points.y) != 1:
            given = f"; xdata has shape {np.shape(self.points.x)}" if _is_array(self.points.x) else ""
            raise ValueError(f"f returned shape {values.shape} but ydata has {self.points.n} points{given}")
        return self._whitened(values - self.points.y)

    def jacobian(self, theta: Any) -> Any:
        return self._whitened(np.asarray(self.jac(self.points.x, *theta)))

    def _whitened(self, r: Any) -> Any:
        if self.factor is not None:
            from scipy.linalg import solve_triangular

            return solve_triangular(self.factor, r, lower=True)
        sigma = self.points.sigma
        return r if sigma is None else (r.T / sigma).T


def sigmas(sigma: Any, n: int) -> Array | None:
    """Standard deviations (n,), or a covariance matrix (n, n)."""
    if sigma is None:
        return None
    s = inputs.numbers("sigma", sigma)
    if s.size == 1:
        s = np.full(n, float(s.item()))
    if s.shape not in ((n,), (n, n)):
        raise ValueError(f"sigma has shape {s.shape}, expected ({n},) or ({n}, {n})")
    if s.ndim == 1 and not (s > 0).all():
        row = int(np.argmin(np.where(np.isnan(s), -np.inf, s)))
        raise ValueError(f"sigma must be positive, but sigma[{row}] is {s[row]}")
    return s


def standard_deviations(ydata: Any, sigma: Any, absolute: bool) -> tuple[Any, Any, bool]:
    """Return ydata, sigma and absolute_sigma; numbers in ydata may carry their own standard deviations."""
    if sigma is not None or (type(ydata) is np.ndarray and ydata.dtype.kind in "fiu"):
        return ydata, sigma, absolute
    if not isinstance(ydata, (list, tuple, np.ndarray)) or not len(np.atleast_1d(ydata)):
        return ydata, sigma, absolute
    first = ydata[0] if np.ndim(ydata) else ydata
    if not (hasattr(first, "nominal_value") and hasattr(first, "std_dev")):
        return ydata, sigma, absolute
    values = np.array([v.nominal_value for v in ydata], dtype=np.float64)
    return values, np.array([v.std_dev for v in ydata], dtype=np.float64), True
