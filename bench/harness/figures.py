"""Panels of a summary as SVG and PNG files, one file per panel, named by the number of the paper's figure."""

from __future__ import annotations

import base64
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

from problm.support.files import write_atomically, write_with

from .summary import Panel, Picture, Summary


def draw(summary: Summary, folder: Path, stem: str | None = None) -> list[Path]:
    """Draw all panels and pictures; return the files, whose names begin with ``stem``, by default the experiment's."""
    begin = stem or summary.name
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, panel in enumerate(summary.panels, 1):
        figure = _figure(panel)
        name = folder / f"{begin}-{number:02d}-{slug(panel.title)}"
        for kind in ("svg", "png"):
            path = name.with_suffix(f".{kind}")
            write_with(path, partial(figure.savefig, format=kind, dpi=150))
            written.append(path)
    for picture in summary.pictures:
        written += _pictures(picture, folder / f"{begin}-{slug(picture.title)}")
    return written


def slug(text: str) -> str:
    """A title as part of a file name: letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]


DASHES: tuple[Any, ...] = (
    "-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)), (0, (9, 3)), (0, (4, 1, 1, 1)),
)  # fmt: skip
"""Patterns of the lines, with widths that fall from line to line: what lies below another line is still seen."""


def _figure(panel: Panel) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.add_subplot()
    labels = list(dict.fromkeys(s.label for s in panel.series))
    crowded = len(panel.series) > 3 * len(labels)
    named: set[str] = set()
    for series in panel.series:
        label, order = None if series.label in named else series.label, labels.index(series.label)
        named.add(series.label)
        style: dict[str, Any] = {"color": series.colour, "label": label, "alpha": 0.4 if crowded else 0.85}
        line = {"linestyle": "-" if crowded else DASHES[order % len(DASHES)]}
        line["linewidth"] = 1.0 if crowded else max(3.0 - 0.35 * order, 1.2)
        if series.bars:
            width = 0.8 / len(labels)
            axes.bar([x - 0.4 + width * (order + 0.5) for x in series.x], series.y, width, **style)
        elif series.marker:
            axes.plot(series.x, series.y, "o", **style)
        else:
            drawn = "steps-post" if series.step else "default"
            axes.plot(series.x, series.y, drawstyle=drawn, **style, **line)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    for axis, log in (("x", panel.log_x), ("y", panel.log_y)):
        values = [v for s in panel.series for v in getattr(s, axis) if v is not None and v > 0]
        if log and values:
            log_axis(axes, axis, min(values), max(values))
    if not panel.log_y and panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    if panel.categories:
        axes.set_ylim(0.0, 1.3 * axes.get_ylim()[1])  # room for the legend
        axes.set_xticks(range(len(panel.categories)), panel.categories, rotation=15, fontsize="x-small")
    axes.grid(alpha=0.3)
    if named:
        columns = 2 if panel.categories else 1
        for handle in axes.legend(fontsize="x-small", handlelength=3.5, ncols=columns).legend_handles:
            handle.set_alpha(1.0)
    if panel.caption:
        figure.supxlabel("\n".join(textwrap.wrap(panel.caption, 100)), x=0.01, ha="left", fontsize=7)
    return figure


def log_axis(axes: Any, which: str, low: float, high: float) -> None:
    """A logarithmic axis whose ticks are plain numbers: powers of ten, below two decades also 2 and 5, and on a narrow
    range the round numbers of a linear axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis = getattr(axes, f"{which}axis")
    axes.set(**{f"{which}scale": "log"})
    if high > 5.0 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,), numticks=9))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def plain(value: float) -> str:
    """A tick as people write it: 0.001 to 1,000,000 in full, others with a power of ten."""
    if 1e-3 <= abs(value) < 1e6 or value == 0:
        return f"{value:,.6g}"
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")


def _pictures(picture: Picture, stem: Path) -> list[Path]:
    written = []
    for caption, data in picture.images:
        path = stem.with_name(f"{stem.name}-{slug(caption)}.png")
        write_atomically(path, base64.b64decode(data))
        written.append(path)
    return written
