"""NIST StRD: correct digits of parameters and standard deviations, from both starts, beside SciPy's lm and trf.

    PROBLM_DATA=... python -m bench.studies.nist

writes ``bench/results/nist.md`` and ``nist.json``. Every method runs with exact derivatives and with its own finite
differences, at its own default tolerances; ``--tight`` asks all of them for 1e-15.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from tests.helpers import nist

import problm

from ..harness import record
from ..harness.summary import markdown_table

METHODS: dict[str, dict[str, Any]] = {
    "ProBLM": {},
    "SciPy lm": {"method": "lm"},
    "SciPy trf": {"method": "trf", "x_scale": "jac"},
}


def run(case: nist.Certified, start: int, method: str, exact: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Digits, or zeros and the reason, of one fit with or without exact derivatives."""
    curve_fit = problm.curve_fit if method == "ProBLM" else scipy.optimize.curve_fit
    calls = 0

    def model(x, *b):
        nonlocal calls
        calls += 1
        return case.model(x, *b)

    row: dict[str, Any] = {
        "problem": case.name, "level": case.difficulty, "start": start + 1, "method": method, "exact": exact,
    }  # fmt: skip
    options = {**options, "jac": case.jacobian} if exact else options
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found, covariance = curve_fit(model, case.x, case.y, p0=case.starts[start], **METHODS[method], **options)
            deviations = np.sqrt(np.diag(covariance))
    except (RuntimeError, ValueError) as error:
        return row | {"parameters": [], "least": 0.0, "deviations": 0.0, "calls": calls, "failed": str(error)}
    each = nist.digits(found, case.parameters)
    return row | {
        "parameters": [round(float(v), 1) for v in each],
        "least": float(each.min()),
        "deviations": float(nist.digits(deviations, case.standard_deviations).min()),
        "calls": calls,
    }


def describe(rows: list[dict[str, Any]], title: str) -> list[str]:
    """A table: digits of the worst parameter / of the worst standard deviation (model calls)."""
    parts = [
        f"# NIST StRD, {title}",
        "Correct digits of the worst parameter / of the worst standard deviation, of the 11 that are certified (calls "
        "of the model).",
    ]
    for exact, told in ((True, "With exact derivatives"), (False, "Without: each by its own differences")):
        mine = [r for r in rows if r["exact"] == exact]
        lines = []
        for i in range(0, len(mine), len(METHODS)):
            row = mine[i : i + len(METHODS)]
            cells = [
                "failed" if "failed" in r else f"{r['least']:.1f} / {r['deviations']:.1f} ({r['calls']})" for r in row
            ]
            lines.append([row[0]["problem"], row[0]["level"], row[0]["start"], *cells])
        for text, key, enough in (
            ("6 digits in every parameter", "least", 6),
            ("4 in every deviation", "deviations", 4),
        ):
            counts = [sum(r[key] >= enough for r in mine if r["method"] == m) for m in METHODS]
            lines.append([f"**{text}**", "", "of 54", *counts])
        parts += [f"## {told}", markdown_table(["problem", "level", "start", *METHODS], lines)]
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tight", action="store_true", help="tolerances of 1e-15 for all methods")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    arguments = parser.parse_args()
    if not os.environ.get("PROBLM_DATA"):
        parser.error("set PROBLM_DATA to the folder that holds nist_strd")
    folder = Path(os.environ["PROBLM_DATA"]) / "nist_strd"
    options = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15} if arguments.tight else {}
    rows = []
    began = time.perf_counter()
    for name in nist.MODELS:
        case = nist.read(folder, name)
        for exact, start, method in [(e, s, m) for e in (True, False) for s in (0, 1) for m in METHODS]:
            more: dict[str, Any] = {}
            if arguments.tight and method != "ProBLM":
                more = {"maxfev" if method == "SciPy lm" else "max_nfev": 20_000}
            rows.append(run(case, start, method, exact, options | more))
    name = "nist_tight" if arguments.tight else "nist"
    title = "tolerances of 1e-15" if arguments.tight else "default tolerances"
    record.write(arguments.output, name, describe(rows, title), rows, record.about(seconds=time.perf_counter() - began))


if __name__ == "__main__":
    main()
