"""``problm essential``, ``homography`` and ``fundamental``: the geometry of two views from a file of matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..report import page
from .common import (
    Acceptance,
    Debug,
    Folder,
    Force,
    Json,
    MaxTime,
    NoOutput,
    Output,
    Quiet,
    Seed,
    Threads,
    Voice,
    dumps,
    given,
    optional,
)
from .exits import DONE, NOT_CONVERGED, Bad, interruption, leave

Matches = Annotated[Path, typer.Argument(help="CSV, text, NPY or NPZ; rows x1 y1 x2 y2.")]
Threshold = Annotated[str, typer.Option("--threshold", help="Largest error of an inlier, or auto.")]
Robust = Annotated[bool, typer.Option("--robust/--no-robust", help="Whether matches may be wrong.")]
Starts = Annotated[str, typer.Option("--starts", help="minimal (samples) or random (no RANSAC).")]
Images = Annotated[
    tuple[Path, Path] | None, typer.Option("--images", help="The two images, for the picture.", show_default=False)
]


def essential(
    matches: Matches,
    intrinsics: Annotated[
        Path | None, typer.Option("--intrinsics", "-K", help="Camera matrix, or fx fy cx cy; or those of both cameras.")
    ] = None,
    threshold: Threshold = "auto",
    robust: Robust = True,
    starts: Starts = "minimal",
    images: Images = None,
    acceptance: Acceptance = None,
    max_time: MaxTime = None,
    threads: Threads = None,
    seed: Seed = 0,
    output: Output = Path("essential"),
    no_output: NoOutput = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Essential matrix and relative pose of two calibrated cameras.

    Without --intrinsics the matches must be in calibrated coordinates. Writes result.json, matches.csv, matches.png
    and report.html.
    """
    from ..vision.two_view.essential import essential_matrix
    from ..vision.two_view.matches import read_intrinsics

    cameras = (None, None) if intrinsics is None else read_intrinsics(existing(intrinsics))

    def estimate(x1: Any, x2: Any, **options: Any) -> Any:
        try:
            return essential_matrix(x1, x2, *cameras, **options)
        except ValueError as error:
            if intrinsics is not None:
                raise
            raise Bad(re.sub(r"\bK[12]\b", "--intrinsics", str(error))) from error

    voice, options = (
        Voice(json, quiet),
        two_view_options(threshold, robust, starts, acceptance, max_time, threads, seed),
    )
    folder = None if no_output else output_folder(output, [matches, intrinsics, *(images or ())], force, voice)
    _run(estimate, matches, images, options, folder, voice)


def homography(
    matches: Matches,
    error: Annotated[str, typer.Option("--error", help="sampson or transfer (symmetric).")] = "sampson",
    threshold: Threshold = "auto",
    robust: Robust = True,
    starts: Starts = "minimal",
    images: Images = None,
    acceptance: Acceptance = None,
    max_time: MaxTime = None,
    threads: Threads = None,
    seed: Seed = 0,
    output: Output = Path("homography"),
    no_output: NoOutput = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Homography of two views of a plane, or of a camera that only rotated.

    Writes result.json, matches.csv, matches.png and report.html.
    """
    from ..vision.two_view.homography import homography as fit

    voice, options = (
        Voice(json, quiet),
        two_view_options(threshold, robust, starts, acceptance, max_time, threads, seed),
    )
    folder = None if no_output else output_folder(output, [matches, *(images or ())], force, voice)
    _run(fit, matches, images, {**options, "error": error}, folder, voice)


def fundamental(
    matches: Matches,
    threshold: Threshold = "auto",
    robust: Robust = True,
    starts: Starts = "minimal",
    images: Images = None,
    acceptance: Acceptance = None,
    max_time: MaxTime = None,
    threads: Threads = None,
    seed: Seed = 0,
    output: Output = Path("fundamental"),
    no_output: NoOutput = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fundamental matrix of two uncalibrated views.

    Writes result.json, matches.csv, matches.png and report.html.
    """
    from ..vision.two_view.fundamental import fundamental_matrix

    voice, options = (
        Voice(json, quiet),
        two_view_options(threshold, robust, starts, acceptance, max_time, threads, seed),
    )
    folder = None if no_output else output_folder(output, [matches, *(images or ())], force, voice)
    _run(fundamental_matrix, matches, images, options, folder, voice)


def two_view_options(
    threshold: str,
    robust: bool,
    starts: str,
    acceptance: str | None,
    max_time: float | None,
    threads: int | None,
    seed: int,
) -> dict[str, Any]:
    cut: float | str = threshold
    if threshold != "auto":
        try:
            cut = float(threshold)
        except ValueError:
            raise Bad(f"--threshold must be a number or auto, got {threshold!r}") from None
    options = {"threshold": cut, "robust": robust, "starts": starts, "rng": seed, "threads": threads or 1}
    return {**options, **given(acceptance=acceptance, max_time=max_time)}


def existing(path: Path) -> Path:
    if not path.is_file():
        raise Bad(f"there is no file {path}")
    return path


def output_folder(output: Path | None, inputs: Sequence[Path | None], force: bool, voice: Voice) -> Folder:
    names = ("result.json", "matches.csv", "matches.png", "report.html")
    return Folder(output or Path("out"), names, inputs, force, voice)


def _run(
    estimate: Callable[..., Any],
    matches: Path,
    images: tuple[Path, Path] | None,
    options: dict[str, Any],
    folder: Folder | None,
    voice: Voice,
) -> None:
    from ..vision.two_view.matches import read_matches

    x1, x2 = read_matches(existing(matches))
    finish(estimate, x1, x2, str(matches), images, options, folder, voice)


def finish(
    estimate: Callable[..., Any],
    x1: Any,
    x2: Any,
    source: str,
    images: tuple[Path, Path] | None,
    options: dict[str, Any],
    folder: Folder | None,
    voice: Voice,
) -> None:
    """Estimate from matches, tell, write files and leave."""
    from ..vision.images.image import read_image

    pictures = [read_image(path, f"image{i}").values() for i, path in enumerate(images or (), 1)]
    with voice.progress() as progress:
        fit = estimate(x1, x2, **options, **({} if progress is None else {"callback": progress}))
    voice.say(str(fit))
    content = fit.to_dict()
    files = [] if folder is None else _write(folder, fit, x1, x2, source, pictures, content)
    for path in files:
        voice.say(f"wrote {path}")
    voice.finish({**content, "files": [str(f) for f in files]})
    interrupted = fit.result is not None and fit.result.status.name == "INTERRUPTED"
    leave(interruption() if interrupted else DONE if fit.success else NOT_CONVERGED)


def _write(
    folder: Folder, fit: Any, x1: Any, x2: Any, source: str, pictures: list[Any], content: dict[str, Any]
) -> list[Path]:
    rows = np.column_stack([x1, x2, fit.errors, fit.inliers])
    lines = ["x1,y1,x2,y2,error,inlier", *(",".join(f"{v:.10g}" for v in row) for row in rows)]
    files = [
        folder.write("result.json", dumps(content)),
        folder.write("matches.csv", "\n".join(lines) + "\n"),
    ]
    parts = [page.paragraph(source, note=True), page.listing(str(fit))]
    figure = optional(lambda: fit.plot(*pictures))
    if figure is not None:
        png = page.figure_png(figure)
        files.append(folder.write("matches.png", png))
        parts.append(page.picture(png, "Inliers, outliers and the geometry that was found"))
    files.append(folder.write("report.html", page.page(f"ProBLM: {type(fit).__name__}", parts)))
    return files
