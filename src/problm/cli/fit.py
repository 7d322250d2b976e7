"""``problm fit``: a formula fitted to the columns of a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..report.text import report
from .common import Acceptance, Folder, Job, LossName, Voice, dumps, interval, optional, outcome, solving
from .exits import DONE, DOUBTFUL, Bad, leave

if TYPE_CHECKING:
    from ..inference.fit import Fit
    from ..models.model import Model
    from .fit_columns import Input
    from .fit_data import Rows

FILES = ("result.json", "fit.png", "report.html")
"""Files written to the output folder."""


def complete_model(incomplete: str) -> list[str]:
    """Completions of --model: names of ready-made models after what is there already."""
    from .. import models

    before, sign, word = incomplete.rpartition("+") if "+" in incomplete else incomplete.rpartition("~")
    kept = incomplete[: len(before) + len(sign)] + (" " if sign else "")
    return [f"{kept}{name}" for name in models.__all__ if name.startswith(word.strip())]


@solving("fit")
def command(
    job: Job,
    file: Annotated[
        str,
        typer.Argument(
            help="CSV or other text (also .gz), Excel, HDF5, Parquet, NPY, FITS, TIFF or PNG file; a folder, glob or "
            "URL of Parquet files."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help='For example "y ~ a*exp(-b*x) + c", or "y ~ gaussian + line".',
            autocompletion=complete_model,
        ),
    ] = None,
    peaks: Annotated[
        str | None, typer.Option("--peaks", help="auto, or the most peaks to look for, in place of --model.")
    ] = None,
    sigma: Annotated[
        str | None,
        typer.Option("--sigma", help="Standard deviations of the response: a column, or an expression: sqrt(n)."),
    ] = None,
    absolute_sigma: Annotated[
        bool, typer.Option("--absolute-sigma", help="Sigma is in the response's units, not only relative.")
    ] = False,
    x_sigma: Annotated[
        str | None,
        typer.Option(
            "--x-sigma", help="Standard deviations of the variables, with commas between: columns or numbers."
        ),
    ] = None,
    censored: Annotated[
        str | None,
        typer.Option(
            "--censored", help="Values beyond a limit, '<0.2' or '>4.5'; or a column: -1 at most, 1 at least."
        ),
    ] = None,
    counts: Annotated[
        str | None,
        typer.Option("--counts", help="poisson; or counts out of so many trials: a number or a column (binomial)."),
    ] = None,
    variables: Annotated[
        str | None,
        typer.Option("--variables", help="Names that are data; default: those that are columns. For peaks: x,y."),
    ] = None,
    start: Annotated[str | None, typer.Option("--start", help="Start, such as a=1,b=.2; others are guessed.")] = None,
    bounds: Annotated[
        str | None, typer.Option("--bounds", help="Bounds, such as a=0:10,b=0: (either side may be open).")
    ] = None,
    fix: Annotated[str | None, typer.Option("--fix", help="Parameters that are not fitted, such as a=1,c=0.")] = None,
    loss: LossName = "linear",
    f_scale: Annotated[
        str, typer.Option("--f-scale", help="Residuals below it count as inliers: a number, or auto.")
    ] = "1",
    accuracy: Annotated[
        float | None,
        typer.Option("--accuracy", help="Stop when the cost is within this relative distance of its minimum."),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="problm (growing batches) or lm (always all rows).")
    ] = "problm",
    acceptance: Acceptance = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="What separates numbers in text; default: recognised."),
    ] = None,
    decimal: Annotated[
        str | None, typer.Option("--decimal", help="Decimal sign in text, . or ,; default: recognised.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option("--part", help="Sheet (Excel), extension (FITS), page (TIFF), image (HDF5)."),
    ] = None,
    image: Annotated[
        bool, typer.Option("--image", help="Read a plane of numbers (NPY, HDF5) as an image: columns x, y, I.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", help="Column of groups: one fit for each, in one table and one page.")
    ] = None,
    shared: Annotated[
        str | None, typer.Option("--shared", help="With --group: parameters that all groups share, such as k,c.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 5 if the fit converged but is doubtful.")
    ] = False,
    nan: Annotated[str, typer.Option("--nan", help="raise or omit rows with a NaN.")] = "raise",
    max_iter: Annotated[int, typer.Option("--max-iter", min=1, help="Largest number of iterations.")] = 1000,
    max_memory: Annotated[
        str | None, typer.Option("--max-memory", help="Memory limit, such as 2GB; default: half of the free memory.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Address of a Dask scheduler, or 'local': Parquet only.")
    ] = None,
) -> None:
    """Fit a formula, or peaks on a background, to the columns of a file.

    Prints parameters with standard errors, correlations and goodness of fit; writes result.json, report.html and
    fit.png to the output folder.
    """
    from ..data.tables import Reading  # these load SciPy, which --help does not need
    from ..inference.shown import formula_of
    from .fit_columns import Input

    if not job.no_output:
        refuse_inside(job.output, file)
    voice, folder = job.voice, job.folder(FILES, [file])
    absolute = absolute_sigma and sigma is not None
    chosen = {"loss": loss, "f_scale": _scale(f_scale), "method": method, "max_iter": max_iter}
    options = job.options(**chosen, acceptance=acceptance, max_time=None if peaks else job.max_time)
    data = Input(file, Reading(delimiter, decimal, part, image), sigma, nan, max_memory, cluster)
    if (model is None) == (peaks is None):
        raise Bad('give a formula, --model "y ~ a*exp(-b*x) + c", or --peaks auto')
    given = {"--x-sigma": x_sigma, "--censored": censored, "--counts": counts}
    kinds = [(option, value) for option, value in given.items() if value is not None]
    if kinds and (model is None or group or accuracy):
        raise Bad(f"{kinds[0][0]} needs --model, without --group and --accuracy")
    if len(kinds) > 1:
        raise Bad(f"{kinds[0][0]} and {kinds[1][0]} cannot be combined")
    if group is not None:
        if model is None or fix or accuracy:
            raise Bad("--group needs --model, without --fix and --accuracy")
        options["absolute_sigma"] = absolute
        with in_options():
            code = _grouped(data, model, variables, (group, shared), (start, bounds), options, folder, voice)
        leave(code if strict or code != DOUBTFUL else DONE)
    with in_options(), voice.progress() as progress:
        options["callback"] = progress
        if peaks is not None:
            from .fit_kinds import fit_peaks

            if start or bounds or fix or accuracy:
                raise Bad("--peaks finds its own starts and bounds: leave out --start, --bounds, --fix and --accuracy")
            found, rows = fit_peaks(data, peaks, variables, absolute, options)
        elif kinds:
            from .fit_kinds import fit_kind

            found, rows = fit_kind(
                data, str(model), variables, kinds[0], lambda m: starts(m, start, bounds, fix), absolute, options
            )
            absolute = found.absolute_sigma
        else:
            options["accuracy"] = accuracy
            options["progress"] = options.pop("callback") or False  # also within a pass over a large file
            found, rows = fit_formula(data, str(model), variables, (start, bounds, fix), absolute, options)
    result = found.result
    goodness = rows.goodness(found.model, result)
    text = formula_of(found)
    voice.say(f"{text}    ({file})")
    voice.say(report(result, absolute=absolute, goodness=goodness))
    for warning in found.warnings:
        voice.say(f"warning: {warning}")
    files = [] if folder is None else write(folder, file, found, goodness, model or text)
    content = {**result.to_dict(), "model": model or text, "file": file, **goodness}
    content["warnings"] = list(found.warnings)
    job.tell(content, files)
    code = outcome(result.status)
    leave(DOUBTFUL if strict and code == DONE and found.warnings else code)


def refuse_inside(output: Path, data: str) -> None:
    """Refuse an output in a folder of tables, whose subfolders are read as well."""
    if os.path.isdir(data) and Path(os.path.realpath(data)) in Path(os.path.realpath(output)).parents:
        raise Bad(f"{output} would become part of the data being read: give another --output")


_ARGUMENTS = {
    "f_scale": "--f-scale", "max_iter": "--max-iter", "max_time": "--max-time", "max_memory": "--max-memory",
    "nan_policy='omit'": "--nan omit", "p0": "--start", "rng": "--seed", "acceptance": "--acceptance",
    "absolute_sigma": "--absolute-sigma", "client": "--cluster", "bounds": "--bounds", "accuracy": "--accuracy",
    "loss": "--loss", "method": "--method", "x_sigma": "--x-sigma", "sigma": "--sigma",
}  # fmt: skip


@contextmanager
def in_options() -> Iterator[None]:
    """Let messages of the library speak of options of the program instead of arguments of functions."""
    try:
        yield
    except (ValueError, TypeError) as error:
        message = str(error)
        for name, option in _ARGUMENTS.items():
            message = re.sub(rf"(?<![\w-]){re.escape(name)}(?=[=:\s]|$)(?!\w)", option, message)
        if message == str(error):
            raise
        raise Bad(message) from error


def _grouped(
    data: Input,
    model: str,
    variables: str | None,
    grouping: tuple[str, str | None],
    given: tuple[str | None, str | None],
    options: dict[str, Any],
    folder: Folder | None,
    voice: Voice,
) -> int:
    """Fit groups of rows, print and write, and return the exit code."""
    from . import fit_groups as groups

    rows = groups.read_groups(data, model, variables, grouping[0])
    options["p0"] = numbers("--start", given[0], rows.model) or None
    pairs_of = pairs("--bounds", given[1], rows.model)
    limits = {name: interval("--bounds", name, text) for name, text in pairs_of.items()}
    if grouping[1] is None:
        return groups.report_each(groups.fit_each(rows, {**options, "bounds": limits}), data.file, folder, voice)
    if limits or options["p0"]:
        raise Bad("--shared finds its own starts: leave out --start and --bounds")
    found = groups.fit_shared(rows, grouping[1], options)
    voice.say(found.report())
    files = [] if folder is None else write(folder, data.file, found, {"r_squared": found.r2}, model)
    for path in files:
        voice.say(f"wrote {path}")
    voice.finish({**found.result.to_dict(), "file": data.file, "warnings": list(found.warnings)})
    code = outcome(found.result.status)
    return DOUBTFUL if code == DONE and found.warnings else code


def _scale(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise Bad(f"--f-scale: {text!r} is neither a number nor auto") from None


def fit_formula(
    data: Input,
    text: str,
    variables: str | None,
    given: tuple[str | None, str | None, str | None],
    absolute: bool,
    options: dict[str, Any],
) -> tuple[Fit, Rows]:
    """Fit a formula, with starts, bounds and fixed values as text."""
    from ..api.fit import partial_model, settle
    from .fit_columns import load, split_model

    model, columns = split_model(text, data, variables)
    rows = load(data, columns)
    known, limits, fixed = starts(model, *given)
    rest = [i for i in range(len(model.parameters)) if i not in known]
    partial = partial_model(model, known, rest)
    theta = np.array([known.get(i, 0.0) for i in range(len(model.parameters))])
    if partial is not None:  # a guess may lie outside of the bounds; the user's values are used unchanged
        theta[rest] = np.clip(rows.guess(partial, options["loss"] != "linear"), limits[0][rest], limits[1][rest])
    options = {**options, "bounds": limits, "fixed": fixed or None}
    found = settle(
        theta,
        lambda t: rows.fit(model, t, options),
        lambda result: replace(rows.fitted(model, result, absolute), loss=options["loss"]),
        partial, rest, limits,
    )  # fmt: skip
    return replace(found, labels=tuple(columns)), rows


def starts(
    model: Model, start: str | None, bounds: str | None, fix: str | None
) -> tuple[dict[int, float], tuple[Any, Any], list[int]]:
    """Known starts, (lower, upper) and the indices of fixed parameters, from text such as ``a=1,b=2``."""
    given = numbers("--start", start, model)
    held = numbers("--fix", fix, model)
    lower, upper = np.full(len(model.parameters), -np.inf), np.full(len(model.parameters), np.inf)
    for name, text in pairs("--bounds", bounds, model).items():
        i = model.parameters.index(name)
        lower[i], upper[i] = interval("--bounds", name, text)
    known = {model.parameters.index(n): value for n, value in {**given, **held}.items()}
    return known, (lower, upper), [model.parameters.index(n) for n in held]


def pairs(option: str, text: str | None, model: Model) -> dict[str, str]:
    """``a=1,b=2`` as a dict with checked names."""
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, sign, value = (s.strip() for s in part.partition("="))
        if not sign or not value:
            raise Bad(f"{option}: {part.strip()!r} is not of the form name=value")
        if name not in model.parameters:
            raise Bad(f"{option}: the model has no parameter {name!r}; it has {', '.join(model.parameters)}")
        if name in found:
            raise Bad(f"{option}: {name!r} is given twice")
        found[name] = value
    return found


def numbers(option: str, text: str | None, model: Model) -> dict[str, float]:
    found = {}
    for name, value in pairs(option, text, model).items():
        try:
            found[name] = float(value)
        except ValueError:
            raise Bad(f"{option}: {name}={value!r} is not a number") from None
    return found


def write(folder: Folder, file: str, found: Fit, goodness: dict[str, float], written: str) -> list[Path]:
    """Write result.json, report.html (with the formula as it was ``written``) and, with Matplotlib, the plots."""
    from ..inference.shown import interactive, parameter_table, picture_png
    from ..report import page
    from ..report.drawn import solve_png
    from ..solver.saved import to_dict

    result, model = found.result, f"{found.model.response} ~ {found.model.expression}"
    saved = {**to_dict(result), "model": model, **goodness, "warnings": list(found.warnings)}
    files = [folder.write("result.json", dumps(saved))]
    parts = [page.paragraph(written), page.paragraph(file, note=True)]
    parts += [page.paragraph(f"Warning: {warning}") for warning in found.warnings]
    chart = interactive(found)
    if chart:
        parts.append(chart)
    parts.append(page.wide_table(*parameter_table(found)))
    parts.append(page.listing(report(result, absolute=found.absolute_sigma, goodness=goodness)))
    pictures = optional(lambda: (picture_png(found, 0.95), solve_png(result)))
    if pictures is not None:
        curve, solve = pictures
        files.append(folder.write("fit.png", curve))
        if not chart:
            parts.append(page.picture(curve, "Data, fit and residuals"))
        parts.append(page.picture(solve, "Cost and batch size over time, residuals, correlations"))
    files.append(folder.write("report.html", page.page("ProBLM fit", parts)))
    return files
