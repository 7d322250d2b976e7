"""``problm absolute-pose``: the pose of a camera from a file of pixels and points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..report import page
from .common import Folder, Job, dumps, optional, solving
from .exits import Bad
from .two_view import Threshold, existing


@solving("absolute-pose")
def command(
    job: Job,
    matches: Annotated[Path, typer.Argument(help="CSV, text or NPY; rows x y X Y Z.")],
    intrinsics: Annotated[
        Path | None, typer.Option("--intrinsics", "-K", help="Camera matrix, or fx fy cx cy.")
    ] = None,
    distortion: Annotated[
        str | None, typer.Option("--distortion", help="k1,k2,p1,p2[,k3[,k4,k5,k6]], as OpenCV's.")
    ] = None,
    focal: Annotated[bool, typer.Option("--estimate-focal", help="Estimate the focal length as well.")] = False,
    threshold: Threshold = "auto",
    image: Annotated[Path | None, typer.Option("--image", help="The image, for the picture.")] = None,
) -> None:
    """Pose of a camera from pixels of known points (PnP).

    Writes result.json, pose.png and report.html.
    """
    from ..vision.absolute_pose.estimate import absolute_pose
    from ..vision.images.image import read_image
    from ..vision.two_view.matches import read_intrinsics, read_table

    table = read_table(existing(matches))
    if table.ndim != 2 or table.shape[1] < 5:
        raise Bad(f"{matches}: rows must hold x y X Y Z, got an array of shape {table.shape}")
    K = None if intrinsics is None else read_intrinsics(existing(intrinsics))[0]
    cut: float | str = threshold
    try:
        cut = threshold if threshold == "auto" else float(threshold)
        lens = None if distortion is None else [float(word) for word in distortion.split(",")]
    except ValueError:
        raise Bad(f"--threshold and --distortion are numbers, got {threshold!r} and {distortion!r}") from None
    folder = job.folder(("result.json", "pose.png", "report.html"), [matches, intrinsics, image])
    options = job.options(distortion=lens, estimate_focal=focal, threshold=cut)
    pose = absolute_pose(table[:, :2], table[:, 2:5], K, **options)
    job.voice.say(str(pose))
    content = pose.to_dict()
    files = []
    if folder is not None:
        picture: Any = None if image is None else read_image(existing(image), "image").values()
        files = write_files(folder, "ProBLM: absolute pose", str(matches), pose, content, "pose.png", picture)
    job.finish(content, files, pose)


def write_files(
    folder: Folder, title: str, source: str, fit: Any, content: dict[str, Any], picture: str, *given_to_plot: Any
) -> list[Path]:
    """Write the result as JSON, its picture and a report."""
    files = [folder.write("result.json", dumps(content))]
    parts = [page.paragraph(source, note=True), page.listing(str(fit))]
    figure = optional(lambda: fit.plot(*(v for v in given_to_plot if isinstance(v, np.ndarray))))
    if figure is not None:
        png = page.figure_png(figure)
        files.append(folder.write(picture, png))
        parts.append(page.picture(png, "The result against the data"))
    files.append(folder.write("report.html", page.page(title, parts)))
    return files
