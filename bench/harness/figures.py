"""Panels of a summary as SVG and PNG files, one file per panel, named by the number of the paper's figure."""

from __future__ import annotations

import base64
import re
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


def _figure(panel: Panel) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    named: set[str] = set()
    crowded = len(panel.series) > 3 * len({s.label for s in panel.series})
    for series in panel.series:
        label = None if series.label in named else series.label
        named.add(series.label)
        style: dict[str, Any] = {"color": series.colour, "label": label, "linewidth": 1.2}
        style["alpha"] = 0.4 if crowded else 0.85
        if series.marker:
            axes.plot(series.x, series.y, "o", **style)
        elif series.step:
            axes.step(series.x, series.y, where="post", **style)
        else:
            axes.plot(series.x, series.y, "-" if crowded else ".-", **style)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    positive = {axis: [v for s in panel.series for v in getattr(s, axis) if v > 0] for axis in "xy"}
    if panel.log_x and positive["x"]:
        axes.set_xscale("log")
    if panel.log_y and positive["y"]:
        axes.set_yscale("log")
    elif panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    axes.grid(alpha=0.3)
    if named:
        for handle in axes.legend(fontsize="x-small").legend_handles:
            handle.set_alpha(1.0)
    return figure


def _pictures(picture: Picture, stem: Path) -> list[Path]:
    written = []
    for caption, data in picture.images:
        path = stem.with_name(f"{stem.name}-{slug(caption)}.png")
        write_atomically(path, base64.b64decode(data))
        written.append(path)
    return written
