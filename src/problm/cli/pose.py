"""``problm pose``: the relative pose of two photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import Job, solving
from .exits import Bad
from .two_view import FILES, Threshold, existing, finish, two_view_options


@solving("pose")
def command(
    job: Job,
    image1: Annotated[Path, typer.Argument(help="The first photograph.")],
    image2: Annotated[Path, typer.Argument(help="The second one.")],
    intrinsics: Annotated[
        Path | None, typer.Option("--intrinsics", "-K", help="Camera matrix, or fx fy cx cy; or those of both cameras.")
    ] = None,
    ratio: Annotated[float, typer.Option("--ratio", help="Largest ratio of Lowe's test; 1 keeps all.")] = 0.9,
    features: Annotated[int, typer.Option("--features", help="Largest number of features per image.")] = 8000,
    threshold: Threshold = "auto",
) -> None:
    """Relative pose of two photographs, by SIFT features.

    Without --intrinsics the fundamental matrix is estimated instead. Writes result.json, matches.csv, matches.png
    (inliers, outliers and epipolar lines) and report.html.
    """
    from ..vision.images.features import match_images
    from ..vision.two_view.essential import essential_matrix
    from ..vision.two_view.fundamental import fundamental_matrix
    from ..vision.two_view.matches import read_intrinsics

    cameras = None if intrinsics is None else read_intrinsics(existing(intrinsics))
    images = existing(image1), existing(image2)
    options = two_view_options(job, threshold)
    folder = job.folder(FILES, [*images, intrinsics])
    found = match_images(*images, features=features, ratio=ratio)
    least = 7 if cameras is None else 5
    if len(found.x1) < least:
        raise Bad(f"{image1} and {image2} have {len(found.x1)} matches in common; at least {least} are needed")

    def estimate(x1: Any, x2: Any, **more: Any) -> Any:
        return fundamental_matrix(x1, x2, **more) if cameras is None else essential_matrix(x1, x2, *cameras, **more)

    finish(job, estimate, (found.x1, found.x2), f"{image1}, {image2}", images, options, folder)
