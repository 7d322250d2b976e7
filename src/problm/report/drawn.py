"""The pictures of the program's report, drawn without Matplotlib: a curve with its data, and how the solve went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .canvas import Canvas, Panel, spread
from .plots import course, curve_grid, in_deviations, log_axes
from .shown import ShownResult
from .ticks import written

Array = NDArray[np.float64]
_BLUE, _ORANGE, _GREEN, _RED = "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"
_TERMS = ("#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
MOST_POINTS = 20_000
"""Number of points above which they overlap, and a density is clearer."""


def fit_png(
    x: Array,
    y: Array,
    residuals: Array,
    band: Callable[[Array], tuple[Array, Array, Array]],
    *,
    sigma: Any = None,
    terms: Sequence[tuple[str, Callable[[Array], Array]]] = (),
    labels: tuple[str, str] = ("x", "y"),
    level: float = 0.95,
) -> bytes:
    """Data, curve and confidence band above the residuals as PNG: what `plot_fit` draws, with the same parameters."""
    log = log_axes(x, y, residuals)
    residuals, scaled = in_deviations(residuals, sigma)
    grid = curve_grid(x, log[0])
    value, low, high = band(grid)
    curves = [(name, curve(grid)) for name, curve in terms]
    bars = np.zeros(0)
    if sigma is not None and np.ndim(sigma) < 2 and len(x) <= 1000:
        bars = np.broadcast_to(np.asarray(sigma, dtype=np.float64), x.shape)
    ends = (y - bars, y + bars) if len(bars) else ()
    tall = spread(y, value, low, high, *ends, *(c for _, c in curves))
    if log[1]:
        tall = (0.7 * float(y[y > 0].min()), 1.4 * float(y.max()))
    canvas, wide = Canvas(880, 660), spread(x, log=log[0])
    upper = Panel(canvas, (92, 18, 866, 440), wide, tall, log, numbered=False)
    for bar in zip(*(upper.at(x, end) for end in ends), strict=True):
        canvas.line(np.array(bar), "#a5c9e1", 1.2)
    _points(upper, x, y)
    for k, (_, curve) in enumerate(curves):
        canvas.line(upper.at(grid, curve), _TERMS[k % 6], 1.2, dashed=True)
    canvas.area(np.concatenate([upper.at(grid, low), upper.at(grid, high)[::-1]]), _RED, 0.25)
    canvas.line(upper.at(grid, value), _RED, 2.2)
    upper.frame(ylabel=labels[1])
    entries = [("dots", _BLUE, "data")]
    entries += [("dashes", _TERMS[k % 6], name) for k, (name, _) in enumerate(curves[:8])]
    entries += [("area", _RED, f"{100 * level:g} % confidence"), ("line", _RED, "fit")]
    upper.legend(entries, f"{len(x):,} points", np.concatenate([upper.at(x, y), upper.at(grid, value)]))
    lower = Panel(canvas, (92, 456, 866, 606), wide, spread(residuals), (log[0], False))
    _points(lower, x, residuals)
    canvas.line(lower.at(wide, [0.0, 0.0]), _RED, 1.4)
    lower.frame(xlabel=labels[0], ylabel=scaled)
    return canvas.png()


def _points(panel: Panel, x: Array, y: Array) -> None:
    """Draw points; thousands overlap, and drawn fainter they show their density."""
    opacity = float(np.clip(4000 / max(len(x), 1), 0.3, 0.7))
    radius = 3.2 if len(x) < 100 else 2.2 if len(x) < 1000 else 1.5
    panel.canvas.dots(panel.at(x, y), radius, _BLUE, opacity)


def solve_png(result: ShownResult) -> bytes:
    """Cost, batch size, residual histogram and correlations as PNG: what `plot_result` draws."""
    canvas = Canvas(990, 715)
    _course(canvas, result)
    _histogram(canvas, result)
    _correlations(canvas, result)
    return canvas.png()


def _course(canvas: Canvas, result: ShownResult) -> None:
    """Cost and batch size over time."""
    history = result.history
    if not len(history):
        canvas.text(534, 167, "solved without iterations", 14.0)
        return
    cost, batch = np.asarray(history.cost, dtype=np.float64), np.asarray(history.batch_size, dtype=np.float64)
    time, label = course(history.seconds)
    counted = label == "iteration"
    late = not counted and _logarithmic(time, 5.0)
    wide = spread(time, log=late)
    log = (late, _logarithmic(cost, 10.0))
    panel = Panel(canvas, (92, 34, 480, 300), wide, spread(cost, log=log[1]), log, whole=(counted, False))
    canvas.line(panel.at(time, cost), _BLUE, 1.6)
    canvas.dots(panel.at(time, cost), 3.0, _BLUE)
    panel.frame(label, "cost (estimated from the batch)", f"cost (ended: {result.status.name.lower()})")
    sizes = np.append(batch, result.n)
    log = (late, _logarithmic(sizes, 5.0))
    tall = spread(sizes, log=True) if log[1] else (0.0, 1.1 * result.n)
    panel = Panel(canvas, (588, 34, 976, 300), wide, tall, log, whole=(counted, True))
    canvas.line(panel.at(wide, [result.n, result.n]), "#b3b3b3", 1.0)
    canvas.line(panel.at(np.repeat(time, 2)[1:], np.repeat(batch, 2)[:-1]), _ORANGE, 1.8)
    canvas.dots(panel.at(time, batch), 3.0, _ORANGE)
    panel.frame(label, "residual blocks in the batch", "batch size")


def _logarithmic(values: Array, ratio: float) -> bool:
    """Whether values of very different sizes need a logarithmic axis."""
    return len(values) > 0 and float(values.min()) > 0.0 and float(values.max()) >= ratio * float(values.min())


def _histogram(canvas: Canvas, result: ShownResult, most: int = 200_000) -> None:
    try:
        values = np.asarray(result.fun, dtype=np.float64).ravel()
    except RuntimeError:  # loaded from a file, or a problem without residuals
        return
    values = values[:: max(1, -(-len(values) // most))]
    low, high = np.quantile(values, [0.001, 0.999])
    counts, edges = np.histogram(values, min(80, 5 + int(np.sqrt(len(values)))), (low, high) if high > low else None)
    panel = Panel(canvas, (92, 394, 480, 660), spread(edges), (0.0, 1.05 * max(1, int(counts.max()))),
                  whole=(False, True))  # fmt: skip
    for count, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        canvas.area(panel.at([left, right, right, left], [0.0, 0.0, count, count]), _GREEN)
    panel.frame("residual", "count", "residuals (99.8 %)")


def _correlations(canvas: Canvas, result: ShownResult) -> None:
    covariance = np.asarray(result.covariance, dtype=np.float64)
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / np.outer(error, error)
    names = result.names or [f"x{i}" for i in range(len(error))]
    left, top, side = 640.0, 394.0, 266.0
    step = side / len(names)
    for i, j in np.ndindex(correlation.shape):
        value, x, y = float(correlation[i, j]), left + j * step, top + i * step
        canvas.area(np.array([[x, y], [x + step, y], [x + step, y + step], [x, y + step]]), _red_blue(value))
        if len(names) <= 6:
            ink = "#ffffff" if abs(value) > 0.6 else "#000000"
            canvas.text(x + step / 2, y + step / 2, written(value, 2), 12.0, color=ink)
    for i, name in enumerate(names if len(names) <= 12 else ()):
        canvas.text(left - 7, top + (i + 0.5) * step, name, anchor="rm")
        canvas.text(left + (i + 0.5) * step, top + side + 6, name, anchor="ma")
    canvas.text(left + side / 2, top - 7, "correlation of parameters", 14.0, "ms")
    edge = np.linspace(1.0, -1.0, 129)
    for high, low in pairwise(edge.tolist()):
        y0, y1 = top + side * (1.0 - high) / 2, top + side * (1.0 - low) / 2
        strip = np.array(
            [[left + side + 16, y0], [left + side + 30, y0], [left + side + 30, y1], [left + side + 16, y1]]
        )
        canvas.area(strip, _red_blue((high + low) / 2))
    for value in (-1.0, -0.5, 0.0, 0.5, 1.0):
        canvas.text(left + side + 36, top + side * (1.0 - value) / 2, written(value, 1), 11.0, "lm")


_MAP = np.array([[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [247, 247, 247],
                 [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]],
                dtype=np.float64)  # fmt: skip
"""Colors of -1, -0.8, ..., 1: blue over white to red."""


def _red_blue(value: float) -> str:
    """The color of a correlation; grey if it is undefined."""
    if not np.isfinite(value):
        return "#cccccc"
    place = np.linspace(-1.0, 1.0, len(_MAP))
    return "#" + "".join(f"{round(float(np.interp(value, place, channel))):02x}" for channel in _MAP.T)
