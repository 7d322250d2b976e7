"""``problm calibrate``: intrinsics of a camera from photographs of a chessboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .absolute_pose import write_files
from .common import Debug, Folder, Force, Json, LossName, NoOutput, Output, Quiet, Voice
from .exits import DONE, NOT_CONVERGED, Bad, leave
from .two_view import existing


def command(
    photos: Annotated[list[Path], typer.Argument(help="Photographs of the board, all of one size.")],
    board: Annotated[str, typer.Option("--board", help="Inner corners per row and column, e.g. 9x6.")] = "9x6",
    square: Annotated[float, typer.Option("--square", help="Side of a square, in any unit.")] = 1.0,
    model: Annotated[
        str, typer.Option("--model", help="brown, rational, fisheye, pinhole, or a model of COLMAP's.")
    ] = "brown",
    loss: LossName = "linear",
    f_scale: Annotated[float, typer.Option("--f-scale", help="Scale of the loss, pixels.")] = 1.0,
    output: Output = Path("calibration"),
    no_output: NoOutput = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
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
    voice = Voice(json, quiet)
    names = ("result.json", "K.txt", "errors.png", "report.html")
    folder = None if no_output else Folder(output or Path("out"), names, photos, force, voice)
    found = find_board([existing(photo) for photo in photos], (columns, rows), square)
    voice.say(f"board found in {len(found.found)} of {len(photos)} photographs")
    camera = calibrate_camera(
        found.object_points, found.image_points, found.image_size, model, loss=loss, f_scale=f_scale
    )
    voice.say(str(camera))
    content = {**camera.to_dict(), "photos": [str(photos[k]) for k in found.found]}
    files = []
    if folder is not None:
        source = f"{len(found.found)} photographs of a board of {board} corners"
        files = write_files(folder, "ProBLM: calibration", source, camera, content, "errors.png")
        matrix = "\n".join(" ".join(repr(v) for v in row) for row in camera.K.tolist())
        files.append(folder.write("K.txt", matrix + "\n"))
    for path in files:
        voice.say(f"wrote {path}")
    voice.finish({**content, "files": [str(f) for f in files]})
    leave(DONE if camera.success else NOT_CONVERGED)
