"""``problm absolute-pose``: the pose of a camera from a file of pixels and points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..report import page
from .common import (
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
)  # fmt: skip
from .exits import DONE, NOT_CONVERGED, Bad, leave
from .two_view import Threshold, existing


def command(
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
    max_time: MaxTime = None,
    threads: Threads = None,
    seed: Seed = 0,
    output: Output = Path("absolute-pose"),
    no_output: NoOutput = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
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
    voice = Voice(json, quiet)
    inputs = [matches, intrinsics, image]
    folder = None if no_output else Folder(
        output or Path("out"), ("result.json", "pose.png", "report.html"), inputs, force, voice
    )  # fmt: skip
    options = {"rng": seed, "threads": threads or 1, **given(max_time=max_time)}
    pose = absolute_pose(
        table[:, :2], table[:, 2:5], K, distortion=lens, estimate_focal=focal, threshold=cut, **options
    )
    voice.say(str(pose))
    content = pose.to_dict()
    files = []
    if folder is not None:
        picture: Any = None if image is None else read_image(existing(image), "image").values()
        files = write_files(folder, "ProBLM: absolute pose", str(matches), pose, content, "pose.png", picture)
    for path in files:
        voice.say(f"wrote {path}")
    voice.finish({**content, "files": [str(f) for f in files]})
    leave(DONE if pose.success else NOT_CONVERGED)


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
