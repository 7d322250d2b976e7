"""The same fits with other processor instructions: how well results of different machines agree.

    python -m bench.studies.machines               # some minutes, most of them compiling for the other machine
    python -m bench.studies.machines --count 10

Random problems of `tests/helpers/random_problems.py` and the fits of `tests/helpers/references.py` are solved as this
machine likes it, and again in a process that has the plainest instructions only: Numba compiles for the oldest x86-64
(no AVX, no fused multiply-add), NumPy's vector loops and OpenBLAS' kernels are those of 2004. Differences are relative
to the largest parameter. Writes ``bench/results/machines.md`` and ``machines.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers import random_problems, references, zoo

from ..harness import record
from ..harness.summary import markdown_table

DIGITS = (1e-12, 1e-9, 1e-6)
SAME, TINY = 1e-9, 1e-20
"""Relative or absolute difference up to which costs belong to the same minimum."""


def solutions(count: int) -> dict[str, Any]:
    """(parameters, cost) by problem: for the references, and for random problems with their kind of derivatives."""
    found: dict[str, Any] = {f"reference: {name}": (values, 0.0) for name, values in references.results([]).items()}
    for kind in random_problems.KINDS:
        for seed in range(count):
            fit = random_problems.make(kind, seed)
            outcome = zoo.problm(fit)
            derivatives = "exact" if fit.jac is not None else "differences"
            if outcome.error is None and outcome.success:
                found[f"{kind}: {derivatives}: {seed}"] = np.asarray(outcome.x).tolist(), float(fit.cost(outcome.x))
    return found


def elsewhere(count: int, settings: dict[str, str]) -> dict[str, Any]:
    """`solutions` in a process with other settings."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.studies.machines", "--count", str(count), "--print"],
        env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def summary(here: dict[str, Any], there: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Number of agreeing results by class and digits."""
    rows: dict[str, dict[str, Any]] = {}
    for name in here.keys() | there.keys():
        kind, derivatives, _ = (*name.split(": "), "")[:3]
        row = name if kind == "reference" else f"{kind}, {derivatives}"
        told = rows.setdefault(row, {"problems": 0, "one side only": 0, "differences": [], "costs": []})
        told["problems"] += 1
        if name in here and name in there:
            (x, cost), (other, second) = here[name], there[name]
            told["differences"].append(references.difference(x, other))
            told["costs"].append(abs(cost - second) <= SAME * max(abs(cost), abs(second)) + TINY)
        else:
            told["one side only"] += 1
    for told in rows.values():
        differences = np.array(told.pop("differences"))
        told |= {f"{limit:g}": int(np.sum(differences <= limit)) for limit in DIGITS}
        told["same cost"] = int(np.sum(told.pop("costs")))
        told["largest"] = float(differences.max(initial=0.0))
    return dict(sorted(rows.items()))


def describe(rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for name, told in rows.items():
        cells = [str(told[f"{limit:g}"]) for limit in DIGITS]
        same = told["same cost"] if "," in name else ""
        lines.append([name, told["problems"], *cells, f"{told['largest']:.1e}", same, told["one side only"]])
    limits = [f"within {d:g}" for d in DIGITS]
    return [
        "# Other machines",
        "This processor, and the same with the instructions of the oldest x86-64 only. Problems that succeed, by the "
        f"largest difference of a parameter, relative to the largest parameter; *same cost*: to {SAME:g}, so that what "
        "differs hardly matters to the fit, or is not determined by it; *one side only*: success with one of the two.",
        markdown_table(["problems", "number", *limits, "largest", "same cost", "one side only"], lines),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="problems of each class (default: %(default)s)")
    parser.add_argument("--print", action="store_true", help="print the solutions of this process as JSON, no more")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    if arguments.print:
        print(json.dumps(solutions(arguments.count)))
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        rows = summary(
            elsewhere(arguments.count, {}), elsewhere(arguments.count, references.plainest(cache))
        )  # both in processes, so that only the instructions differ
    record.write(arguments.output, "machines", describe(rows), rows, record.about(seconds=time.perf_counter() - began))


if __name__ == "__main__":
    main()
