"""Tables, ratios and verdicts that several experiments share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from problm.solver.result import Status

from .profiles import cost_profile, data_profile, performance_profile
from .run import SEEDS, Method, Record
from .summary import Panel, Series, Table
from .traces import best_costs, bootstrap_noise, by_method, cost_at, median, quantile, seconds_to, total_units, units_to

SAME = 1e-3
"""Relative distance from F* within which costs count as the same minimum."""
LMS = ("lm", "lm-tenfold")
"""The two plain LMs; comparisons use the better of them."""


def goals(records: Sequence[Record], reference: str = "best") -> dict[tuple[str, int], float]:
    """F* of each case and start: ``"best"`` is the lowest cost of any method from any start; ``"lm"`` is where the
    better LM ends from the same start, for costs with so many minima that finding the lowest is luck; the key of a
    method is where that one ends."""
    best = best_costs(records)
    found = {}
    for r in records:
        if "final" in r and (reference == "best" or r["method"] in _lms(reference)):
            key = (r["case"], r["start"])
            value = best[r["case"]] if reference == "best" else r["final"]
            found[key] = min(found.get(key, math.inf), value)
    return found


def _lms(reference: str) -> Sequence[str]:
    """The methods that others are compared with."""
    return LMS if reference in ("best", "lm") else (reference,)


def levels_table(
    title: str,
    records: Sequence[Record],
    methods: Sequence[Method],
    level: float = 1.01,
    *,
    reference: str = "best",
) -> Table:
    """Each method's time and work to ``level F*`` and to its own stop, over the runs that ended at F* or below."""
    goal = goals(records, reference)
    rows = []
    for method, runs in by_method(records, methods):
        found = [r for r in runs if r["final"] <= goal.get((r["case"], r["start"]), math.inf) * (1 + SAME)]
        traced = [(r, level * goal[r["case"], r["start"]]) for r in found if "cost" in r and not method.peer]
        rows.append([
            method.label,
            f"{len(found)}/{len(runs)}",
            None if method.peer else f"{sum(by_limit(r) for r in runs)}/{len(runs)}",
            1e3 * median(seconds_to(r, c) for r, c in traced),
            median(units_to(r, c) for r, c in traced),
            1e3 * median(r["total_seconds"] for r in found),
            1e3 * quantile([r["total_seconds"] for r in found], 0.1),
            1e3 * quantile([r["total_seconds"] for r in found], 0.9),
            median(total_units(r) for r in found),
        ])  # fmt: skip
    columns = [
        "method",
        "found the best minimum" if reference == "best" else "ended as low as LM",
        "ended by a limit",
        f"ms to {level:.7g} F*",
        f"passes to {level:.7g} F*",
        "ms to its stop",
        "10 %",
        "90 %",
        "passes to its stop",
    ]
    which = "the lowest cost found" if reference == "best" else "where LM ends from the same start"
    note = (
        f"Medians over the runs that ended within {SAME:.1%} of F*, {which}. A pass: one evaluation of all "
        "residuals; a Jacobian counts as three. *Ended by a limit*: of iterations or time, over all runs."
    )
    return Table(title, columns, rows, note)


Measure = Callable[[Record, float], float]


def ratios_to(
    records: Sequence[Record],
    fast: str,
    level: float,
    measure: Measure,
    slow: Sequence[str] | None = None,
    reference: str = "best",
) -> dict[tuple[str, int], float]:
    """Ratio of what the better LM needs (or the reference) to what ``fast`` needs, for each case and start from which
    both arrive."""
    goal, slow = goals(records, reference), slow or _lms(reference)
    needed: dict[tuple[str, int], dict[str, float]] = {}
    for r in records:
        key = (r["case"], r["start"])
        if "cost" in r and r["method"] in (fast, *slow) and key in goal:
            needed.setdefault(key, {})[r["method"]] = measure(r, level * goal[key])
    out = {}
    for key, row in needed.items():
        lm = min((row[s] for s in slow if s in row), default=math.inf)
        if math.isfinite(lm) and math.isfinite(row.get(fast, math.inf)) and lm > 0 and row[fast] > 0:
            out[key] = lm / row[fast]
    return out


def speedup(records: Sequence[Record], fast: str, level: float = 1.01, reference: str = "best") -> dict[str, float]:
    """Median ratio in seconds and in passes, with the number of comparisons."""
    seconds, passes = (
        ratios_to(records, fast, level, measure, reference=reference) for measure in (seconds_to, units_to)
    )
    return {"seconds": median(seconds.values()), "passes": median(passes.values()), "count": len(passes)}


def guarded(
    name: str, records: Sequence[Record], fast: str = "default", level: float = 1.01, reference: str = "best"
) -> dict[str, dict[str, float]]:
    """Ratios for the regression check with their noise: in passes (noise of the starts only) and in seconds."""
    rng = np.random.default_rng(0)
    out = {}
    for unit, measure in (("passes", units_to), ("seconds", seconds_to)):
        found = list(ratios_to(records, fast, level, measure, reference=reference).values())
        noise = bootstrap_noise(median, found, rng)
        out[f"{name}, LM / {fast}, {unit} to {level:.7g} F*"] = {"value": median(found), "noise": noise}
    return out


def spread_of(values: Sequence[float], unit: str = "") -> str:
    """Median (least to greatest) as text."""
    if not values:
        return "no figure: no pair of runs arrived"
    shown = [f"{v:.0%}" if unit == "%" else f"{v:.2g}" for v in (median(values), min(values), max(values))]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def gained(records: Sequence[Record], fast: str, level: float = 1.01, reference: str = "best") -> list[float]:
    """LM's seconds to the level over those of another method: the median over the starts of each seed."""
    return by_seed(ratios_to(records, fast, level, seconds_to, reference=reference))


def by_seed(ratios: Mapping[tuple[str, int], float]) -> list[float]:
    """The median over the cases and starts of each seed."""
    parts = [[v for (_, start), v in ratios.items() if start % SEEDS == k] for k in range(SEEDS)]
    return [median(part) for part in parts if part]


def wins(records: Sequence[Record], fast: str, level: float = 1.01, reference: str = "best") -> tuple[int, int]:
    """Number of starts from which a method is at the level before the better LM, and of those from which one is."""
    goal = goals(records, reference)
    needed: dict[tuple[str, int], dict[str, float]] = {}
    for r in records:
        key = (r["case"], r["start"])
        if "cost" in r and r["method"] in (fast, *_lms(reference)) and key in goal:
            needed.setdefault(key, {})[r["method"]] = seconds_to(r, level * goal[key])
    pairs = [(row.pop(fast, math.inf), min(row.values(), default=math.inf)) for row in needed.values()]
    arrived = [(ours, lm) for ours, lm in pairs if math.isfinite(min(ours, lm))]
    return sum(ours < lm for ours, lm in arrived), len(arrived)


def all_or_some(count: int, total: int) -> str:
    """The verdict on a claim that is to hold always."""
    return "agrees" if count == total else "agrees in part" if 2 * count > total else "disagrees"


def verdict_on(values: Sequence[float], others: Sequence[float] = (), least: float = 1.2) -> str:
    """The verdict on "faster than LM" from the ratios of each seed: the median says whether, and all must say the same
    for the claim to agree in full; ``others``, of our default, can only make it agree in part."""
    if values and median(values) >= least and min(values) > 1.0:
        return "agrees"
    if (values and median(values) >= least) or (others and median(others) >= least and min(others) > 1.0):
        return "agrees in part"
    return "disagrees"


def by_limit(record: Record) -> bool:
    """Whether the run ended by a limit of iterations or time."""
    return record["status"] in (Status.MAX_ITER, Status.TIME)


def times(ratio: float) -> str:
    """A ratio as text; runs that never arrive have none."""
    return f"{ratio:.2g} times" if math.isfinite(ratio) else "an unknown number of times (no pair of runs arrived)"


def cost_profiles(title: str, records: Sequence[Record], methods: Sequence[Method], budget: float) -> Panel:
    """The paper's profile: the share of runs with a cost of at most tau f* at the end of the budget in seconds."""
    best = best_costs(records)
    taus = np.concatenate([1.0 + np.geomspace(1e-4, 1.0, 60), np.geomspace(2.0, 100.0, 40)[1:]])
    series = []
    for method, runs in by_method(records, methods):
        if method.peer:
            continue
        costs = [[cost_at(r, budget) for r in runs if r["case"] == case] for case in best]
        shares = cost_profile(costs, list(best.values()), taus)
        series.append(Series(method.label, method.colour, (taus - 1.0).tolist(), shares.tolist(), step=True))
    return Panel(
        f"{title}: after {1e3 * budget:g} ms", "τ − 1", "share of runs with cost ≤ τ f*", series, log_x=True,
        y_range=(0.0, 1.03),
    )  # fmt: skip


def shares_within(records: Sequence[Record], method: str, budget: float, tau: float = 1.01) -> list[float]:
    """Share of a method's runs with a cost of at most tau f* at the end of the budget, for each seed."""
    best = best_costs(records)
    runs = [r for r in records if r["method"] == method and "cost" in r]
    parts = [[r for r in runs if r["start"] % SEEDS == k] for k in range(SEEDS)]
    return [sum(cost_at(r, budget) <= tau * best[r["case"]] for r in part) / len(part) for part in parts if part]


def time_profiles(title: str, records: Sequence[Record], methods: Sequence[Method], level: float = 1.01) -> list[Panel]:
    """Dolan and Moré's profile of the seconds to ``level F*``, and the data profile of the passes."""
    best = best_costs(records)
    shown = [m for m, _ in by_method(records, methods) if not m.peer]
    problems = sorted({(r["case"], r["start"]) for r in records})
    index = {p: i for i, p in enumerate(problems)}
    seconds, passes = (np.full((len(problems), len(shown)), np.inf) for _ in range(2))
    for j, method in enumerate(shown):
        for r in records:
            if r["method"] == method.key and "cost" in r:
                at = index[r["case"], r["start"]]
                seconds[at, j] = max(seconds_to(r, level * best[r["case"]]), 1e-7)
                passes[at, j] = units_to(r, level * best[r["case"]])
    taus, budgets = np.geomspace(1.0, 50.0, 80), np.geomspace(0.03, 1000.0, 120)
    performance, data = performance_profile(seconds, taus), data_profile(passes, budgets)

    def lines(x: np.ndarray, y: np.ndarray) -> list[Series]:
        return [Series(m.label, m.colour, x.tolist(), y[j].tolist(), step=True) for j, m in enumerate(shown)]

    label = f"share of starts solved to {level:.7g} F*"
    return [
        Panel(
            f"{title}: performance profile", "time relative to the fastest", label, lines(taus, performance),
            log_x=True, y_range=(0.0, 1.03),
        ),
        Panel(
            f"{title}: data profile", "work [passes over the data]", label, lines(budgets, data), log_x=True,
            y_range=(0.0, 1.03),
        ),
    ]  # fmt: skip
