"""Result of a part of the demo: measurements and plots."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...report import page

if TYPE_CHECKING:
    from ...solver.result import Result

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """Measurements of one method on the part's problem."""

    method: str
    seconds: float
    cost: float
    """Cost over all residuals."""
    note: str = ""


def repeated(solves: Sequence[Callable[[], Any]], times: int = 3) -> tuple[list[Any], list[float]]:
    """Results and median seconds of interleaved solves, so that variations of the machine affect all alike."""
    results: list[Any] = [None] * len(solves)
    seconds: list[list[float]] = [[] for _ in solves]
    for _ in range(times):
        for i, solve in enumerate(solves):
            began = time.perf_counter()
            results[i] = solve()
            seconds[i].append(time.perf_counter() - began)
    return results, [statistics.median(s) for s in seconds]


def passes(result: Result) -> str:
    """The work of a solve in passes over all residuals."""
    return f"{result.residual_passes + result.jacobian_passes:.3g} passes"


@dataclass(frozen=True)
class Part:
    """A finished part of the demo."""

    title: str
    text: str
    measured: list[Measured]
    result: Result | None = None
    curve: tuple[Array, Array, Callable[[Array], Array]] | None = None
    pictures: list[tuple[bytes, str]] = field(default_factory=list)
    """PNG and caption."""

    def rows(self) -> list[list[str]]:
        """The table's cells: method, milliseconds, how many times longer than the first, excess cost, note."""
        best = min((m.cost for m in self.measured if np.isfinite(m.cost)), default=np.nan)
        first = self.measured[0].seconds
        return [
            [
                m.method,
                f"{1e3 * m.seconds:,.1f}",
                f"{m.seconds / first:.2f}",
                f"{max(m.cost / best - 1.0, 0.0):.1e}" if np.isfinite(m.cost) else "",
                m.note,
            ]
            for m in self.measured
        ]

    def headline(self) -> tuple[str, str]:
        """The first method's time, with those of the last one and of ours with a limit on the accuracy."""
        first, last = self.measured[0], self.measured[-1]
        ours = "".join(
            f"{m.method[8:]}: {_told(m.seconds)}. " for m in self.measured if m.method.startswith("ProBLM, ")
        )
        against = f"{last.method}: {_told(last.seconds)}" + (", given up" if "given up" in last.note else "")
        return _told(first.seconds), f"{self.title}. {ours}{against}"

    def html(self) -> list[str]:
        from ...report.plots import plot_curve, plot_result

        parts = [page.heading(self.title), page.paragraph(self.text), page.wide_table(HEADER, self.rows())]
        parts += [page.picture(png, caption) for png, caption in self.pictures]
        if self.curve is not None:
            figure = plot_curve(*self.curve)
            parts.append(page.picture(page.figure_png(figure), "Data (density) and fitted curve"))
        if self.result is not None:
            caption = "Cost and batch size over time, residuals, correlations"
            parts.append(page.picture(page.figure_png(plot_result(self.result)), caption))
        return parts


def _told(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"


HEADER = ["method", "ms", "times ProBLM's", "cost above the best", "work"]
