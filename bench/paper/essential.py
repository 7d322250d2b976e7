"""Fig. 2a and 3a: the essential matrix from inliers, squared Sampson error, random essential matrices as starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data import sources, stand_ins
from ..data.instances import essential, random_poses
from ..harness.findings import cost_profiles, guarded, levels_table, share_within, speedup, time_profiles, verdict_of
from ..harness.methods import FIGURE, LBFGS
from ..harness.run import Case, Experiment, Record, Settings
from ..harness.summary import Summary
from ..harness.traces import batches, best_costs, curves, failures, merged
from ..peers import poselib_peer

INLIER = 2.0
"""Largest distance in pixels from the true epipolar geometry; replaces the paper's 100 rounds of RANSAC."""
LARGE = 100_000
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
    starts = settings.pick(3, 10, 20)

    def load() -> object:
        matches = stand_ins.matches(settings.seed, LARGE)
        return essential(matches, random_poses(np.random.default_rng(settings.seed), starts))

    return Case(f"large: simulated, N = {LARGE:,}", load, starts, settings.pick(1, 3, 5))


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
    relaxed, printed, default = (speedup(many, key) for key in ("relaxed", "printed", "default"))
    shares = {key: share_within(many, key, BUDGETS[0]) for key in ("lm", "relaxed", "default")}
    shares_10 = {key: share_within(many, key, BUDGETS[1]) for key in ("lm", "relaxed", "default")}
    gains = {key: speedup(large, key) for key in ("relaxed", "default")}
    small = all(min(r["batch"]) == max(r["batch"]) for r in many if r["method"] == "default")
    finding = (
        f"Over {len(many) // max(len(experiment.available()), 1)} random starts, the better of two LMs takes "
        f"{default['passes']:.2g} times the passes and {default['seconds']:.2g} times the time of our default to "
        f"1.01 F*; of the paper's method with its constants (Eq. 18, corrected) {relaxed['passes']:.2g} and "
        f"{relaxed['seconds']:.2g} times; as printed {printed['passes']:.2g} and {printed['seconds']:.2g} times. "
        + ("With so few matches our default uses all of them from the start: it is LM. " if small else "")
        + f"Within the paper's 10 ms {shares_10['lm']:.0%} of the LM runs, {shares_10['relaxed']:.0%} of the relaxed "
        f"and {shares_10['default']:.0%} of the default runs are within 1 % of f*, so that budget no longer "
        f"separates them; within 1 ms {shares['lm']:.0%}, {shares['relaxed']:.0%} and {shares['default']:.0%}. With "
        f"{LARGE:,} matches LM takes {gains['default']['seconds']:.3g} times as long as our default to 1.01 F* "
        f"({gains['default']['passes']:.3g} times the passes) and {gains['relaxed']['seconds']:.2g} times as long "
        "as the paper's method."
    )
    return Summary(
        experiment.name, experiment.title, experiment.figures, experiment.claim, finding,
        verdict_of(relaxed["seconds"], default["seconds"]),
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
