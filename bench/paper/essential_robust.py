"""Fig. 2b and 3b: the essential matrix from all putative matches, smooth truncated kernel, 5 levels of GNC."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data import sources
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
from ..harness.methods import DEFAULT, LM, LM_TENFOLD, PAPER, PRINTED, RELAXED, solving
from ..harness.run import Case, Experiment, Method, Record, Settings
from ..harness.summary import Claim, Summary
from ..harness.traces import batches, best_costs, curves, failures, median, merged
from .essential import load_matches, pairs

TAU = 0.005
"""Inlier threshold in normalised coordinates; the paper does not state its own."""
BUDGET = 0.2
EARLY = Method("early", "ProBLM, default, early levels on a batch", solving(early_stop=True), "#f4a582")
SHOWN = {"relaxed": "Eq. 18 corrected", "printed": "as printed", "lm-tenfold": "the paper's LM", "lm": "our LM",
         "default": "our default"}  # fmt: skip
FACADE = "ETH3D facade, the authors' file"


def _case(settings: Settings, name: str, starts: int, repeats: int, label: str) -> Case:
    def load() -> object:
        if name == FACADE:
            assert settings.data is not None
            matches = sources.eth3d_putative(settings.data, settings.seed)
        else:
            matches = load_matches(settings, name, inliers_only=False, simulated=(5000, 0.5))
        rng = np.random.default_rng([settings.seed, *name.encode()])
        return essential(matches, random_poses(rng, starts), tau=TAU, levels=5)

    return Case(f"{label}: {name}", load, starts, repeats)


def cases(settings: Settings) -> Sequence[Case]:
    """One pair, the authors' own where there are real data, and several pairs for the profiles."""
    names = pairs(settings, settings.pick(1, 6, 50))
    first = _case(settings, FACADE if settings.data else names[0], settings.pick(3, 20, 20), 1, "one pair")
    starts = settings.pick(2, 10, 100)
    return [first, *(_case(settings, name, starts, 1, "profile") for name in names)]


def summarise(experiment: Experiment, records: Sequence[Record], settings: Settings) -> Summary:
    runs = merged(records)
    single = [r for r in runs if r["case"].startswith("one pair")]
    many = [r for r in runs if r["case"].startswith("profile")]
    methods = experiment.methods
    seconds = {key: gained(many, key) for key in ("relaxed", "printed", "default")}
    passes = {key: speedup(many, key)["passes"] for key in seconds}
    keys = ("lm", "lm-tenfold", "relaxed", "printed", "default", "early")
    found = {k: spread_of(shares_within(many, k, 1e9), "%") for k in keys}
    early = {k: shares_within(many, k, BUDGET) for k in keys}
    all_rows = all(min(r["batch"]) == max(r["batch"]) for r in many if r["method"] == "default")
    finding = (
        f"From random starts only some runs find the best minimum at all: {found['lm']} of LM's, {found['relaxed']} of "
        f"Eq. 18 corrected, {found['printed']} as printed, {found['default']} of the default's; within 200 ms "
        + ", ".join(spread_of(early[k], "%") for k in ("lm", "relaxed", "printed", "default"))
        + f". Where both do, LM takes {spread_of(seconds['relaxed'])} times the time of Eq. 18 corrected, "
        f"{spread_of(seconds['printed'])} times that as printed and {spread_of(seconds['default'])} times that of our "
        f"default ({passes['relaxed']:.2g}, {passes['printed']:.2g} and {passes['default']:.2g} times the passes). "
        + ("With so few matches our default uses all of them from the start: it is LM. " if all_rows else "")
        + "Ending the wider levels on a sixteenth of the residuals is no remedy: it finds the minimum in "
        f"{found['early']} of the runs."
    )
    best = max(("relaxed", "printed"), key=lambda k: median(seconds[k]))
    ahead, arrived = wins(single, best, reference="lm")
    shares = [median(early[k]) for k in ("relaxed", "printed", "lm-tenfold", "lm")]
    claims = [
        Claim("fig2b", "Fig. 2b", "With a robust kernel and five graduated levels superior to LM, too", "the better "
              f"reading of Eq. 18 is within 1 % of LM's end before LM from {ahead} of {arrived} starts (one pair)",
              all_or_some(ahead, arrived)),
        Claim("fig3b", "Fig. 3b", "Outperforms LM by a large margin (budget 200 ms)", "within 1 % of f* after 200 ms: "
              + ", ".join(f"{label} {spread_of(early[k], '%')}" for k, label in SHOWN.items())
              + f"; LM's time over that of the better reading of Eq. 18: {spread_of(seconds[best])}",
              "agrees" if max(shares[:2]) > max(shares[2:]) + 0.1 else
              "agrees in part" if max(shares[:2]) > max(shares[2:]) + 0.02 else "disagrees"),
    ]  # fmt: skip
    return Summary(
        experiment.name, experiment.title, experiment.figures, experiment.claim, finding,
        verdict_on(seconds[best], seconds["default"]),
        panels=[
            curves("Fig. 2b: robust objective, one pair", single, methods),
            curves("Fig. 2b: distance to the best", single, methods, floor=min(best_costs(single).values())),
            batches("Batch size, one pair", single, methods),
            cost_profiles("Fig. 3b", many, methods, BUDGET),
            *time_profiles("All pairs", many, methods),
        ],
        tables=[levels_table("One pair", single, methods), levels_table("All pairs", many, methods)],
        ratios=guarded("essential-robust", many),
        failures=failures(records),
        claims=claims,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="essential-robust",
    title="Robust essential matrix, graduated non-convexity",
    figures="Fig. 2b and 3b",
    claim="With a robust kernel and five graduated levels ProBLM outperforms LM by a large margin (budget 200 ms).",
    cases=cases,
    methods=(LM, LM_TENFOLD, PAPER, RELAXED, PRINTED, DEFAULT, EARLY),
    summarise=summarise,
    source="bench.paper.essential_robust:EXPERIMENT",
    options={"gtol": 1e-3, "ftol": 1e-5, "max_iter": 200, "max_time": 2.0},
    expected_seconds=50.0,
)
