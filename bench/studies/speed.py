"""``make bench-speed``: compiled fits against the peers, to the certificate and to 1.001 F*, from N = 50 to 10^7.

    python -m bench.studies.speed [--quick] [-o bench/results]

Every row is measured in one run with the peers that are installed, repeats interleaved, from the same start, on one
thread, by CPU time; everybody's final cost is verified to be the same. Compiling is excluded for all. A target that is
missed is printed as missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.instances import compiled_curve
from ..data.problems import double_gaussian, exponential
from ..harness import environment, record
from ..harness.methods import Solvable
from ..harness.progress import Progress
from ..harness.run import WALL_CLOCK, Case, Experiment, Method, Outcome, Record, Settings, run, single_thread
from ..harness.summary import markdown_table
from ..harness.traces import best_costs, good, reached
from ..peers import jaxopt_peer, optimistix_peer, pyceres_peer, scipy_peer, version_of
from ..peers.ours import fitting, formula_of

LEVEL = 1.001
CURVES = {"exponential": exponential, "double Gaussian + line": double_gaussian}
PEERS = (scipy_peer.LM, scipy_peer.TRF, optimistix_peer.METHOD, jaxopt_peer.GN, jaxopt_peer.LM, pyceres_peer.METHOD)
SMALL = (50, 200, 1000, 10_000)
"""Sizes at which we should not be slower than SciPy."""


def _row_of(call: Any, calls: int = 9) -> tuple[Any, float]:
    """The median of successive calls: small data are usually fitted many times, with warm caches.

    The CPU clock is read around the call only: reading it takes a microsecond, which a small fit would feel.
    """
    found, seconds = None, []
    cpu, time.perf_counter = time.perf_counter, WALL_CLOCK
    try:
        for _ in range(calls):
            began = time.process_time()
            found = call()
            seconds.append(time.process_time() - began)
    finally:
        time.perf_counter = cpu
    return found, float(np.median(seconds))


def _front_door(derivatives: bool) -> Any:
    """`problm.curve_fit` as a drop-in: the same NumPy function, with or without its Jacobian, that SciPy gets."""

    def call(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        import problm

        f, jac = _as_curve(instance)
        data, given = instance.extra.data, jac if derivatives else None
        (x, _), seconds = _row_of(lambda: problm.curve_fit(f, *data, instance.starts[start], jac=given))
        return Outcome(seconds=[seconds], path=[x], total_seconds=seconds, x=x)

    return call


def _front_door_formula(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    import problm

    model = formula_of(instance)
    x, y = instance.extra.data
    (found, _), seconds = _row_of(lambda: problm.curve_fit(model, x, y, instance.starts[start], threads=1))
    return Outcome(seconds=[seconds], path=[found], total_seconds=seconds, x=found)


def _scipy_front_door(derivatives: bool) -> Any:
    def call(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        from scipy.optimize import curve_fit

        f, jac = _as_curve(instance)
        data, given = instance.extra.data, jac if derivatives else None
        (x, _), seconds = _row_of(lambda: curve_fit(f, *data, instance.starts[start], jac=given, method="lm"))
        return Outcome(seconds=[seconds], path=[x], total_seconds=seconds, x=x)

    return call


def _as_curve(instance: Solvable) -> tuple[Any, Any]:
    made = instance.extra

    def f(x: Any, *theta: float) -> Any:
        return made.fun(theta, x, 0.0)

    def jac(x: Any, *theta: float) -> Any:
        return made.jac(theta, x, 0.0)

    return f, jac


DEFAULT = Method("problm", "ProBLM", fitting(), "#d55e00")
OWN_LM = Method("problm-lm", "ProBLM, plain LM", fitting(method="lm"), "#000000")
SMALL_FORMULA = Method("curve_fit-formula", "problm.curve_fit, formula", _front_door_formula)
SMALL_JACOBIAN = Method("curve_fit-jacobian", "problm.curve_fit, NumPy function and Jacobian", _front_door(True))
SMALL_FUNCTION = Method("curve_fit-function", "problm.curve_fit, NumPy function", _front_door(False))
SCIPY_JACOBIAN = Method(
    "scipy.curve_fit-jacobian", "scipy.optimize.curve_fit, lm, Jacobian", _scipy_front_door(True),
    version=version_of("scipy"),
)  # fmt: skip
SCIPY_FUNCTION = Method(
    "scipy.curve_fit", "scipy.optimize.curve_fit, lm", _scipy_front_door(False), version=version_of("scipy")
)
FRONT_DOORS = (SMALL_FORMULA, SMALL_JACOBIAN, SMALL_FUNCTION, SCIPY_JACOBIAN, SCIPY_FUNCTION)


def _case(name: str, n: int, seed: int, repeats: int) -> Case:
    # The third start of eight, the same at all sizes: neither lucky nor hopeless for the undamped Gauss-Newton of the
    # peers. Starts that come with the data differ by size, and from some every method ends in another minimum. Each
    # repeat counts as a start of its own, so that it draws its batches in another random order.
    def load() -> Solvable:
        made = CURVES[name](n, seed)
        return compiled_curve(replace(made, starts=CURVES[name](1000, seed).starts[2:3] * repeats))

    return Case(f"{name}, N = {n}", load, repeats, 1)


def experiment(name: str, sizes: Sequence[int], methods: Sequence[Method], repeats: int) -> Experiment:
    def cases(settings: Settings) -> list[Case]:
        return [_case(curve, n, settings.seed, repeats) for curve in CURVES for n in sizes]

    return Experiment(
        name=name, title=name, figures="", claim="", cases=cases, methods=methods,
        summarise=lambda e, r, s: None, source="", expected_seconds=60.0,
    )  # fmt: skip


def curve_and_size(case: str) -> tuple[str, int]:
    name, n = case.rsplit(", N = ", 1)
    return name, int(n)


class Times:
    """Seconds by curve, size and method, one per repeat."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.best = best_costs(records)
        self.stop: dict[tuple[str, int, str], list[float]] = {}
        self.level: dict[tuple[str, int, str], list[float]] = {}
        self.excess: dict[tuple[str, int, str], float] = {}
        for r in good(records):
            key = (*curve_and_size(r["case"]), r["method"])
            f = self.best[r["case"]]
            self.stop.setdefault(key, []).append(r["total_seconds"])
            self.level.setdefault(key, []).append(reached(r, LEVEL * f, r["seconds"]))
            self.excess[key] = max(self.excess.get(key, 0.0), r["final"] / f - 1.0)

    def arrived(self, key: tuple[str, int, str]) -> bool:
        """Whether the method ended at the common minimum: within 1e-6 of the lowest cost."""
        return key in self.stop and self.excess[key] <= 1e-6


def ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float, float]:
    """Median of the ratios of interleaved repeats, and the smallest and largest."""
    pairs = [a / b for a, b in zip(slow, fast, strict=False)]
    return float(np.median(pairs)), min(pairs), max(pairs)


Row = dict[str, Any]


def row(task: str, n: str, ours: str, against: str, measured: tuple[float, float, float], least: float) -> Row:
    value, low, high = measured
    return {
        "task": task, "N": n, "ours": ours, "against": against, "ratio": value, "low": low, "high": high,
        "target": least, "met": bool(value >= least),
    }  # fmt: skip


def certificate_rows(times: Times, sizes: Sequence[int]) -> list[Row]:
    """To the certificate on all residuals, against the fastest peer that arrived."""
    rows = []
    for name, least in (("exponential", 2.0), ("double Gaussian + line", 4.0)):
        for n in sizes:
            mine = (name, n, DEFAULT.key)
            if not times.arrived(mine):
                continue
            peers = [m for m in PEERS if times.arrived((name, n, m.key))]
            if not peers:
                continue
            fastest = min(peers, key=lambda m: float(np.median(times.stop[name, n, m.key])))
            theirs = times.stop[name, n, fastest.key]
            rows.append(
                row(f"{name}, to the certificate", f"{n:,}", _seconds(times.stop[mine]),
                    f"{fastest.label}: {_seconds(theirs)}", ratio(theirs, times.stop[mine]), least)
            )  # fmt: skip
    return rows


def level_rows(times: Times, sizes: Sequence[int]) -> list[Row]:
    """To 1.001 F*: against our own LM with the same kernels, and against ourselves a hundred times smaller."""
    rows = []
    large = max(sizes)
    for name in CURVES:
        mine, lm = (times.level.get((name, large, key)) for key in (DEFAULT.key, OWN_LM.key))
        if mine and lm:
            rows.append(
                row(
                    f"{name}, to {LEVEL} F*",
                    f"{large:,}",
                    _seconds(mine),
                    f"our LM: {_seconds(lm)}",
                    ratio(lm, mine),
                    50.0,
                )
            )
        small = times.level.get((name, large // 100, DEFAULT.key))
        if mine and small:
            value, low, high = ratio(mine, small)
            rows.append({
                "task": f"{name}, growth of the time to {LEVEL} F*", "N": f"{large // 100:,} to {large:,}",
                "ours": _seconds(mine), "against": f"itself: {_seconds(small)}", "ratio": value, "low": low,
                "high": high, "target": 2.0, "met": bool(value < 2.0), "below": True,
            })  # fmt: skip
    return rows


def small_rows(times: Times) -> list[Row]:
    """Compare front doors for 10^4 residuals and fewer. A formula, which needs no Jacobian, is compared with the faster
    of SciPy with and without a Jacobian."""
    rows = []
    for name in CURVES:
        for n in SMALL:
            scipy = [m for m in (SCIPY_JACOBIAN, SCIPY_FUNCTION) if times.arrived((name, n, m.key))]
            scipy.sort(key=lambda m: float(np.median(times.stop[name, n, m.key])))
            pairs = [(SMALL_FORMULA, m) for m in scipy[:1]]
            pairs += [(SMALL_JACOBIAN, m) for m in scipy if m is SCIPY_JACOBIAN]
            pairs += [(SMALL_FUNCTION, m) for m in scipy if m is SCIPY_FUNCTION]
            for method, peer in pairs:
                if times.arrived((name, n, method.key)):
                    mine, theirs = times.stop[name, n, method.key], times.stop[name, n, peer.key]
                    label = "SciPy lm, Jacobian" if peer is SCIPY_JACOBIAN else "SciPy lm"
                    rows.append(
                        row(f"{name}, {method.label}", f"{n:,}", _seconds(mine), f"{label}: {_seconds(theirs)}",
                            ratio(theirs, mine), 1.0)
                    )  # fmt: skip
    return rows


def _seconds(values: Sequence[float]) -> str:
    value = float(np.median(values))
    return f"{value:.3g} s" if value >= 0.1 else f"{1e3 * value:.3g} ms"


def describe(result: dict[str, Any]) -> list[str]:
    """The table of targets, then everything that was measured."""
    text = [
        "# Speed",
        "One thread for all, CPU time, medians of interleaved repeats with the least and the largest ratio; compiling "
        "excluded for all.",
    ]
    rows = [
        [
            r["task"], r["N"], r["ours"], r["against"], f"{r['ratio']:.3g}× ({r['low']:.3g}–{r['high']:.3g})",
            f"{'<' if r.get('below') else '≥'} {r['target']:g}×", "met" if r["met"] else "**missed**",
        ]
        for r in result["rows"]
    ]  # fmt: skip
    text.append(markdown_table(["task", "N", "ours", "against", "ratio", "target", ""], rows))
    probes = [[p["what"], p["value"], p["target"], "met" if p["met"] else "**missed**"] for p in result["probes"]]
    if probes:
        text += ["## Memory and start-up", markdown_table(["what", "measured", "target", ""], probes)]
    head = ["curve", "N", "method", "median", "least", "most", f"to {LEVEL} F*", "final cost − F*, relative"]
    text += ["## All times", markdown_table(head, result["times"])]
    if result["skipped"]:
        text.append("Not run: " + "; ".join(result["skipped"]) + ".")
    return text


def all_times(times: Times, labels: Mapping[str, str]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for (name, n, key), seconds in sorted(times.stop.items()):
        level = [s for s in times.level[name, n, key] if math.isfinite(s)]
        ours = key in (DEFAULT.key, OWN_LM.key)
        rows.append([
            name, f"{n:,}", labels[key], _seconds(seconds), _seconds([min(seconds)]), _seconds([max(seconds)]),
            _seconds(level) if level and ours else None, f"{times.excess[name, n, key]:.1e}",
        ])  # fmt: skip
    return rows


def measure(sizes: Sequence[int], settings: Settings, output: Path, *, probes: bool = True) -> dict[str, Any]:
    """Run everything; the largest sizes only with the peers that are feasible there."""
    from . import speed_probes

    progress = Progress({})
    records: list[Record] = []
    skipped: list[str] = []
    peers: list[Method] = list(PEERS)
    for n in sizes:
        repeats = 7 if n <= 100_000 else 5
        part = experiment(f"speed-{n}", [n], (DEFAULT, OWN_LM, *peers), repeats)
        found = run(part, settings, output, workers=1, progress=progress)
        records += found
        slow = {r["method"] for r in good(found) if r["total_seconds"] * 12 > 45.0}
        if n < max(sizes):
            later = f"{min(s for s in sizes if s > n):,}"
            skipped += [f"{m.label} at N = {later} (over 45 s a run expected)" for m in peers if m.key in slow]
            peers = [m for m in peers if m.key not in slow]
    small = experiment("speed-small", SMALL, FRONT_DOORS, 15)
    small_records = run(small, settings, output, workers=1, progress=progress)
    progress.finish()
    times, small_times = Times(records), Times(small_records)
    labels = {m.key: m.label for m in (DEFAULT, OWN_LM, *PEERS, *FRONT_DOORS)}
    targets = [n for n in sizes if n >= 1_000_000] or [max(sizes)]
    return {
        "rows": [*certificate_rows(times, targets), *level_rows(times, sizes), *small_rows(small_times)],
        "probes": speed_probes.probes(max(sizes)) if probes else [],
        "times": [*all_times(times, labels), *all_times(small_times, labels)],
        "skipped": skipped,
        "failures": [f"{r['case']}, {r['method']}: {r['error']}" for r in (*records, *small_records) if "error" in r],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    single_thread()
    p = argparse.ArgumentParser(prog="python -m bench.studies.speed", description=(__doc__ or "").split("\n")[0])
    p.add_argument("--quick", action="store_true", help="N up to 10^5 only: to see that it works")
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    p.add_argument("--work", type=Path, default=Path("out/bench-speed"), help="where the journal is kept")
    options = p.parse_args(arguments)
    sizes = (1000, 100_000) if options.quick else (10_000, 100_000, 1_000_000, 10_000_000)
    began = time.monotonic()
    result = measure(sizes, Settings(None, "default", options.seed), options.work)
    known = record.about(seed=options.seed, seconds=time.monotonic() - began, packages=environment.PEERS)
    record.write(options.output, "speed", describe(result), result, known)
    missed = [r["task"] + ", N = " + r["N"] for r in result["rows"] if not r["met"]]
    missed += [p["what"] for p in result["probes"] if not p["met"]]
    print(f"{len(missed)} targets missed" + (": " + "; ".join(missed) if missed else ""))
    for failure in result["failures"]:
        print(f"failed: {failure}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
