"""What an experiment has to say: panels of figures, tables, and one finding beside the paper's claim.

A `Summary` is plain data. `bench.harness.figures` draws it with Matplotlib, `bench.harness.report` as an interactive
page, `describe` as text; none of them computes anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Cell = str | float | int | None
VERDICTS = ("agrees", "agrees in part", "disagrees", "not claimed")


@dataclass
class Series:
    """A line (or points) of a panel."""

    label: str
    colour: str
    x: list[float]
    y: list[float]
    step: bool = False
    """Constant from one point to the next."""
    marker: bool = False
    """Points without a line."""
    bars: bool = False
    """Bars, beside those of the other series; x counts the panel's categories from 0."""


@dataclass
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: list[Series] = field(default_factory=list)
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None
    """Range of a linear axis; by default that of the data."""
    categories: list[str] = field(default_factory=list)
    """Names of the places 0, 1, ... of the x axis, for bars."""
    caption: str = ""
    """What the paper claims, and what we found; by default that of the whole experiment."""


@dataclass
class Picture:
    """Images that belong together, as PNG data in base64: before and after, say."""

    title: str
    images: list[tuple[str, str]]
    """(caption, base64)."""


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


@dataclass
class Claim:
    """A sentence of the paper and what we found: a row of the page "The paper, reproduced"."""

    key: str
    """Name that runs on real data and on stand-ins share."""
    where: str
    """Figure or section of the paper."""
    text: str
    found: str
    """Our figure, with its spread over the seeds."""
    verdict: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r}; choose one of {VERDICTS}")


@dataclass
class Summary:
    name: str
    title: str
    figures: str
    claim: str
    finding: str
    verdict: str
    panels: list[Panel] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    """What must not get worse: name -> {"value", "noise"}; higher is better, noise is relative."""
    failures: list[str] = field(default_factory=list)
    """Runs that ended in an exception."""
    claims: list[Claim] = field(default_factory=list)
    data: str = ""
    """What it was measured on: real data, stand-ins for them, or data that are always made."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r}; choose one of {VERDICTS}")

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; numbers that are not finite become None."""
        cleaned = _clean(asdict(self))
        assert isinstance(cleaned, dict)
        return cleaned


def caption(summary: Summary) -> None:
    """Give every panel without a caption that of its figure's claim, or of the whole experiment."""
    for panel in summary.panels:
        number = panel.title.split(":")[0].split(",")[0]
        claim = next((c for c in summary.claims if c.where.split(",")[0] == number), None)
        if not panel.caption:
            panel.caption = (
                f"The paper: {claim.text}. Found ({claim.verdict}): {claim.found}."
                if claim
                else f"The paper: {summary.claim} Found: {summary.verdict}."
            )


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def shown(value: Cell, digits: int = 3) -> str:
    """A cell as text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        if abs(value) >= 10**digits:
            return f"{value:,.0f}" if abs(value) < 1e7 else "∞" if math.isinf(value) else f"{value:.{digits}g}"
        return f"{value:.{digits}g}"
    return str(value)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"

    head = [line(list(columns)), "|" + "---|" * len(columns)]
    return "\n".join([*head, *(line([shown(c) for c in row]) for row in rows)])


def describe(summary: Summary) -> list[str]:
    """Title, claim, finding and tables, as paragraphs of Markdown."""
    parts = [
        f"# {summary.title}: {summary.figures}" + (f", {summary.data}" if summary.data else ""),
        f"**The paper:** {summary.claim}",
        f"**Measured ({summary.verdict}):** {summary.finding}",
    ]
    for table in summary.tables:
        parts += [f"## {table.title}", markdown_table(table.columns, table.rows)]
        if table.note:
            parts.append(table.note)
    if summary.failures:
        parts += ["## Runs that failed", "\n".join(f"- {f}" for f in summary.failures)]
    return parts
