"""Fig. 7 (supplement): the strict condition (Eq. 13) against the relaxed one (Eq. 18); and Algorithm 1 as printed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.instances import essential, poses_near
from ..harness.findings import (
    by_seed,
    cost_profiles,
    levels_table,
    ratios_to,
    speedup,
    spread_of,
    time_profiles,
    verdict_on,
)
from ..harness.methods import ALGORITHM_1, AUTHORS, DEFAULT, LM, LM_TENFOLD, PAPER, PRINTED, RELAXED, RELAXED_0
from ..harness.run import Case, Experiment, Record, Settings
from ..harness.summary import Claim, Summary, Table
from ..harness.traces import batches, best_costs, by_method, curves, failures, median, merged, seconds_to, units_to
from .essential import BUDGETS, load_matches, pairs


def _case(settings: Settings, name: str, starts: int, repeats: int, label: str, size: int = 2000) -> Case:
    def load() -> object:
        matches = load_matches(settings, name, inliers_only=True, simulated=(size, 1.0))
        rng = np.random.default_rng([settings.seed, *name.encode()])
        return essential(matches, poses_near(rng, matches.R, matches.t, starts, 0.2, 0.3))

    return Case(f"{label}: {name}", load, starts, repeats)


def cases(settings: Settings) -> Sequence[Case]:
    names = pairs(settings, settings.pick(2, 10, 10))
    first = _case(settings, names[0], settings.pick(6, 20, 20), settings.pick(2, 5, 9), "one pair")
    starts = settings.pick(4, 20, 50)
    return [first, *(_case(settings, name, starts, 1, "profile") for name in names)]


def stalls(records: Sequence[Record]) -> Table:
    """Final cost of each variant as a multiple of F*: the printed algorithm also tests at K = N, and stalls."""
    best = best_costs(records)
    rows = []
    for method, runs in by_method(records, EXPERIMENT.methods):
        ends = [r["final"] / best[r["case"]] for r in runs]
        stuck = sum(e > 1.01 for e in ends)
        rows.append([method.label, median(ends), max(ends), f"{stuck}/{len(ends)}"])
    return Table("Where the variants end", ["method", "F/F*, median", "largest", "more than 1 % above F*"], rows)


def summarise(experiment: Experiment, records: Sequence[Record], settings: Settings) -> Summary:
    runs = merged(records)
    single = [r for r in runs if r["case"].startswith("one pair")]
    many = [r for r in runs if r["case"].startswith("profile")]
    methods = experiment.methods
    ratios = {k: by_seed(ratios_to(many, k, 1.01, units_to, ("paper",))) for k in ("relaxed", "relaxed-0", "printed")}
    seconds = by_seed(ratios_to(many, "relaxed", 1.01, seconds_to, ("paper",)))
    strict, default = speedup(many, "paper"), speedup(many, "default")
    stuck = stalls(many)
    literal = next((row for row in stuck.rows if row[0] == ALGORITHM_1.label), None)
    finding = (
        f"Strict needs {spread_of(ratios['relaxed'])} times the passes of relaxed to 1.01 F* with the paper's "
        f"constants "
        f"(in seconds {spread_of(seconds)}), {spread_of(ratios['relaxed-0'])} times those of relaxed with α = 0 and "
        f"{spread_of(ratios['printed'])} times those of relaxed as printed. Against the better LM the strict test "
        f"gains "
        f"{strict['passes']:.2g} times in passes, the default {default['passes']:.2g} times: with α = 0.9 and δ = 0.1 "
        "Eq. 13 cannot be met by fewer than 460 residuals whatever they are, so K goes to N almost at once. "
        + (
            f"Algorithm 1 taken literally, testing at K = N too, ends more than 1 % above F* in {literal[3]} runs."
            if literal
            else ""
        )
    )
    agrees = verdict_on(ratios["relaxed"], ratios["relaxed-0"], least=1.05)
    claims = [
        Claim("fig7", "Fig. 7", "The relaxed condition (Eq. 18) performs better than the standard one (Eq. 13)",
              f"passes of Eq. 13 over those of Eq. 18 to 1.01 F*: corrected {spread_of(ratios['relaxed'])}, as printed "
              f"{spread_of(ratios['printed'])}; in seconds, corrected, {spread_of(seconds)}", agrees),
        Claim("converges", "Section 1", "Guaranteed convergence to a local minimum of the original problem",
              f"Algorithm 1 as printed, which tests at K = N too, ends more than 1 % above F* in "
              f"{literal[3] if literal else '–'} runs; without the test at K = N, as in the authors' code, "
              + next(f"in {row[3]}" for row in stuck.rows if row[0] == PAPER.label),
              "disagrees" if literal and not str(literal[3]).startswith("0/") else "agrees"),
    ]  # fmt: skip
    return Summary(
        experiment.name, experiment.title, experiment.figures, experiment.claim, finding, agrees,
        panels=[
            curves("Fig. 7, left: objective, one pair", single, methods),
            batches("Batch size, one pair", single, methods),
            *(cost_profiles("Fig. 7, right", many, methods, budget) for budget in reversed(BUDGETS)),
            *time_profiles("All pairs", many, methods),
        ],
        tables=[levels_table("All pairs", many, methods), stuck],
        failures=failures(records),
        claims=claims,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="conditions",
    title="Strict against relaxed condition",
    figures="Fig. 7 (supplement)",
    claim="The relaxed condition (Eq. 18) generally offers better performance than the standard one (Eq. 13).",
    cases=cases,
    methods=(LM, LM_TENFOLD, PAPER, AUTHORS, RELAXED, RELAXED_0, PRINTED, DEFAULT, ALGORITHM_1),
    summarise=summarise,
    source="bench.paper.conditions:EXPERIMENT",
    options={"gtol": 1e-6, "max_iter": 300},
    expected_seconds=25.0,
)
