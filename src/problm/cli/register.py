"""``problm register`` and ``problm rgbd``: the motion between two point clouds, or two views with depth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..report import page
from .common import Job, LossName, dumps, matrix_from, solving
from .exits import Bad

_FILES = ("registration.json", "matrix.txt", "registered.ply")


@solving("register")
def command(
    job: Job,
    source: Annotated[Path, typer.Argument(help="Cloud to move: PLY, NPY, or text with three numbers per line.")],
    target: Annotated[Path, typer.Argument(help="Cloud to move it onto.")],
    method: Annotated[str, typer.Option("--method", "-m", help="plane or point.")] = "plane",
    initial: Annotated[
        str, typer.Option("--initial", help="identity, auto (any rotation), or a file with a 4x4 matrix.")
    ] = "identity",
    scale: Annotated[bool, typer.Option("--scale", help="Estimate a scale as well.")] = False,
    loss: LossName = "tukey",
    max_distance: Annotated[
        float | None, typer.Option("--max-distance", help="Largest distance of a match; found if not given.")
    ] = None,
) -> None:
    """Find the rigid motion that moves a point cloud onto another one.

    Writes registration.json, matrix.txt (4x4), registered.ply (the moved source) and report.html.
    """
    from ..vision.points import read_points, write_ply
    from ..vision.registration.register import register

    for path in (source, target):
        if not path.exists():
            raise Bad(f"there is no file {path}")
    start = _start(initial)
    folder = job.folder([*_FILES, "report.html"], [source, target, initial])
    cloud = read_points(source)
    options = job.options(method=method, scale=scale, loss=loss, max_distance=max_distance)
    with job.voice.progress() as progress:
        found = register(cloud, read_points(target), initial=start, **options, callback=progress)
    job.voice.say(str(found))
    content = found.to_dict()
    files: list[Path] = []
    if folder is not None:
        files.append(folder.write("registration.json", dumps(content)))
        files.append(folder.write("matrix.txt", _text(found.matrix)))
        with folder.writing(["registered.ply"]) as at:
            write_ply(at / "registered.ply", found.transform(cloud))
        files.append(folder.path / "registered.ply")
        parts = [page.paragraph(f"{source} and {target}", note=True), page.listing(str(found))]
        files.append(folder.write("report.html", page.page("ProBLM registration", parts)))
    job.finish(content, files, found)


def _start(initial: str) -> Any:
    """A name that `register` knows, or a matrix from a file such as the matrix.txt of an earlier run."""
    if initial == "identity":
        return None
    if initial == "auto":
        return initial
    return matrix_from(initial, ("identity", "auto"), 4)


@solving("rgbd")
def rgbd(
    job: Job,
    image1: Annotated[Path, typer.Argument(help="First image.")],
    depth1: Annotated[Path, typer.Argument(help="Its depth: an image of 16 bits, or NPY.")],
    image2: Annotated[Path, typer.Argument(help="Second image.")],
    camera: Annotated[Path, typer.Option("-K", "--camera", help="File with the 3x3 camera matrix, or fx fy cx cy.")],
    depth2: Annotated[Path | None, typer.Option("--depth2", help="Depth of the second image.")] = None,
    depth_scale: Annotated[float, typer.Option("--depth-scale", help="Stored units per unit of length.")] = 1.0,
    loss: LossName = "tukey",
) -> None:
    """Find the motion of a camera between two views with depth.

    Writes motion.json, matrix.txt (4x4, from camera 1 to camera 2) and report.html.
    """
    from ..vision.rgbd.align_rgbd import align_rgbd
    from ..vision.two_view.matches import read_intrinsics

    inputs = [p for p in (image1, depth1, image2, camera, depth2) if p is not None]
    for path in inputs:
        if not path.is_file():
            raise Bad(f"there is no file {path}")
    if not (np.isfinite(depth_scale) and depth_scale > 0.0):
        raise Bad(f"--depth-scale must be positive, got {depth_scale}")
    folder = job.folder(["motion.json", "matrix.txt", "report.html"], inputs)
    with job.voice.progress() as progress:
        found = align_rgbd(
            image1, _depth(depth1, depth_scale), image2, read_intrinsics(camera)[0],
            None if depth2 is None else _depth(depth2, depth_scale), callback=progress, **job.options(loss=loss),
        )  # fmt: skip
    job.voice.say(str(found))
    content = found.to_dict()
    files: list[Path] = []
    if folder is not None:
        files.append(folder.write("motion.json", dumps(content)))
        files.append(folder.write("matrix.txt", _text(found.matrix)))
        parts = [page.paragraph(f"{image1} and {image2}", note=True), page.listing(str(found))]
        files.append(folder.write("report.html", page.page("ProBLM RGB-D odometry", parts)))
    job.finish(content, files, found)


def _text(matrix: Any) -> str:
    """A matrix as text with all digits, one row per line."""
    return "\n".join(" ".join(f"{v:.17g}" for v in row) for row in matrix) + "\n"


def _depth(path: Path, scale: float) -> Any:
    """A depth map in units of length."""
    from ..support.npy import load_arrays
    from ..vision.images.image import pixels_of

    stored = load_arrays(path).get("array") if path.suffix.lower() == ".npy" else pixels_of(path, str(path))
    if stored is None or stored.ndim != 2 or stored.dtype.kind not in "fiu":
        raise Bad(f"{path} does not hold a depth map: one number per pixel")
    return stored.astype(np.float64) / scale
