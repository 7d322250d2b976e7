"""``problm bundle``: bundle adjustment of a BAL file or a COLMAP model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..report import page
from .common import Acceptance, Job, LossName, dumps, optional, outcome, solving
from .exits import Bad, leave


@solving("bundle")
def command(
    job: Job,
    source: Annotated[Path, typer.Argument(help="BAL text file, or folder of a COLMAP model.")],
    intrinsics: Annotated[
        str, typer.Option("--intrinsics", help="free, fixed, or some of focal,distortion,principal_point.")
    ] = "free",
    loss: LossName = "linear",
    f_scale: Annotated[float, typer.Option("--f-scale", help="Scale of the loss in pixels.")] = 1.0,
    max_iter: Annotated[int, typer.Option("--max-iter", min=1, help="Largest number of iterations.")] = 1000,
    acceptance: Acceptance = None,
) -> None:
    """Adjust cameras and points of a reconstruction.

    Writes the adjusted model as COLMAP text (model/), result.json and report.html.
    """
    from ..vision.bundle.adjust import bundle_adjustment
    from ..vision.bundle.bal import read_bal
    from ..vision.bundle.colmap import FILES, read_colmap, write_colmap
    from ..vision.bundle.plot import plot_reconstruction

    if not source.exists():
        raise Bad(f"there is no file or folder {source}")
    written = [f"model/{name}" for name in FILES]
    inputs = [source, *(source / name for name in FILES)] if source.is_dir() else [source]
    names = [*written, "result.json", "cameras.png", "report.html"]
    folder = job.folder(names, inputs)
    model = read_colmap(source) if source.is_dir() else read_bal(source)
    groups: Any = intrinsics.split(",") if "," in intrinsics else intrinsics
    options = job.options(max_iter=max_iter, loss=loss, f_scale=f_scale, acceptance=acceptance)
    with job.voice.progress() as progress:
        fit = bundle_adjustment(model, intrinsics=groups, **options, callback=progress)
    job.voice.say(str(fit))
    content = {
        "success": fit.result.success, "status": fit.result.status.name, "message": fit.result.message,
        "images": len(model.rotations), "points": len(model.points), "observations": len(model.xy),
        "start_cost": fit.start_cost, "cost": fit.cost, "rmse": fit.rmse, "behind": int(fit.behind.sum()),
        "iterations": fit.result.nit, "seconds": fit.result.seconds, "history": fit.result.history.as_dict(),
    }  # fmt: skip
    files = []
    if folder is not None:
        with folder.writing(written) as target:
            write_colmap(fit.model, target / "model")
        files = [folder.path / "model", folder.write("result.json", dumps(content))]
        parts = [page.paragraph(str(source), note=True), page.listing(str(fit))]
        scene = optional(lambda: plot_reconstruction(fit.model))
        if scene is not None:
            png = page.figure_png(scene)
            files.append(folder.write("cameras.png", png))
            parts.append(page.picture(png, "Cameras and points"))
        figure = optional(fit.result.plot)
        if figure is not None:
            parts.append(page.picture(page.figure_png(figure), "Cost and batch size over time"))
        files.append(folder.write("report.html", page.page("ProBLM bundle adjustment", parts)))
    job.tell(content, files)
    leave(outcome(fit.result.status))
