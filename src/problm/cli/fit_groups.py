"""``problm fit --group``: one fit per group of rows, or one of all groups with shared parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data import tables
from ..report.numbers import with_error
from .common import Folder, Voice, dumps, optional
from .exits import DONE, DOUBTFUL, NOT_CONVERGED, Bad
from .fit_columns import Input, load, split_model
from .fit_data import InMemory

if TYPE_CHECKING:
    from ..inference.fit import Fit
    from ..models.model import Model

MOST = 5_000
"""Largest number of groups that are fitted one by one."""
_SHOWN = 48
"""Largest number of groups in the picture."""


@dataclass(frozen=True)
class Groups:
    """Rows of one variable, and the group of each."""

    model: Model
    x: NDArray[Any]
    y: NDArray[Any]
    sigma: NDArray[Any] | None
    names: list[str]
    codes: NDArray[np.int64]
    labels: tuple[str, ...]
    """Columns of the variable and the response."""

    def rows(self, k: int) -> tuple[Any, Any, Any]:
        chosen = self.codes == k
        return self.x[chosen], self.y[chosen], None if self.sigma is None else self.sigma[chosen]


def read_groups(given: Input, text: str, variables: str | None, group: str) -> Groups:
    """The columns of the model and the labels of the groups."""
    name = given.column(group, "--group")
    model, columns = split_model(text, replace(given, others=(name,)), variables)
    if len(model.variables) != 1:
        raise Bad(f"--group needs a model of one variable; this one has {', '.join(model.variables)}")
    labels = tables.read_labels(given.file, name, given.how)
    rows = load(given, columns)
    if not isinstance(rows, InMemory):
        raise Bad("--group needs data that fit in memory")
    found, codes = np.unique(np.asarray(labels)[rows.kept], return_inverse=True)
    if len(found) > MOST:
        raise Bad(f"--group: column {name!r} has {len(found):,} groups; at most {MOST:,} are fitted")
    names = [f"{v:g}" if isinstance(v, float) else str(v) for v in found.tolist()]
    sigma = rows.columns[2] if rows.weighted else None
    return Groups(model, rows.columns[0], rows.columns[1], sigma, names, codes.ravel().astype(np.int64), tuple(columns))


def fit_each(groups: Groups, arguments: dict[str, Any]) -> dict[str, Fit]:
    """A fit for each group; groups with fewer points than parameters are left out."""
    from ..api.fit import fit

    found = {}
    for k, name in enumerate(groups.names):
        x, y, sigma = groups.rows(k)
        if len(y) >= len(groups.model.parameters):
            found[name] = replace(fit(groups.model, x, y, sigma=sigma, **arguments), labels=groups.labels)
    if not found:
        raise Bad(f"--group: no group has {len(groups.model.parameters)} points, as many as there are parameters")
    return found


def fit_shared(groups: Groups, shared: str, arguments: dict[str, Any]) -> Fit:
    """One fit of all groups, in which some parameters are shared."""
    from ..api.fit_groups import fit_groups

    names = [n.strip() for n in shared.split(",") if n.strip()]
    for name in names:
        if name not in groups.model.parameters:
            raise Bad(f"--shared: the model has no parameter {name!r}; it has {', '.join(groups.model.parameters)}")
    labels = np.array(groups.names)[groups.codes]
    return fit_groups(groups.model, groups.x, groups.y, labels, shared=names, sigma=groups.sigma, **arguments)


def table(fits: dict[str, Fit]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table with one row per group."""
    first = next(iter(fits.values()))
    rows = []
    for name, fit in fits.items():
        values = [with_error(p.value, p.error) for p in fit.params.values()]
        note = "" if fit.success and not fit.warnings else "not converged" if not fit.success else "doubtful"
        rows.append([name, f"{fit.n:,}", *values, f"{fit.r2:.4f}", note])
    return ["group", "points", *first.names, "r squared", ""], rows


def told(header: list[str], rows: list[list[str]]) -> str:
    """The table as text."""
    widths = [max(len(line[k]) for line in [header, *rows]) for k in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
                     for line in [header, *rows])  # fmt: skip


def picture(fits: dict[str, Fit]) -> Any:
    """Data and curves of the groups, with shared axes."""
    from ..report.plots import curve_grid, log_axes, new_figure, plain_label

    shown = list(fits.items())[:_SHOWN]
    columns = min(6, int(np.ceil(np.sqrt(len(shown)))))
    lines = -(-len(shown) // columns)
    figure, axes = new_figure(lines, columns, axes={"sharex": True, "sharey": True, "squeeze": False},
                              figsize=(2.6 * columns, 2.0 * lines))  # fmt: skip
    every = np.concatenate([np.asarray(fit.x) for _, fit in shown])
    log, _ = log_axes(every, every)
    for ax, (name, fit) in zip(axes.ravel(), shown, strict=False):
        ax.plot(fit.x, fit.y, ".", ms=3, alpha=0.6)
        grid = curve_grid(np.asarray(fit.x), log, 200)
        ax.plot(grid, fit.predict(grid), "C3", lw=1.2)
        ax.set_title(plain_label(name), fontsize="small")
        if log:
            ax.set_xscale("log")
    for ax in axes.ravel()[len(shown) :]:
        ax.set_axis_off()
    label, response = shown[0][1].labels
    figure.supxlabel(plain_label(label))
    figure.supylabel(plain_label(response))
    return figure


def _saved(fit: Fit) -> dict[str, Any]:
    parameters = {p.name: {"value": p.value, "error": p.error} for p in fit.params.values()}
    return {"parameters": parameters, "points": fit.n, "r_squared": fit.r2, "success": fit.success,
            "warnings": list(fit.warnings)}  # fmt: skip


def report_each(fits: dict[str, Fit], file: str, folder: Folder | None, voice: Voice) -> int:
    """Print the table, write the files, and return the exit code."""
    from ..report import page

    first = next(iter(fits.values()))
    model = f"{first.model.response} ~ {first.model.expression}"
    header, rows = table(fits)
    voice.say(f"{model}    ({file})")
    voice.say(told(header, rows))
    content = {"model": model, "file": file, "groups": {name: _saved(fit) for name, fit in fits.items()}}
    files = []
    if folder is not None:
        files.append(folder.write("result.json", dumps(content)))
        parts = [page.paragraph(model), page.paragraph(file, note=True), page.wide_table(header, rows)]
        figure = optional(lambda: picture(fits))
        if figure is not None:
            png = page.figure_png(figure)
            files.append(folder.write("fit.png", png))
            more = f" (the first {_SHOWN} of {len(fits)})" if len(fits) > _SHOWN else ""
            parts.append(page.picture(png, f"Data and fits of the groups{more}"))
        files.append(folder.write("report.html", page.page("ProBLM fit of groups", parts)))
    for path in files:
        voice.say(f"wrote {path}")
    voice.finish({**content, "files": [str(f) for f in files]})
    if not all(fit.success for fit in fits.values()):
        return NOT_CONVERGED
    return DOUBTFUL if any(fit.warnings for fit in fits.values()) else DONE
