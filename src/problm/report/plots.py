"""Plots of a result (needs Matplotlib, the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.files import write_with
from ..support.printable import printable
from .shown import ShownResult

Array = NDArray[np.float64]
_MOST_POINTS = 20_000
"""Number of points above which they overlap, and a density is clearer."""
_MOST_COUNTED = 1_000_000
"""Number of rows for a density: enough for 24,000 cells."""


def empty_figure(**options: Any) -> Any:
    """A Matplotlib figure without axes, which belongs to no window and which notebooks show without any setting."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need Matplotlib: pip install 'problm[plot]'") from error

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            from .page import figure_png

            return figure_png(self)

    figure: Any = Picture(layout="constrained", **options)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # inches; by default labels touch the titles below
    return figure


def new_figure(rows: int = 1, columns: int = 1, axes: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    """A figure as in `empty_figure`, and its axes (``axes``: options of `Figure.subplots`)."""
    figure = empty_figure(**options)
    return figure, figure.subplots(rows, columns, **(axes or {}))


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure atomically: a reader never sees an incomplete file."""
    write_with(path, lambda file: figure.savefig(file, dpi=120, format=path.suffix[1:] or None))


def plot_result(result: ShownResult) -> Any:
    """Cost, batch size, residual histogram and correlations; returns a Matplotlib figure."""
    figure, axes = new_figure(2, 2, figsize=(9, 6.5))
    history = result.history
    # The first thousand rows take microseconds and the last pass most of the time: only a logarithmic axis shows both.
    when, label = course(history.seconds)
    ax = axes[0, 0]
    ax.plot(when, history.cost, ".-")
    ax.set(
        xlabel=label,
        ylabel="cost (estimated from the batch)",
        title=f"cost (ended: {result.status.name.lower()})",
    )
    if len(history):
        _time_axis(ax, when, label)
        if min(history.cost) > 0 and max(history.cost) > 10.0 * min(history.cost):  # else linear
            ax.set_yscale("log")
    ax = axes[0, 1]
    ax.step(when, history.batch_size, ".-", where="post", color="C1")
    ax.axhline(result.n, color="0.7", lw=1)
    ax.set(xlabel=label, ylabel="residual blocks in the batch", title="batch size")
    if len(history):
        _time_axis(ax, when, label)
        _log_axis(ax, "y", np.append(history.batch_size, result.n), "{x:,.0f}")
        if ax.get_yscale() == "linear":
            ax.set_ylim(0.0, 1.1 * result.n)
    residual_histogram(axes[1, 0], result)
    correlation_picture(axes[1, 1], result)
    return figure


def course(seconds: Sequence[float]) -> tuple[Array, str]:
    """Where iterations are drawn, with the label: in time, or by number if compiled steps ended at one moment."""
    milliseconds = np.maximum(1e3 * np.asarray(seconds, dtype=np.float64), 1e-3)
    if len(np.unique(milliseconds)) < min(3, len(milliseconds)):
        return np.arange(1.0, len(milliseconds) + 1.0), "iteration"
    return milliseconds, "time [ms]"


def _time_axis(ax: Any, when: Array, label: str) -> None:
    if label == "iteration":
        ax.xaxis.get_major_locator().set_params(integer=True)
    else:
        _log_axis(ax, "x", when)


def _log_axis(ax: Any, which: str, values: Array, form: str = "{x:g}") -> None:
    """Use a logarithmic axis with few plain numbers, or a linear one if all values are of similar size."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = float(np.min(values)), float(np.max(values))
    axis = getattr(ax, f"{which}axis")
    axis.set_major_formatter(form)
    if low <= 0.0 or high < 5.0 * low:
        return
    ax.set(**{f"{which}scale": "log"})
    # Below two decades show 1, 2, 5; above only powers of ten.
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)))
    axis.set_major_formatter(form)
    axis.set_minor_formatter(NullFormatter())


def plot_curve(
    x: Array, y: Array, model: Callable[[Array], Array], ax: Any = None, labels: tuple[str, str] = ("x", "y")
) -> Any:
    """Plot data and fitted curve, as points if they can be distinguished, else as a density; return the figure.

    Parameters
    ----------
    x, y : (N,) the data.
    model : ``x -> y`` of the fit.
    ax : Matplotlib axes to draw into; by default a new figure.
    labels : labels of the axes.
    """
    figure, ax = _target(ax, (8, 4.5))
    x, y = np.asarray(x, dtype=np.float64).ravel(), np.asarray(y, dtype=np.float64).ravel()
    _cloud(ax, x, y)
    grid = np.linspace(x.min(), x.max(), 800)
    ax.plot(grid, model(grid), "C3", lw=1.8, label="fit")
    ax.set(xlabel=plain_label(labels[0]), ylabel=plain_label(labels[1]))
    ax.legend(loc="best", title=f"{len(x):,} points")
    return figure


def plot_fit(
    x: Array,
    y: Array,
    residuals: Array,
    band: Callable[[Array], tuple[Array, Array, Array]],
    *,
    sigma: Any = None,
    terms: Sequence[tuple[str, Callable[[Array], Array]]] = (),
    labels: tuple[str, str] = ("x", "y"),
    level: float = 0.95,
) -> Any:
    """Plot data, curve and confidence band, with the residuals below; return the figure.

    Parameters
    ----------
    x, y : (N,) the data.
    residuals : (N,) residuals of the fit.
    band : ``x -> (value, lower, upper)``.
    sigma : standard deviations of y, drawn if points can be distinguished.
    terms : names and curves of the terms of a sum, drawn one by one.
    labels : labels of the axes.
    level : level of the band, for the legend.
    """
    shape = {"sharex": True, "height_ratios": (3, 1)}
    figure, (upper, lower) = new_figure(2, 1, axes=shape, figsize=(8, 6))
    if sigma is not None and np.ndim(sigma) < 2 and len(x) <= 1000:
        bars = np.broadcast_to(np.asarray(sigma, dtype=np.float64), x.shape)
        upper.errorbar(x, y, bars, fmt="none", ecolor="C0", alpha=0.4, lw=1)
    log = log_axes(x, y, residuals)
    residuals, scaled = in_deviations(residuals, sigma)
    _cloud(upper, x, y, log)
    grid = curve_grid(x, log[0])
    value, low, high = band(grid)
    for k, (name, curve) in enumerate(terms):
        upper.plot(grid, curve(grid), f"C{(k % 6) + 4}", lw=1.0, ls="--", label=plain_label(name) if k < 8 else None)
    upper.fill_between(grid, low, high, color="C3", alpha=0.25, lw=0, label=f"{100 * level:g} % confidence")
    upper.plot(grid, value, "C3", lw=1.8, label="fit")
    upper.set(ylabel=plain_label(labels[1]))
    if log[1]:
        upper.set_yscale("log")
        upper.set_ylim(0.7 * float(y[y > 0].min()), 1.4 * float(y.max()))
    upper.legend(loc="best", title=f"{len(x):,} points", fontsize="small")
    _cloud(lower, x, residuals, (log[0], False))
    lower.axhline(0.0, color="C3", lw=1.2)
    lower.set(xlabel=plain_label(labels[0]), ylabel=scaled)
    if log[0]:
        lower.set_xscale("log")
    return figure


def in_deviations(residuals: Array, sigma: Any) -> tuple[Array, str]:
    """Residuals and their label: in units of sigma if these are given."""
    if sigma is None or np.ndim(sigma) > 1:
        return residuals, "residual"
    return residuals / np.asarray(sigma, dtype=np.float64), "residual / sigma"


def log_axes(x: Array, y: Array, residuals: Array | None = None) -> tuple[bool, bool]:
    """Whether the axes should be logarithmic: values are positive and spread evenly over decades, not over numbers.

    The fit must also describe the small values of y, or a logarithmic axis would show little but its failure there.
    """
    tall = residuals is not None and _spread_over_decades(y, 1e3)
    if tall and residuals is not None:
        small = y <= np.quantile(y, 0.25)
        tall = float(np.median(np.abs(residuals[small]) / y[small])) < 0.7
    return _spread_over_decades(x, 20.0), tall


def _spread_over_decades(values: Array, least: float) -> bool:
    some = np.asarray(values, dtype=np.float64)[:: max(1, len(values) // 10_000)]
    if len(some) < 4 or not (some > 0.0).all() or some.max() < least * some.min():
        return False
    middle, low, high = float(np.median(some)), float(some.min()), float(some.max())
    if high < 100.0 * low:
        ordered = np.unique(some)
        steps = np.diff(np.log(ordered))  # equal ratios, as of doses
        return len(steps) > 2 and bool(steps.max() < 1.5 * steps.min())
    return (middle - low) / (high - low) < 0.1 and 0.2 < float(np.log(middle / low) / np.log(high / low)) < 0.8


def curve_grid(x: Array, log: bool = False, points: int = 800) -> Array:
    """(points,) positions at which a curve through the data is drawn."""
    low, high = float(np.min(x)), float(np.max(x))
    return np.geomspace(low, high, points) if log else np.linspace(low, high, points)


def plot_plane(x: Array, y: Array, model: Array, labels: tuple[str, str, str]) -> Any:
    """Plot data over a plane, the fitted model and the residuals as three images; return the figure.

    Parameters
    ----------
    x : (2, N) positions; regular grids become images, other points are counted in cells.
    y, model : (N,) data and fitted values.
    labels : names of the two variables and of y.
    """
    figure, axes = new_figure(1, 3, axes={"sharex": True, "sharey": True}, figsize=(12, 4.2))
    low, high = np.quantile(y, [0.001, 0.999])
    reach = float(np.quantile(np.abs(y - model), 0.998)) or 1.0
    kinds = [
        (y, plain_label(labels[2]), {"vmin": low, "vmax": high, "cmap": "viridis"}),
        (model, "fit", {"vmin": low, "vmax": high, "cmap": "viridis"}),
        (y - model, "residual", {"vmin": -reach, "vmax": reach, "cmap": "RdBu_r"}),
    ]
    for ax, (values, title, options) in zip(axes, kinds, strict=True):
        edges, cells = _cells(x, values)
        shown = ax.pcolormesh(*edges, cells, rasterized=True, **options)
        figure.colorbar(shown, ax=ax, shrink=0.85)
        ax.set(title=title, xlabel=plain_label(labels[0]))
    axes[0].set_ylabel(plain_label(labels[1]))
    if 1 / 4 < np.ptp(x[0]) / max(float(np.ptp(x[1])), 1e-300) < 4:
        for ax in axes:
            ax.set_aspect("equal")
        axes[0].invert_yaxis()  # rows of an image count downwards
    return figure


def _cells(x: Array, values: Array, most: int = 200) -> tuple[tuple[Array, Array], Array]:
    """Edges of the cells of a plane, and the mean of the values in each; NaN where there are none."""
    edges = []
    for row in x:
        found = np.unique(row)
        if len(found) <= most and len(found) > 1 and np.ptp(np.diff(found)) < 1e-6 * np.ptp(found):
            step = found[1] - found[0]
            edges.append(np.append(found, found[-1] + step) - 0.5 * step)
        else:
            edges.append(np.linspace(row.min(), row.max() + 1e-12 * (np.ptp(row) or 1.0), min(most, 60) + 1))
    counts, _, _ = np.histogram2d(x[0], x[1], bins=edges)
    sums, _, _ = np.histogram2d(x[0], x[1], bins=edges, weights=values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (edges[0], edges[1]), (sums / counts).T


def plot_prediction(y: Array, predicted: Array, ax: Any = None, label: str = "y") -> Any:
    """Plot observed against predicted values, for models of several variables; return the figure."""
    figure, ax = _target(ax, (6, 5.5))
    y, predicted = np.asarray(y, dtype=np.float64).ravel(), np.asarray(predicted, dtype=np.float64).ravel()
    _cloud(ax, predicted, y)
    ends = np.quantile(predicted, [0.0, 1.0])
    ax.plot(ends, ends, "C3", lw=1.5, label="perfect fit")
    ax.set(xlabel=f"{plain_label(label)}, predicted", ylabel=f"{plain_label(label)}, observed")
    ax.legend(loc="best")
    return figure


def _target(ax: Any, size: tuple[float, float]) -> tuple[Any, Any]:
    """The figure and axes to draw into: those of ``ax``, or a new figure of this size in inches."""
    return new_figure(figsize=size) if ax is None else (ax.figure, ax)


def plain_label(label: str) -> str:
    """A label as Matplotlib shows it letter by letter: not as mathematics, and without control characters."""
    return printable(label).replace("$", r"\$")


def _cloud(ax: Any, x: Array, y: Array, log: tuple[bool, bool] = (False, False)) -> None:
    """Draw points if they can be distinguished, else their density on a logarithmic scale."""
    if len(x) <= _MOST_POINTS:
        # Thousands of points overlap; drawn fainter, they show their density.
        alpha = float(np.clip(4000 / max(len(x), 1), 0.3, 0.7))
        (dots,) = ax.plot(x, y, ".", ms=5 if len(x) < 1000 else 3, mew=0, color="C0", alpha=alpha)
        ax.plot([], [], "o", ms=dots.get_markersize() + 1, mew=0, color="C0", label="data")
        return
    step = -(-len(x) // _MOST_COUNTED)
    some_x, some_y = x[::step], y[::step]
    low, high = np.quantile(some_y, [0.0005, 0.9995])
    margin = 0.1 * (high - low) or 1.0
    left, right = float(x.min()), float(x.max())
    right = right if right > left else left + 1.0
    across = np.geomspace(left, right, 201) if log[0] else np.linspace(left, right, 201)
    up = np.geomspace(low, high, 121) if log[1] and low < high else np.linspace(low - margin, high + margin, 121)
    counts, xe, ye = np.histogram2d(some_x, some_y, bins=(across, up))
    ax.pcolormesh(xe, ye, np.log1p(counts.T), cmap="Blues", rasterized=True)


def residual_histogram(ax: Any, result: ShownResult, most: int = 200_000) -> None:
    """Histogram of the residuals of (at most) a large sample of the rows."""
    try:
        values = np.asarray(result.fun).ravel()
    except RuntimeError:  # loaded from a file, or a problem without residuals
        ax.set_axis_off()
        return
    if len(values) > most:
        values = values[:: -(-len(values) // most)]
    low, high = np.quantile(values, [0.001, 0.999])
    ax.hist(values, bins=min(80, 5 + int(np.sqrt(len(values)))), range=(low, high) if high > low else None, color="C2")
    ax.locator_params(axis="x", nbins=6)
    ax.set(xlabel="residual", ylabel="count", title="residuals (99.8 %)")


def correlation_picture(ax: Any, result: ShownResult) -> None:
    """Correlation matrix of the parameters."""
    covariance = result.covariance
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / np.outer(error, error)
    image = ax.imshow(correlation, vmin=-1, vmax=1, cmap="RdBu_r")
    names = result.names or [f"x{i}" for i in range(len(error))]
    if len(names) <= 12:
        ax.set_xticks(range(len(names)), names, rotation=0 if max(map(len, names)) < 4 else 45)
        ax.set_yticks(range(len(names)), names)
    if len(names) <= 6:
        for i, j in np.ndindex(correlation.shape):
            dark = abs(correlation[i, j]) > 0.6
            ax.text(j, i, f"{correlation[i, j]:.2f}", ha="center", va="center", color="white" if dark else "black")
    ax.set_title("correlation of parameters")
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
