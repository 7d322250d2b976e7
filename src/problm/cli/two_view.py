"""``problm essential``, ``homography`` and ``fundamental``: the geometry of two views from a file of matches."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..report import page
from .common import Acceptance, Folder, Job, dumps, optional, solving
from .exits import Bad

FILES = ("result.json", "matches.csv", "matches.png", "report.html")
"""Files written to the output folder."""

Matches = Annotated[Path, typer.Argument(help="CSV, text, NPY or NPZ; rows x1 y1 x2 y2.")]
Threshold = Annotated[str, typer.Option("--threshold", help="Largest error of an inlier, or auto.")]
Robust = Annotated[bool, typer.Option("--robust/--no-robust", help="Whether matches may be wrong.")]
Starts = Annotated[str, typer.Option("--starts", help="minimal (samples) or random (no RANSAC).")]
Images = Annotated[
    tuple[Path, Path] | None, typer.Option("--images", help="The two images, for the picture.", show_default=False)
]


@solving("essential")
def essential(
    job: Job,
    matches: Matches,
    intrinsics: Annotated[
        Path | None, typer.Option("--intrinsics", "-K", help="Camera matrix, or fx fy cx cy; or those of both cameras.")
    ] = None,
    threshold: Threshold = "auto",
    robust: Robust = True,
    starts: Starts = "minimal",
    images: Images = None,
    acceptance: Acceptance = None,
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

    options = two_view_options(job, threshold, robust=robust, starts=starts, acceptance=acceptance)
    folder = job.folder(FILES, [matches, intrinsics, *(images or ())])
    _run(job, estimate, matches, images, options, folder)


@solving("homography")
def homography(
    job: Job,
    matches: Matches,
    error: Annotated[str, typer.Option("--error", help="sampson or transfer (symmetric).")] = "sampson",
    threshold: Threshold = "auto",
    robust: Robust = True,
    starts: Starts = "minimal",
    images: Images = None,
    acceptance: Acceptance = None,
) -> None:
    """Homography of two views of a plane, or of a camera that only rotated.

    Writes result.json, matches.csv, matches.png and report.html.
    """
    from ..vision.two_view.homography import homography as fit

    options = two_view_options(job, threshold, robust=robust, starts=starts, acceptance=acceptance, error=error)
    _run(job, fit, matches, images, options, job.folder(FILES, [matches, *(images or ())]))


@solving("fundamental")
def fundamental(
    job: Job,
    matches: Matches,
    threshold: Threshold = "auto",
    robust: Robust = True,
    starts: Starts = "minimal",
    images: Images = None,
    acceptance: Acceptance = None,
) -> None:
    """Fundamental matrix of two uncalibrated views.

    Writes result.json, matches.csv, matches.png and report.html.
    """
    from ..vision.two_view.fundamental import fundamental_matrix

    options = two_view_options(job, threshold, robust=robust, starts=starts, acceptance=acceptance)
    _run(job, fundamental_matrix, matches, images, options, job.folder(FILES, [matches, *(images or ())]))


def two_view_options(job: Job, threshold: str, **more: Any) -> dict[str, Any]:
    """Keywords of the estimators; the threshold is a number or ``auto``."""
    cut: float | str = threshold
    if threshold != "auto":
        try:
            cut = float(threshold)
        except ValueError:
            raise Bad(f"--threshold must be a number or auto, got {threshold!r}") from None
    return job.options(threshold=cut, **more)


def existing(path: Path) -> Path:
    if not path.is_file():
        raise Bad(f"there is no file {path}")
    return path


def _run(
    job: Job,
    estimate: Callable[..., Any],
    matches: Path,
    images: tuple[Path, Path] | None,
    options: dict[str, Any],
    folder: Folder | None,
) -> None:
    from ..vision.two_view.matches import read_matches

    x1, x2 = read_matches(existing(matches))
    finish(job, estimate, (x1, x2), str(matches), images, options, folder)


def finish(
    job: Job,
    estimate: Callable[..., Any],
    points: tuple[Any, Any],
    source: str,
    images: tuple[Path, Path] | None,
    options: dict[str, Any],
    folder: Folder | None,
) -> None:
    """Estimate from matches, tell, write files and leave."""
    from ..vision.images.image import read_image

    pictures = [read_image(path, f"image{i}").values() for i, path in enumerate(images or (), 1)]
    with job.voice.progress() as progress:
        fit = estimate(*points, **options, **({} if progress is None else {"callback": progress}))
    job.voice.say(str(fit))
    content = fit.to_dict()
    files = [] if folder is None else _write(folder, fit, *points, source, pictures, content)
    job.finish(content, files, fit)


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
