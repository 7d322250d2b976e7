"""``problm demo``: examples on simulated data, measured while they run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ... import __version__
from ...jit.warm_up import missing, warm_up
from ...report import page
from ..common import Debug, Folder, Force, Json, Quiet, Seed, Voice
from ..warmup import compiling
from .parts import HEADER, Part

_NOTE = "Measured on this machine just now: medians of three interleaved runs (SciPy: one run). Timings are rough."

_LONG = 8.0
"""Seconds of loading after which a message is shown."""


def command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for report.html.")] = Path("demo"),
    small: Annotated[
        bool, typer.Option("--small", help="A hundredth of the data: seconds instead of a minute.")
    ] = False,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Curve fit of 10^7 points, essential matrix and alignment on simulated data; writes demo/report.html."""
    began = time.perf_counter()
    voice = Voice(json, quiet)
    folder = Folder(output, ["report.html"], [], force, voice)
    voice.say(f"ProBLM {__version__}: three simulated problems.\n")
    if missing():
        with compiling(voice) as told:
            warm_up(progress=told)
    from . import align as demo_align
    from . import curve as demo_curve
    from . import pose as demo_pose

    if (waited := time.perf_counter() - began) > _LONG:
        voice.say(f"Compiling for this machine, once, took {waited:.1f} s.\n")
    parts = []
    runs: list[Callable[[Any], Part]] = [
        lambda progress: demo_curve.run(100_000 if small else 10_000_000, seed, progress),
        lambda progress: demo_pose.run(2_000 if small else 200_000, seed, progress),
        lambda progress: demo_align.run(*((96, 128) if small else (480, 640)), seed, progress),
    ]
    for run in runs:
        with voice.progress() as progress:
            part = run(progress)
        voice.say(text_table(part))
        parts.append(part)
    seconds = time.perf_counter() - began
    content = [page.tiles([p.headline() for p in parts]), page.paragraph(_NOTE, note=True)]
    for part in parts:
        content += part.html()
    written = folder.write("report.html", page.page("ProBLM demo", content))
    voice.say(f"{seconds:.1f} s in total. Plots: {written}")
    voice.finish({"seconds": seconds, "report": str(written), "parts": [as_dict(p) for p in parts]})


def text_table(part: Part) -> str:
    """The part's table in plain text."""
    rows = [HEADER, *part.rows()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = [part.title, "-" * len(part.title)]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def as_dict(part: Part) -> dict[str, object]:
    methods = [{"method": m.method, "seconds": m.seconds, "cost": m.cost, "note": m.note} for m in part.measured]
    return {"title": part.title, "methods": methods}
