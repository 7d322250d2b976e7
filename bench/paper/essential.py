"""Fig. 2a and 3a: the essential matrix from inliers, squared Sampson error, random essential matrices as starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data import sources, stand_ins
from ..data.instances import essential, random_poses
from ..harness.findings import (
    all_or_some,
    cost_profiles,
    gained,
    guarded,
    levels_table,
    shares_within,
    speedup,
    spread_of,
    time_profiles,
    verdict_on,
    wins,
)
from ..harness.methods import FIGURE, LBFGS
from ..harness.run import Case, Experiment, Record, Settings
from ..harness.summary import Claim, Summary
from ..harness.traces import batches, best_costs, curves, failures, median, merged
from ..peers import poselib_peer

INLIER = 2.0
"""Largest distance in pixels from the true epipolar geometry; replaces the paper's 100 rounds of RANSAC."""
LARGE = 1_000_000
"""So many that our default uses batches: a pass over 100,000 matches takes a fraction of a millisecond."""
BUDGETS = (1e-3, 10e-3)
"""Budgets in seconds: the paper's 10 ms, and what corresponds to it with kernels of 25 ns per residual."""


def pairs(settings: Settings, count: int) -> list[str]:
    """Names of the image pairs: real ones, or seeds of simulated ones."""
    if settings.data is None:
        return [f"simulated {k}" for k in range(count)]
    names = sources.strecha_pairs(settings.data)
    return names[:: max(1, len(names) // count)][:count]


def load_matches(
    settings: Settings, name: str, *, inliers_only: bool, simulated: tuple[int, float]
) -> stand_ins.Matches:
    """The matches of a pair; ``simulated`` is their number and the share of correct ones."""
    if settings.data is not None:
        return sources.strecha(settings.data, name, settings.seed, within=INLIER if inliers_only else None)
    return stand_ins.matches(settings.seed + int(name.split()[1]), *simulated)


def _large(settings: Settings) -> Case:
    """The case of the paper's title, very many residuals. Always simulated."""
    starts = settings.pick(2, 5, 20)

    def load() -> object:
        matches = stand_ins.matches(settings.seed, LARGE)
        return essential(matches, random_poses(np.random.default_rng(settings.seed), starts))

    return Case(f"large: simulated, N = {LARGE:,}", load, starts, settings.pick(1, 2, 5))


def _case(settings: Settings, name: str, starts: int, repeats: int, label: str) -> Case:
    def load() -> object:
        matches = load_matches(settings, name, inliers_only=True, simulated=(2000, 1.0))
        rng = np.random.default_rng([settings.seed, *name.encode()])
        return essential(matches, random_poses(rng, starts))

    return Case(f"{label}: {name}", load, starts, repeats)


def cases(settings: Settings) -> Sequence[Case]:
    names = pairs(settings, settings.pick(2, 12, 50))
    first = _case(settings, names[0], settings.pick(6, 20, 20), settings.pick(2, 5, 9), "one pair")
    starts = settings.pick(4, 25, 100)
    return [first, *(_case(settings, name, starts, 1, "profile") for name in names), _large(settings)]


def summarise(experiment: Experiment, records: Sequence[Record], settings: Settings) -> Summary:
    runs = merged(records)
    single = [r for r in runs if r["case"].startswith("one pair")]
    many = [r for r in runs if r["case"].startswith("profile")]
    large = [r for r in runs if r["case"].startswith("large")]
    methods = experiment.methods
    lowest = min(best_costs(single).values())
    seconds = {key: gained(many, key) for key in ("relaxed", "printed", "default")}
    passes = {key: speedup(many, key)["passes"] for key in seconds}
    keys = ("lm", "lm-tenfold", "relaxed", "printed", "default")
    shares = {b: {k: shares_within(many, k, b) for k in keys} for b in BUDGETS}
    few, ten = ({k: spread_of(v, "%") for k, v in shares[b].items()} for b in BUDGETS)
    gains = {key: gained(large, key) for key in ("relaxed", "default")}
    all_rows = all(min(r["batch"]) == max(r["batch"]) for r in many if r["method"] == "default")
    finding = (
        f"The better LM's time to 1.01 F* over that of our default: {spread_of(seconds['default'])} "
        f"({passes['default']:.2g} in passes); of Eq. 18 corrected {spread_of(seconds['relaxed'])} "
        f"({passes['relaxed']:.2g}), as printed {spread_of(seconds['printed'])} ({passes['printed']:.2g}). "
        + ("With so few matches our default uses all of them from the start: it is LM. " if all_rows else "")
        + f"Within the paper's 10 ms {ten['lm']} of the runs of LM (trust region), {ten['lm-tenfold']} of LM (λI, "
        f"×10), "
        f"{ten['relaxed']} of Eq. 18 corrected, {ten['printed']} as printed and {ten['default']} of the default are "
        f"within 1 % of f*; within 1 ms {few['lm']}, {few['lm-tenfold']}, {few['relaxed']}, {few['printed']} and "
        f"{few['default']}. With {LARGE:,} simulated matches LM takes {spread_of(gains['default'])} times as long as "
        f"our "
        f"default to 1.01 F* and {spread_of(gains['relaxed'])} times as long as Eq. 18 corrected."
    )
    best = max(("relaxed", "printed"), key=lambda k: median(seconds[k]))
    ahead, arrived = wins(single, best)
    quasi = 1.0 / speedup(many, "lbfgs")["passes"]
    within = [median(shares[BUDGETS[1]][k]) for k in ("relaxed", "printed", "lm-tenfold")]
    claims = [
        Claim("fig2a", "Fig. 2a", "Superior to LM throughout all 20 runs", f"the better reading of Eq. 18 is at 1.01 "
              f"F* "
              f"before the better LM from {ahead} of {arrived} starts (one pair); over all pairs LM's time over its: "
              f"{spread_of(seconds[best])}", all_or_some(ahead, arrived)),
        Claim("fig3a", "Fig. 3a", "Within 10 ms a large fraction of ProBLM's runs achieves the best solution; most LM "
              "runs take much longer", f"within 1 % of f* after 10 ms: Eq. 18 corrected {ten['relaxed']}, as printed "
              f"{ten['printed']}, the paper's LM {ten['lm-tenfold']}; after 1 ms {few['relaxed']}, {few['printed']} "
              f"and "
              f"{few['lm-tenfold']}",
              "agrees" if max(within[:2]) > 0.5 > within[2] else
              "agrees in part" if max(within[:2]) > within[2] + 0.05 else "disagrees"),
        Claim("lbfgs-rate", "Section 2", "L-BFGS converges more slowly than non-linear least squares", "L-BFGS needs "
              f"{quasi:.2g} times the passes of the better LM to 1.01 F* (essential matrix)",
              "agrees" if quasi > 1.2 else "disagrees"),
        Claim("large", "Section 1", "Computation time is significantly reduced where residuals are very many",
              f"{LARGE:,} simulated matches, LM's time over that of Eq. 18 corrected to 1.01 F*: "
              f"{spread_of(gains['relaxed'])}; of our default {spread_of(gains['default'])}",
              verdict_on(gains["relaxed"], gains["default"])),
    ]  # fmt: skip
    return Summary(
        experiment.name, experiment.title, experiment.figures, experiment.claim, finding,
        verdict_on(seconds[best], seconds["default"]),
        panels=[
            curves("Fig. 2a: objective, one pair", single, methods[:-1]),
            curves("Fig. 2a: distance to the best objective", single, methods[:-1], floor=lowest),
            batches("Batch size, one pair", single, methods[:-2]),
            *(cost_profiles("Fig. 3a", many, methods, budget) for budget in reversed(BUDGETS)),
            *time_profiles("All pairs", many, methods),
            curves(f"Objective, N = {LARGE:,}", large, methods[:-1]),
            batches(f"Batch size, N = {LARGE:,}", large, methods[:-2]),
        ],
        tables=[
            levels_table("One pair", single, methods),
            levels_table("All pairs", many, methods),
            levels_table(f"N = {LARGE:,}", large, methods),
        ],
        ratios=guarded("essential", many) | guarded(f"essential, N = {LARGE:,}", large),
        failures=failures(records),
        claims=claims,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="essential",
    title="Essential matrix with squared residuals",
    figures="Fig. 2a and 3a",
    claim="ProBLM demonstrates superior performance over LM throughout all runs; within 10 ms a large fraction of its "
    "runs achieves the best solution, while most LM runs take much longer.",
    cases=cases,
    methods=(*FIGURE, LBFGS, poselib_peer.REFINE),
    summarise=summarise,
    source="bench.paper.essential:EXPERIMENT",
    options={"gtol": 1e-6, "max_iter": 300},
    expected_seconds=70.0,
)
