"""``problm align``: the warp between two images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..report import page
from .common import Acceptance, Folder, Job, LossName, matrix_from, optional, solving
from .exits import Bad

_WARP = ("warp.json", "warp.txt", "aligned.png", "overlay.png")


@solving("align")
def command(
    job: Job,
    image1: Annotated[Path, typer.Argument(help="The reference image.")],
    image2: Annotated[Path, typer.Argument(help="The image to align with it.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="translation, euclidean, similarity, affine, homography or sl3.")
    ] = "homography",
    initial: Annotated[
        str, typer.Option("--initial", help="auto, identity, phase, features, or a file with a 3x3 matrix.")
    ] = "auto",
    mask1: Annotated[Path | None, typer.Option("--mask1", help="Image that is white where image 1 is used.")] = None,
    mask2: Annotated[Path | None, typer.Option("--mask2", help="Image that is white where image 2 is used.")] = None,
    levels: Annotated[str, typer.Option("--levels", help="Levels of the pyramid, or auto.")] = "auto",
    loss: LossName = "linear",
    color: Annotated[bool, typer.Option("--color", help="Use three channels.")] = False,
    overlay: Annotated[
        str, typer.Option("--overlay", help="checkerboard, red-cyan, blend or difference.")
    ] = "checkerboard",
    acceptance: Acceptance = None,
) -> None:
    """Find the warp that maps image 1 onto image 2, from all pixels.

    Writes warp.json, warp.txt (the matrix), aligned.png, overlay.png and report.html.
    """
    from ..vision.alignment.align import align
    from ..vision.alignment.pictures import OVERLAYS

    if overlay not in OVERLAYS:
        raise Bad(f"--overlay must be one of {', '.join(OVERLAYS)}, got {overlay!r}")
    folder = job.folder([*_WARP, "report.html"], [image1, image2, mask1, mask2, initial])
    options = job.options(loss=loss, color=color, levels=_whole(levels), acceptance=acceptance)
    options |= {"initial": _start(initial), "mask1": _mask(mask1), "mask2": _mask(mask2)}
    with job.voice.progress() as progress:
        warp = align(image1, image2, model, **options, callback=progress)
    job.voice.say(str(warp))
    files = [] if folder is None else _write(folder, warp, image1, image2, overlay)
    job.finish(warp.to_dict(), files, warp)


def _write(folder: Folder, warp: Any, image1: Path, image2: Path, overlay: str) -> list[Path]:
    with folder.writing(_WARP) as target:
        files: list[Path] = warp.save(target, image1, image2, overlay=overlay)
    parts = [page.paragraph(f"{image1} and {image2}", note=True), page.listing(str(warp))]
    parts.append(page.picture((folder.path / "overlay.png").read_bytes(), f"Both images, {overlay}"))
    for make, caption in ((warp.plot, "Images and residuals"), (warp.result.plot, "The solve at full resolution")):
        figure = optional(make)
        if figure is None:
            break
        parts.append(page.picture(page.figure_png(figure), caption))
    return [*files, folder.write("report.html", page.page("ProBLM alignment", parts))]


def _whole(levels: str) -> int | str:
    if levels == "auto":
        return levels
    try:
        return int(levels)
    except ValueError:
        raise Bad(f"--levels must be a whole number or auto, got {levels!r}") from None


def _start(initial: str) -> Any:
    """A name that `align` knows, or a matrix from a file such as the warp.txt of an earlier run."""
    from ..vision.alignment.align import STARTS

    if initial == "identity":
        return None
    if initial in STARTS:
        return initial
    return matrix_from(initial, ("identity", *STARTS), 3)


def _mask(path: Path | None) -> Any:
    if path is None:
        return None
    from ..vision.images.image import pixels_of

    pixels = pixels_of(path, "mask")
    return (pixels if pixels.ndim == 2 else pixels[..., 0]) > 0
