"""``problm calibrate``: intrinsics of a camera from photographs of a chessboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .absolute_pose import write_files
from .common import Job, LossName, solving
from .exits import Bad
from .two_view import existing


@solving("calibration")
def command(
    job: Job,
    photos: Annotated[list[Path], typer.Argument(help="Photographs of the board, all of one size.")],
    board: Annotated[str, typer.Option("--board", help="Inner corners per row and column, e.g. 9x6.")] = "9x6",
    square: Annotated[float, typer.Option("--square", help="Side of a square, in any unit.")] = 1.0,
    model: Annotated[
        str, typer.Option("--model", help="brown, rational, fisheye, pinhole, or a model of COLMAP's.")
    ] = "brown",
    loss: LossName = "linear",
    f_scale: Annotated[float, typer.Option("--f-scale", help="Scale of the loss, pixels.")] = 1.0,
) -> None:
    """Intrinsics of a camera from photographs of a chessboard.

    Writes result.json, K.txt, errors.png and report.html. K.txt is what --intrinsics of the other commands reads.
    """
    from ..vision.calibration.board import find_board
    from ..vision.calibration.calibrate import calibrate_camera

    try:
        columns, rows = (int(word) for word in board.lower().split("x"))
    except ValueError:
        raise Bad(f"--board must be two numbers such as 9x6, got {board!r}") from None
    folder = job.folder(("result.json", "K.txt", "errors.png", "report.html"), photos)
    found = find_board([existing(photo) for photo in photos], (columns, rows), square)
    job.voice.say(f"board found in {len(found.found)} of {len(photos)} photographs")
    options = job.options(loss=loss, f_scale=f_scale)
    camera = calibrate_camera(found.object_points, found.image_points, found.image_size, model, **options)
    job.voice.say(str(camera))
    content = {**camera.to_dict(), "photos": [str(photos[k]) for k in found.found]}
    files = []
    if folder is not None:
        source = f"{len(found.found)} photographs of a board of {board} corners"
        files = write_files(folder, "ProBLM: calibration", source, camera, content, "errors.png")
        matrix = "\n".join(" ".join(repr(v) for v in row) for row in camera.K.tolist())
        files.append(folder.write("K.txt", matrix + "\n"))
    job.finish(content, files, camera)
