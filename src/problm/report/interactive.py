"""An interactive chart inside a page: data, fit, band, terms and residuals, with zoom, hover and toggles.

The script (``chart.js``) is part of the package and of the page; nothing is loaded. The page's policy allows this one
script by its digest, so nothing that a file or a formula holds can ever run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST = 4_000
"""Number of points that are drawn; of more, a random sample."""
_COLORS = ("#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22")
STYLE = """
.chart svg { width: 100%; height: auto; touch-action: pan-y; user-select: none; cursor: crosshair; }
.chart svg text { font: 13px system-ui, sans-serif; fill: var(--text); }
@media (prefers-color-scheme: dark) { .chart .points { stroke: #7cc4f5; stroke-opacity: .7; } }
.chart .axes rect { stroke: var(--faint); } .chart .grid { stroke: var(--line); stroke-width: .5; }
.legend button { font: inherit; font-size: .85rem; margin: 0 .4rem .3rem 0; padding: .05rem .5rem; border: 0;
  border-left: 5px solid; background: var(--card); color: var(--text); cursor: pointer; }
.legend button[aria-pressed=false] { opacity: .4; text-decoration: line-through; }
"""


@cache
def script() -> str:
    """The program of the chart."""
    return resources.files(__package__).joinpath("chart.js").read_text(encoding="utf-8")


@cache
def digest() -> str:
    """Its digest, for the policy of a page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()


def chart(
    x: Array,
    y: Array,
    residuals: Array,
    grid: Array,
    curve: tuple[Array, Array, Array],
    terms: Sequence[tuple[str, Array]] = (),
    *,
    labels: tuple[str, str] = ("x", "y"),
    residual_label: str = "residual",
    log: tuple[bool, bool] = (False, False),
    title: str = "Data, fit and residuals",
    number: int = 0,
) -> str:
    """A chart as HTML; the page must hold `script` once, after its charts.

    Parameters
    ----------
    x, y, residuals : (N,) data and residuals of the fit.
    grid : (k,) where the curve is drawn.
    curve : value, lower and upper end of its band, (k,) each.
    terms : names and values (k,) of the terms of a sum.
    labels : of x and y.
    residual_label : of the residuals.
    log : whether the axes of x and y are logarithmic.
    title : alternative text.
    number : of the chart in its page.
    """
    if len(x) > MOST:
        chosen = np.sort(np.random.default_rng(0).choice(len(x), MOST, replace=False))
        x, y, residuals = x[chosen], y[chosen], residuals[chosen]
    series: list[dict[str, Any]] = [
        {"name": "data", "kind": "points", "panel": 0, "color": "#1f77b4", "x": _list(x), "y": _list(y)},
        {"name": "data", "kind": "points", "panel": 1, "color": "#1f77b4", "x": _list(x), "y": _list(residuals)},
        {"name": "95 % confidence", "kind": "band", "panel": 0, "color": "#d62728", "x": _list(grid),
         "low": _list(curve[1]), "high": _list(curve[2])},
    ]  # fmt: skip
    for k, (name, values) in enumerate(terms):
        color = _COLORS[k % len(_COLORS)]
        series.append({"name": name, "kind": "line", "panel": 0, "color": color, "dash": "5 4", "x": _list(grid),
                       "y": _list(values)})  # fmt: skip
    line = {"kind": "line", "color": "#d62728"}
    series.append({**line, "name": "fit", "panel": 0, "x": _list(grid), "y": _list(curve[0])})
    series.append({**line, "name": "zero", "panel": 1, "x": _list(grid[[0, -1]]), "y": [0.0, 0.0]})
    content = {
        "id": number, "title": title, "labels": [labels[0], labels[1], residual_label], "logx": log[0], "logy": log[1],
        "range": _padded(float(grid[0]), float(grid[-1]), log[0]), "series": series,
    }  # fmt: skip
    text = json.dumps(content, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    return f'<div class="chart"><script type="application/json">{text}</script></div>'


def _padded(low: float, high: float, log: bool) -> list[float]:
    """The ends of an axis, a little beyond the data: points at the ends are shown whole."""
    if log:
        margin = (high / low) ** 0.015
        return [low / margin, high * margin]
    margin = 0.015 * (high - low)
    return [low - margin, high + margin]


def _list(values: Array) -> list[float | None]:
    """Numbers with seven digits; None where they are not finite."""
    return [float(f"{v:.7g}") if np.isfinite(v) else None for v in np.asarray(values, dtype=np.float64).tolist()]
