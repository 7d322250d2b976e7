"""Plots of a result (needs Matplotlib, the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .shown import ShownResult

Array = NDArray[np.float64]
_MOST_POINTS = 20_000
"""Number of points above which they overlap, and a density is clearer."""
_MOST_COUNTED = 1_000_000
"""Number of rows for a density: enough for 24,000 cells."""


def new_figure(rows: int = 1, columns: int = 1, axes: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
    """A Matplotlib figure that belongs to no window, and its axes (``axes``: options of `Figure.subplots`)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need Matplotlib: pip install 'problm[plot]'") from error

    class Picture(Figure):
        """A figure that notebooks show without any setting."""

        def _repr_png_(self) -> bytes:
            from .page import figure_png

            return figure_png(self)

    figure = Picture(layout="constrained", **options)
    return figure, figure.subplots(rows, columns, **(axes or {}))


def plot_result(result: ShownResult) -> Any:
    """Cost, batch size, residual histogram and correlations; returns a Matplotlib figure."""
    figure, axes = new_figure(2, 2, figsize=(9, 6.5))
    history = result.history
    # The first thousand rows take microseconds and the last pass most of the time: only a logarithmic axis shows both.
    milliseconds = np.maximum(1e3 * np.asarray(history.seconds), 1e-3)
    ax = axes[0, 0]
    ax.plot(milliseconds, history.cost, ".-")
    ax.set(
        xlabel="time [ms]",
        ylabel="cost (estimated from the batch)",
        title=f"cost (ended: {result.status.name.lower()})",
    )
    if len(history):
        _log_axis(ax, "x", milliseconds)
        if min(history.cost) > 0 and max(history.cost) > 10.0 * min(history.cost):  # else linear
            ax.set_yscale("log")
    ax = axes[0, 1]
    ax.step(milliseconds, history.batch_size, where="post", color="C1")
    ax.axhline(result.n, color="0.7", lw=1)
    ax.set(xlabel="time [ms]", ylabel="residual blocks in the batch", title="batch size")
    if len(history):
        _log_axis(ax, "x", milliseconds)
        _log_axis(ax, "y", np.append(history.batch_size, result.n), "{x:,.0f}")
        if ax.get_yscale() == "linear":
            ax.set_ylim(0.0, 1.1 * result.n)
    residual_histogram(axes[1, 0], result)
    correlation_picture(axes[1, 1], result)
    return figure


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
    ax.set(xlabel=_text(labels[0]), ylabel=_text(labels[1]))
    ax.legend(loc="best", title=f"{len(x):,} points")
    return figure


def plot_fit(
    x: Array,
    y: Array,
    residuals: Array,
    band: Callable[[Array], tuple[Array, Array, Array]],
    *,
    sigma: Any = None,
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
    labels : labels of the axes.
    level : level of the band, for the legend.
    """
    shape = {"sharex": True, "height_ratios": (3, 1)}
    figure, (upper, lower) = new_figure(2, 1, axes=shape, figsize=(8, 6))
    if sigma is not None and np.ndim(sigma) < 2 and len(x) <= 1000:
        bars = np.broadcast_to(np.asarray(sigma, dtype=np.float64), x.shape)
        for ax, values in ((upper, y), (lower, residuals)):
            ax.errorbar(x, values, bars, fmt="none", ecolor="C0", alpha=0.4, lw=1)
    _cloud(upper, x, y)
    grid = np.linspace(x.min(), x.max(), 800)
    value, low, high = band(grid)
    upper.fill_between(grid, low, high, color="C3", alpha=0.25, lw=0, label=f"{100 * level:g} % confidence")
    upper.plot(grid, value, "C3", lw=1.8, label="fit")
    upper.set(ylabel=_text(labels[1]))
    upper.legend(loc="best", title=f"{len(x):,} points")
    _cloud(lower, x, residuals)
    lower.axhline(0.0, color="C3", lw=1.2)
    lower.set(xlabel=_text(labels[0]), ylabel="residual")
    return figure


def plot_prediction(y: Array, predicted: Array, ax: Any = None, label: str = "y") -> Any:
    """Plot observed against predicted values, for models of several variables; return the figure."""
    figure, ax = _target(ax, (6, 5.5))
    y, predicted = np.asarray(y, dtype=np.float64).ravel(), np.asarray(predicted, dtype=np.float64).ravel()
    _cloud(ax, predicted, y)
    ends = np.quantile(predicted, [0.0, 1.0])
    ax.plot(ends, ends, "C3", lw=1.5, label="perfect fit")
    ax.set(xlabel=f"{_text(label)}, predicted", ylabel=f"{_text(label)}, observed")
    ax.legend(loc="best")
    return figure


def _target(ax: Any, size: tuple[float, float]) -> tuple[Any, Any]:
    """The figure and axes to draw into: those of ``ax``, or a new figure of this size in inches."""
    return new_figure(figsize=size) if ax is None else (ax.figure, ax)


def _text(label: str) -> str:
    """Escape a label so that Matplotlib does not read it as mathematics."""
    return label.replace("$", r"\$")


def _cloud(ax: Any, x: Array, y: Array) -> None:
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
    counts, xe, ye = np.histogram2d(
        some_x,
        some_y,
        bins=(200, 120),
        range=[[left, right if right > left else left + 1.0], [low - margin, high + margin]],
    )
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
        ax.set_xticks(range(len(names)), names, rotation=45)
        ax.set_yticks(range(len(names)), names)
    if len(names) <= 6:
        for i, j in np.ndindex(correlation.shape):
            dark = abs(correlation[i, j]) > 0.6
            ax.text(j, i, f"{correlation[i, j]:.2f}", ha="center", va="center", color="white" if dark else "black")
    ax.set_title("correlation of parameters")
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
