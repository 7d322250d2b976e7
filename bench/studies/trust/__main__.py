"""How far the word of a solver can be trusted, in parts.

    python -m bench.studies.trust                             # all parts, about twenty minutes on one quiet core
    python -m bench.studies.trust --part rare --scale 0.05    # one part, a twentieth of its problems

Writes ``bench/results/trust.md`` and ``trust.json``; parts that are not run again stay as they were. The seeds in
`PARTS` were set before the last change to the method; ``--shift -1000`` gives other problems, to work on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...harness import record
from . import bounds, calibration, claims, formulas, invariance, ordinary, rare, rows

Rows = list[dict[str, Any]]


class Part(NamedTuple):
    title: str
    text: str
    run: Callable[[int, int], Rows]
    """Rows from the number of problems and the first seed."""
    table: Callable[[Rows], str]
    count: int
    seed: int


PARTS = {
    "ordinary": Part(ordinary.TITLE, ordinary.TEXT, ordinary.run, ordinary.table, 10_000, 8_000_000),
    "formulas": Part(formulas.TITLE, formulas.TEXT, formulas.run, claims.table, 2000, 8000),
    "fields": Part(formulas.FIELDS, formulas.FIELDS_TEXT, formulas.run_fields, claims.table, 648, 40_000),
    "saturated": Part("Saturated models", formulas.SATURATED_TEXT, formulas.run_saturated, claims.table, 400, 9000),
    "invariance": Part(invariance.TITLE, invariance.TEXT, invariance.run, claims.table, 600, 8000),
    "rows": Part(rows.TITLE, rows.TEXT, rows.run, rows.table, 63, 8000),
    "rare": Part(rare.TITLE, rare.TEXT, rare.run, rare.table, 400, 8000),
    "bounds": Part(bounds.TITLE, bounds.TEXT, bounds.run, bounds.table, 600, 8000),
    "calibration": Part(calibration.TITLE, calibration.TEXT, calibration.run, calibration.table, 200, 8000),
}


def describe(found: dict[str, Any]) -> list[str]:
    text = ["# Trust", "Each class has problems that the method was not made on. What counts is in the columns *false "
            "success*, *default above LM*, *success above it* and *z of rms*; the rest shows the price."]  # fmt: skip
    for name, part in PARTS.items():
        if name in found:
            text += [f"## {part.title}", part.text, part.table(found[name]["rows"])]
            text += [f"First seed {found[name]['seed']}; {found[name]['seconds']:.0f} s."]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the problems of each part")
    parser.add_argument("--shift", type=int, default=0, help="of all seeds")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    found: dict[str, Any] = record.read(arguments.output, "trust") or {}
    first = time.perf_counter()
    for name in arguments.part:
        part, seed = PARTS[name], PARTS[name].seed + arguments.shift
        began = time.perf_counter()
        measured = part.run(max(int(arguments.scale * part.count), 1), seed)
        found[name] = {"seed": seed, "seconds": time.perf_counter() - began, "rows": measured}
        known = record.about(seconds=time.perf_counter() - first)
        record.write(arguments.output, "trust", describe(found), found, known, quiet=True)
        print(f"{name}: {found[name]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
