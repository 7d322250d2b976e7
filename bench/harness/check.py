"""``make bench-check``: check that no measured ratio falls behind the committed baseline by more than its noise.

    python -m bench.harness.check [--update] [--rounds 2]

Runs the experiments with guarded ratios at the scale ``check``, without peers, on stand-ins, and compares with
``bench/results/baseline.json``. Ratios of evaluations depend only on code and seed, so their noise is that of the small
sample of starts. Ratios of seconds also depend on the machine, and get more tolerance. What fails is measured again:
only what falls behind every time is a regression.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import record
from .run import Settings, run, single_thread
from .summary import markdown_table

BASELINE = record.RESULTS / "baseline.json"
GUARDED = ("curves", "essential", "bundle", "alignment", "scaling", "calibration")
LEAST_NOISE = {"seconds": 0.35, "else": 0.05}
MOST_NOISE = 0.7

Ratios = dict[str, dict[str, Any]]


def measured(settings: Settings, names: Sequence[str] = GUARDED) -> Ratios:
    """The guarded numbers, from fresh runs."""
    from ..paper import experiment

    found: Ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            e = experiment(name)
            own = replace(e, methods=tuple(m for m in e.methods if not m.peer))
            records = run(own, settings, Path(folder), workers=1)
            found |= own.summarise(own, records, settings).ratios
    return found


def room(name: str, *noises: float) -> float:
    """Largest relative fall of a number: its noise, within limits."""
    least = LEAST_NOISE["seconds" if "seconds" in name else "else"]
    return min(
        max(least, *(n for n in noises if math.isfinite(n))) if any(map(math.isfinite, noises)) else 0.5, MOST_NOISE
    )


def compare(
    baseline: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One row per guarded number: baseline, present value, limit, and whether it holds."""
    rows = []
    for name, old in baseline.items():
        new = current.get(name)
        lower = bool(old.get("lower", False))
        allowed = room(name, float(old["noise"] or math.inf), float((new or {}).get("noise") or math.inf))
        limit = old["value"] * (1 + allowed) if lower else old["value"] * (1 - allowed)
        value = math.nan if new is None or new["value"] is None else float(new["value"])
        holds = value <= limit if lower else value >= limit
        rows.append({"name": name, "baseline": old["value"], "now": value, "limit": limit, "holds": bool(holds)})
    return rows


def finite(ratios: Ratios) -> Ratios:
    """Replace an unknown noise by None, as JSON has no infinity, and leave out numbers that could not be measured."""
    out = {}
    for name, entry in ratios.items():
        if math.isfinite(entry["value"]):
            noise = entry["noise"]
            out[name] = {**entry, "value": float(f"{entry['value']:.6g}"),
                         "noise": float(f"{noise:.3g}") if math.isfinite(noise) else None}  # fmt: skip
    return out


def describe(ratios: Ratios) -> list[str]:
    rows = [
        [name, e["value"], f"{e['noise']:.0%}" if e["noise"] else None, f"{room(name, e['noise'] or math.inf):.0%}"]
        for name, e in ratios.items()
    ]
    return [
        "# Guarded numbers",
        "`make bench-check` fails when one of them falls behind by more than the share in the last column.",
        markdown_table(["number", "value", "noise", "may fall by"], rows),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if everything holds, 1 if something fell behind, 2 without a baseline."""
    single_thread()
    p = argparse.ArgumentParser(prog="python -m bench.harness.check", description=(__doc__ or "").split("\n")[0])
    p.add_argument("--update", action="store_true", help="write the baseline instead of comparing with it")
    p.add_argument("--baseline", type=Path, default=BASELINE)
    p.add_argument("--rounds", type=int, default=2, help="how often failing ratios are measured (default: %(default)s)")
    p.add_argument("--only", nargs="+", choices=GUARDED, default=list(GUARDED))
    options = p.parse_args(arguments)
    settings = Settings(None, "check")
    folder, name = options.baseline.parent, options.baseline.stem
    if options.update:
        began = time.monotonic()
        ratios = finite(measured(settings, options.only))
        known = record.about(seed=settings.seed, seconds=time.monotonic() - began)
        record.write(folder, name, describe(ratios), ratios, known, quiet=True)
        print(f"{len(ratios)} numbers written to {options.baseline.name}")
        return 0
    if not options.baseline.exists():
        print(f"there is no {options.baseline.name}: make it with --update", file=sys.stderr)
        return 2
    kept = record.read(folder, name)
    chosen = {k: v for k, v in kept.items() if any(k.startswith(name) for name in options.only)}
    rows = compare(chosen, finite(measured(settings, options.only)))
    for _ in range(options.rounds - 1):
        failed = [r["name"] for r in rows if not r["holds"]]
        if not failed:
            break
        names = [n for n in options.only if any(f.startswith(n) for f in failed)]
        again = {r["name"]: r for r in compare({f: chosen[f] for f in failed}, finite(measured(settings, names)))}
        rows = [again.get(r["name"], r) for r in rows]
    for r in rows:
        mark = "ok     " if r["holds"] else "BEHIND "
        print(f"{mark} {r['name']}: {r['now']:.4g} (baseline {r['baseline']:.4g}, limit {r['limit']:.4g})")
    behind = [r for r in rows if not r["holds"]]
    print(f"{len(rows) - len(behind)} of {len(rows)} hold")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
