"""A small experiment for the tests of the benchmark harness: importable by its worker processes."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from bench.data.instances import curve
from bench.data.problems import exponential
from bench.harness.findings import guarded, levels_table
from bench.harness.methods import DEFAULT, LM
from bench.harness.run import Case, Experiment, Method, Outcome
from bench.harness.summary import Summary
from bench.harness.traces import curves, failures, merged


def cases(settings):
    return [
        Case(f"exponential {seed}", lambda seed=seed: curve(exponential(50_000, seed, starts=2)), 2, 2)
        for seed in (1, 2)
    ]


def summarise(experiment, records, settings):
    runs = merged(records)
    return Summary(
        experiment.name, experiment.title, experiment.figures, experiment.claim, "It works.", "agrees",
        panels=[curves("Objective", runs, experiment.methods)],
        tables=[levels_table("Both", runs, experiment.methods)],
        ratios=guarded("tiny", runs), failures=failures(records),
    )  # fmt: skip


def broken(instance, start, seed, options):
    raise ValueError("this method always fails")


def slow(instance, start, seed, options):
    """Sleeps, so that a test can kill the process between two records."""
    time.sleep(float(os.environ.get("BENCH_TINY_SLEEP", "0")))
    return Outcome(total_seconds=0.1, extra={"process": os.getpid()})


EXPERIMENT = Experiment(
    name="tiny", title="Tiny", figures="none", claim="It works.", cases=cases, methods=(LM, DEFAULT),
    summarise=summarise, source=f"{__name__}:EXPERIMENT", options={"gtol": 1e-6},
)  # fmt: skip
UNTIMED = replace(EXPERIMENT, name="untimed", timed=False, source=f"{__name__}:UNTIMED")
FAILING = replace(
    EXPERIMENT,
    name="failing",
    methods=(LM, Method("broken", "Broken", broken)),
    source=f"{__name__}:FAILING",
)
SLOW = replace(
    EXPERIMENT,
    name="slow",
    methods=(Method("slow", "Slow", slow),),
    timed=False,
    source=f"{__name__}:SLOW",
)
