"""Reading records of runs: when a level of the cost was reached, the cost at a time, medians over repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .methods import JACOBIAN
from .run import Method, Record
from .summary import Panel, Series


def good(records: Iterable[Record]) -> list[Record]:
    """Those that did not end in an exception."""
    return [r for r in records if "error" not in r]


def failures(records: Iterable[Record]) -> list[str]:
    """Each distinct failure once, with how often it happened."""
    found: dict[str, int] = {}
    for r in records:
        if "error" in r:
            name = f"{r['case']}, {r['method']}: {r['error']}"
            found[name] = found.get(name, 0) + 1
    return [f"{name} ({count} runs)" if count > 1 else name for name, count in found.items()]


def merged(records: Sequence[Record]) -> list[Record]:
    """One record a (case, method, start): seconds are medians over the repeats, point by point.

    Repeats use the same seed, so they visit the same points; where a limit of time cut them differently, only those of
    the most frequent length are used.
    """
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for r in good(records):
        groups.setdefault((r["case"], r["method"], r["start"]), []).append(r)
    out = []
    for runs in groups.values():
        lengths = [len(r.get("seconds", ())) for r in runs]
        common = max(set(lengths), key=lengths.count)
        same = [r for r, length in zip(runs, lengths, strict=True) if length == common]
        record = dict(same[0])
        if common:
            record["seconds"] = np.median([r["seconds"] for r in same], axis=0).tolist()
        totals = [r["total_seconds"] for r in runs]
        record["total_seconds"] = float(np.median(totals))
        record["spread"] = float(np.ptp(np.quantile(totals, [0.25, 0.75])) / max(np.median(totals), 1e-12))
        out.append(record)
    return out


def units(record: Record) -> list[float]:
    """Work after every entry, in passes over all residuals; a Jacobian counts as three."""
    return [r + JACOBIAN * j for r, j in zip(record["residuals"], record["jacobians"], strict=True)]


def total_units(record: Record) -> float:
    return float(record["residual_passes"] + JACOBIAN * record["jacobian_passes"])


def reached(record: Record, level: float, axis: Sequence[float]) -> float:
    """Where on the axis (seconds or units) the cost fell below a level for good; inf if it did not."""
    above = [i for i, c in enumerate(record["cost"]) if not c <= level]
    if not above:
        return float(axis[0])
    if above[-1] + 1 >= len(record["cost"]):
        return math.inf
    return float(axis[above[-1] + 1])


def seconds_to(record: Record, level: float) -> float:
    return reached(record, level, record["seconds"])


def units_to(record: Record, level: float) -> float:
    return reached(record, level, units(record))


def cost_at(record: Record, seconds: float) -> float:
    """Cost over all residuals of the point that the method held at this time."""
    held = [c for s, c in zip(record["seconds"], record["cost"], strict=True) if s <= seconds]
    return float(held[-1])


def best_costs(records: Iterable[Record]) -> dict[str, float]:
    """F* of each case: the lowest cost that any method found from any start."""
    best: dict[str, float] = {}
    for r in good(records):
        best[r["case"]] = min(best.get(r["case"], math.inf), r["final"])
    return best


def median(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.median(found)) if found else math.nan


def quantile(values: Iterable[float], q: float) -> float:
    """Like np.quantile, but infinities among the values are allowed."""
    found = sorted(values)
    return found[min(len(found) - 1, math.floor(q * len(found)))] if found else math.nan


def ratio(slow: float, fast: float) -> float:
    return slow / fast if fast > 0 else math.nan


def curves(
    title: str, records: Sequence[Record], methods: Sequence[Method], *, x: str = "seconds", floor: float = 0.0,
    most: int = 20,
) -> Panel:  # fmt: skip
    """Objective against time, one line per run; ``floor`` is subtracted so that a log axis shows the end.

    The start, at time 0, is drawn at half the time of the first step of any method: a log axis has no zero.
    """
    chosen = [
        (m, r, [1e3 * s for s in r["seconds"]] if x == "seconds" else units(r))
        for m in methods
        for r in [r for r in records if r["method"] == m.key and "cost" in r][:most]
    ]
    begin = 0.5 * min((v for _, _, axis in chosen for v in axis if v > 0), default=1.0)
    lines = [
        Series(m.label, m.colour, [max(v, begin) for v in axis], [max(c - floor, 0.0) for c in r["cost"]], step=True)
        for m, r, axis in chosen
    ]
    label = "time [ms]" if x == "seconds" else "work [passes over the data]"
    return Panel(title, label, "objective" + (" − lowest" if floor else ""), lines, log_x=True, log_y=True)


def batches(title: str, records: Sequence[Record], methods: Sequence[Method], most: int = 20) -> Panel:
    """Batch size against time."""
    chosen = [
        (m, r) for m in methods for r in [r for r in records if r["method"] == m.key and any(r.get("batch", ()))][:most]
    ]
    begin = 0.5 * min((1e3 * s for _, r in chosen for s in r["seconds"] if s > 0), default=1.0)
    lines = [
        Series(
            m.label, m.colour, [max(1e3 * s, begin) for s in r["seconds"]], [float(b) for b in r["batch"]], step=True
        )
        for m, r in chosen
    ]
    return Panel(title, "time [ms]", "residuals in the batch", lines, log_x=True, log_y=True)


def by_method(records: Sequence[Record], methods: Sequence[Method]) -> list[tuple[Method, list[Record]]]:
    """Methods with their records, if there are any."""
    found = [(m, [r for r in records if r["method"] == m.key]) for m in methods]
    return [(m, rs) for m, rs in found if rs]


def bootstrap_noise(
    statistic: Callable[[Any], float], items: Sequence[Any], rng: np.random.Generator, rounds: int = 200
) -> float:
    """Relative half width of the central 95 % of a statistic, by resampling the items."""
    centre = statistic(items)
    if len(items) < 2 or not math.isfinite(centre) or centre == 0:
        return math.inf
    draws = [statistic([items[i] for i in rng.integers(0, len(items), len(items))]) for _ in range(rounds)]
    finite = [d for d in draws if math.isfinite(d)]
    if not finite:
        return math.inf
    low, high = np.quantile(finite, [0.025, 0.975])
    return float(max(high - centre, centre - low) / abs(centre))
