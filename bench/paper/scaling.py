"""Time against N on two curves: to 1.001 F* and to the certificate, with the peers. ProBLM and its LM are public calls
on a formula, as users make them: all of the call counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..data.instances import compiled_curve
from ..data.problems import double_gaussian, exponential
from ..harness.run import Case, Experiment, Method, Record, Settings
from ..harness.summary import Cell, Claim, Panel, Series, Summary, Table
from ..harness.traces import best_costs, failures, median, merged, seconds_to
from ..peers import jaxopt_peer, optimistix_peer, ours, pyceres_peer, scipy_peer

CURVES = {"exponential": exponential, "double Gaussian": double_gaussian}
LEVEL = 1.001
LM = Method("lm", "LM (trust region), public call", ours.fitting(acceptance="full"), "#000000")
DEFAULT = Method("default", "ProBLM, public call", ours.fitting(), "#d55e00")


def cases(settings: Settings) -> Sequence[Case]:
    sizes = settings.pick((1000, 10_000), (10_000, 100_000, 1_000_000), (10_000, 100_000, 1_000_000, 10_000_000))
    starts = settings.pick(1, 3, 5)

    def described(name: str, n: int) -> Case:
        return Case(
            f"{name}, N = {n}", lambda: compiled_curve(CURVES[name](n, settings.seed, starts=starts)), starts,
            settings.pick(2, 5 if n < 10**6 else 2, 9),  # at a million rows the peers take seconds, and vary little
        )  # fmt: skip

    return [described(name, n) for name in CURVES for n in sizes]


def size_of(case: str) -> int:
    return int(case.rsplit("= ", 1)[1])


def medians(
    runs: Sequence[Record], methods: Sequence[Method]
) -> dict[tuple[str, int, str], tuple[float, float, float]]:
    """(curve, N, method) -> medians over the starts that found F*: seconds to the level, to the stop, final cost."""
    best = best_costs(runs)
    out = {}
    for name in CURVES:
        for n in sorted({size_of(r["case"]) for r in runs}):
            for method in methods:
                mine = [r for r in runs if r["case"] == f"{name}, N = {n}" and r["method"] == method.key]
                found = [r for r in mine if r["final"] <= best[r["case"]] * 1.001]
                if found:
                    level = [math.nan] if method.peer else [seconds_to(r, LEVEL * best[r["case"]]) for r in found]
                    out[name, n, method.key] = (
                        median(level), median(r["total_seconds"] for r in found),
                        median(r["final"] / best[r["case"]] for r in found),
                    )  # fmt: skip
    return out


def summarise(experiment: Experiment, records: Sequence[Record], settings: Settings) -> Summary:
    runs = merged(records)
    methods = [m for m in experiment.methods if any(r["method"] == m.key for r in runs)]
    values = medians(runs, methods)
    sizes = sorted({n for _, n, _ in values})
    panels: list[Panel] = []
    rows: list[list[Cell]] = []
    for name in CURVES:
        for which, title in ((0, f"to {LEVEL:g} F*"), (1, "to its own stop")):
            lines = []
            for m in methods:
                points = [(n, 1e3 * values[name, n, m.key][which]) for n in sizes if (name, n, m.key) in values]
                points = [(n, s) for n, s in points if math.isfinite(s)]
                if points:
                    lines.append(Series(m.label, m.colour, [float(n) for n, _ in points], [s for _, s in points]))
            panels.append(Panel(f"{name}: {title}", "N", "time [ms]", lines, log_x=True, log_y=True))
        for m in methods:
            cells = [values.get((name, n, m.key), (math.nan,) * 3)[:2] for n in sizes]
            rows.append([name, m.label, *(1e3 * seconds for pair in cells for seconds in pair)])
    large = sizes[-1]
    gains = {
        name: values[name, large, "lm"][0] / values[name, large, "default"][0]
        for name in CURVES
        if (name, large, "lm") in values and (name, large, "default") in values
    }
    growth = {
        name: values[name, large, "default"][0] / values[name, sizes[0], "default"][0]
        for name in CURVES
        if (name, large, "default") in values and (name, sizes[0], "default") in values
    }
    to_stop = {
        name: values[name, large, "default"][1] / values[name, sizes[0], "default"][1]
        for name in CURVES
        if (name, large, "default") in values and (name, sizes[0], "default") in values
    }
    finding = (
        f"At N = {large:,} LM needs "
        + " and ".join(f"{g:.3g} times ({name})" for name, g in gains.items())
        + f" the time of the default to {LEVEL:g} F*. From N = {sizes[0]:,} to {large:,} the default's time to that "
        "level grows "
        + " and ".join(f"{g:.2g}-fold" for g in growth.values())
        + f", N itself {large // sizes[0]}-fold."
    )
    columns = ["curve", "method"] + [c for n in sizes for c in (f"N = {n:,}: ms to {LEVEL:g} F*", "ms to its stop")]
    ratios = {
        f"scaling, {name}, LM / default, seconds to {LEVEL:g} F*": {"value": g, "noise": 0.5}
        for name, g in gains.items()
    }
    claims = [
        Claim("linear", "Section 1", "The previously linear relationship between the number of residuals and "
                                     "computation "
              "time is significantly reduced", f"from N = {sizes[0]:,} to {large:,} our default's time to {LEVEL:g} F* "
              "grows " + " and ".join(f"{g:.2g}-fold ({name})" for name, g in growth.items())
              + f", N {large // sizes[0]}-fold; to its stop "
              + " and ".join(f"{g:.2g}-fold" for g in to_stop.values()),
              "agrees" if all(g < 0.3 * large / sizes[0] for g in growth.values()) else "disagrees")
    ]  # fmt: skip
    return Summary(
        experiment.name, experiment.title, experiment.figures, experiment.claim, finding,
        "agrees" if all(g < 0.3 * large / sizes[0] for g in growth.values()) else "disagrees",
        panels=panels, tables=[Table("Medians over the starts that found the best minimum", columns, rows,
                                     "Peers do not tell when they passed a level. Compiling is not timed.")],
        ratios=ratios, failures=failures(records), claims=claims,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="scaling",
    title="Time against the number of residuals",
    figures="not in the paper (introduction)",
    claim="The previously linear relationship between number of residuals and computation time is significantly "
    "reduced.",
    cases=cases,
    methods=(LM, DEFAULT, scipy_peer.LM, scipy_peer.TRF, optimistix_peer.METHOD, jaxopt_peer.GN, pyceres_peer.METHOD),
    summarise=summarise,
    source="bench.paper.scaling:EXPERIMENT",
    options={},
    real=False,
    expected_seconds=140.0,
)
