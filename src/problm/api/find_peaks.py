"""Peaks on a background; their number and shape are chosen by the Bayesian information criterion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import models
from ..inference.fit import Fit
from ..models.model import Model
from .arguments import numbers
from .fit import fit

Array = NDArray[np.float64]
_POINTS = 1_000
"""Number of positions at which a new peak is tried."""
_COSTLY = "exponential"
"""Background that is tried with the first shape only, unless it is one of the best two there."""
_ROUNDS = 4
"""Number of times that pieces in peaks are left out."""
_PIECES = 30
"""Most pieces of the data for the start of a background."""
_PEAKS = ("gaussian", "lorentzian", "pseudo_voigt")
_BACKGROUNDS = ("constant_background", "line", "quadratic", "exponential")


def find_peaks_model(
    x: Any,
    y: Any,
    *,
    peak: str | Sequence[str] = _PEAKS,
    background: str | Sequence[str] = _BACKGROUNDS,
    max_peaks: int = 12,
    sigma: Any = None,
    absolute_sigma: bool = False,
    **options: Any,
) -> Fit:
    """Fit peaks on a background; their number and shape and the background are chosen from the data.

    Peaks are added one after the other where they explain most of the residuals, and all parameters are fitted again,
    until two more peaks do not lower the Bayesian information criterion. The shape and the background with the lowest
    criterion are chosen; each shape is tried with at most as many peaks as the ones before it needed, and exponential
    backgrounds only where they look likely. Heights are positive, centres lie within the data, and widths lie between
    the spacing of the points and half their range.

    Parameters
    ----------
    x, y : (N,) array_like
    peak : str or sequence of str
        Peaks of `problm.models` to choose from, with the parameters amplitude (or area), center and one or more of
        sigma, gamma, ...; all peaks have the same shape.
    background : str or sequence of str
        Names of models of `problm.models` to choose from.
    max_peaks : int
    sigma, absolute_sigma, **options
        As for `problm.fit`.

    Returns
    -------
    `Fit`
        The fit of the sum of the peaks, in ascending order of their centers, and the background (``fit.model.terms``).
        The model can be edited and fitted again: ``problm.fit(fit.model + problm.models.gaussian(), x, y)``.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 100, 1000)
    >>> y = 5 * np.exp(-0.5 * ((x - 30) / 2) ** 2) + 2 * np.exp(-0.5 * ((x - 37) / 3) ** 2) + 0.02 * x + 1
    >>> fit = problm.find_peaks_model(x, y + 0.1 * rng.standard_normal(x.size))
    >>> [term.kind for term in fit.model.terms]
    ['gaussian', 'gaussian', 'line']
    >>> print(fit.params["center_1"], "and", fit.params["center_2"])
    center_1 = 29.995 ± 0.016 and center_2 = 36.958 ± 0.053
    """
    x, y = numbers("x", x), numbers("y", y)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 10:
        raise ValueError(f"x and y must have the same length, at least 10; got {x.shape} and {y.shape}")
    shapes = (peak,) if isinstance(peak, str) else tuple(peak)
    names = (background,) if isinstance(background, str) else tuple(background)
    kept = {"sigma": sigma, "absolute_sigma": absolute_sigma, **options}
    found: list[tuple[Fit, Model]] = []
    for shape in (getattr(models, name)() for name in shapes):
        # A wrong shape needs more peaks than the right one, so the next shapes need no more than the best so far.
        most = min([max_peaks, *(max(1, len(f.model.terms) - 1) for f, _ in found)])
        grown = [(_grown(shape, getattr(models, name)(), x, y, most, kept), name) for name in names]
        grown.sort(key=lambda pair: pair[0].bic)
        found.append((grown[0][0], shape))
        if _COSTLY not in [name for _, name in grown[:2]]:
            names = tuple(name for name in names if name != _COSTLY)
    best, shape = min(found, key=lambda pair: pair[0].bic)
    return _ascending(best, shape, x, y, kept)


def _grown(peak: Model, background: Model, x: Array, y: Array, most: int, options: dict[str, Any]) -> Fit:
    """The best of the fits with 0, 1, 2, ... peaks on a background."""
    best = last = fit(background, x, y, **options)
    floor = _floor(background, x, y)  # peaks would lift and bend a background that is fitted without them
    model, theta, since = background, floor, 0
    rest = (y - background(x, *floor)) / last.deviations
    width = len(peak.parameters)
    for count in range(1, most + 1):
        model = peak + model
        added = _next_peak(peak, x, rest)
        last = fit(model, x, y, p0=np.concatenate([added, theta]), bounds=_bounds(peak, x, count, model), **options)
        theta = np.concatenate([last.values[: -len(floor)], floor])
        rest = last.residuals / last.deviations
        if last.bic < best.bic and np.isfinite(last.errors[:width]).all():
            best, since = last, 0
        else:
            since += 1
        if since == 2:
            break
    return best


def _floor(background: Model, x: Array, y: Array) -> Array:
    """Parameters of the background below the peaks.

    It is guessed from the lower quartiles of pieces of the data, again without those that lie far above it.
    """
    pieces = np.array_split(np.argsort(x, kind="stable"), max(5, min(_PIECES, len(x) // 5)))
    at, low = np.array([[x[p].mean(), np.quantile(y[p], 0.25)] for p in pieces]).T
    theta = background.guess(at, low)
    for _ in range(_ROUNDS):
        above = low - background(at, *theta)
        kept = above <= 2.0 * np.median(np.abs(above))
        if kept.sum() > 2 * len(theta):
            theta = background.guess(at[kept], low[kept])
    return np.asarray(theta)


def _next_peak(peak: Model, x: Array, residuals: Array) -> Array:
    """The peak that explains most of the residuals: height, center and widths."""
    order = np.argsort(x)
    step = -(-len(x) // _POINTS)
    cut = len(x) // step * step
    at = x[order][:cut].reshape(-1, step).mean(axis=1)
    rest = residuals[order][:cut].reshape(-1, step).mean(axis=1)
    span = float(at[-1] - at[0])
    best, found = -np.inf, np.ones(len(peak.parameters))
    for size in span / np.array([400.0, 200.0, 100.0, 50.0, 25.0, 12.0, 6.0]):
        if size < 0.7 * span / len(at):
            continue
        # A peak of unit height or area around every point.
        others = [_first(name, size) for name in peak.parameters[2:]]
        profile = np.asarray(peak(np.subtract.outer(at, at).ravel(), 1.0, 0.0, *others)).reshape(len(at), -1)
        overlap, power = profile.T @ rest, np.sum(profile * profile, axis=0)
        gain = np.where(overlap > 0.0, overlap, 0.0) ** 2 / power
        k = int(np.argmax(gain))
        if gain[k] > best:
            best, found = float(gain[k]), np.array([max(overlap[k], 1e-12) / power[k], at[k], *others])
    return found


def _first(name: str, size: float) -> float:
    """Start of a further parameter of a peak: ``size`` for a width, a pure number for others."""
    return size if name.startswith(("sigma", "gamma")) else 0.5 if name in ("fraction", "asymmetry") else 1.5


def _bounds(peak: Model, x: Array, count: int, model: Model) -> tuple[Array, Array]:
    lower, upper = np.full(len(model.parameters), -np.inf), np.full(len(model.parameters), np.inf)
    span = float(np.ptp(x))
    for k in range(count):
        for i, name in enumerate(peak.parameters):
            place = k * len(peak.parameters) + i
            if i == 0:
                lower[place] = 0.0
            elif i == 1:
                lower[place], upper[place] = x.min(), x.max()
            elif name.startswith(("sigma", "gamma")):
                lower[place], upper[place] = 0.3 * span / len(x), 0.5 * span
            elif name == "fraction":
                lower[place], upper[place] = 0.0, 1.0
    return lower, upper


def _ascending(found: Fit, peak: Model, x: Array, y: Array, options: dict[str, Any]) -> Fit:
    """The same fit with its peaks in the order of their centers."""
    width = len(peak.parameters)
    count = len(found.model.terms) - 1 if found.model.terms else 0
    if count < 2:
        return found
    peaks = found.values[: count * width].reshape(count, width)
    theta = np.concatenate([peaks[np.argsort(peaks[:, 1])].ravel(), found.values[count * width :]])
    return fit(found.model, x, y, p0=theta, bounds=_bounds(peak, x, count, found.model), **options)
