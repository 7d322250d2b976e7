"""NIST StRD: correct digits of parameters and standard deviations, from both starts, beside SciPy's lm and trf.

    PROBLM_DATA=... python -m bench.studies.nist

writes ``bench/results/nist.md`` and ``nist.json``. Every method gets the exact derivatives and its own default
tolerances; ``--tight`` asks all of them for 1e-15.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.optimize
from tests.helpers import nist

import problm

HERE = Path(__file__).resolve().parents[1]

METHODS: dict[str, dict[str, Any]] = {
    "ProBLM": {},
    "SciPy lm": {"method": "lm"},
    "SciPy trf": {"method": "trf", "x_scale": "jac"},
}


def run(case: nist.Certified, start: int, method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Digits, or zeros and the reason, of one fit."""
    curve_fit = problm.curve_fit if method == "ProBLM" else scipy.optimize.curve_fit
    calls = 0

    def model(x, *b):
        nonlocal calls
        calls += 1
        return case.model(x, *b)

    record: dict[str, Any] = {"problem": case.name, "level": case.difficulty, "start": start + 1, "method": method}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found, covariance = curve_fit(
                model, case.x, case.y, p0=case.starts[start], jac=case.jacobian, **METHODS[method], **options
            )
            deviations = np.sqrt(np.diag(covariance))
    except (RuntimeError, ValueError) as error:
        return record | {"parameters": [], "least": 0.0, "deviations": 0.0, "calls": calls, "failed": str(error)}
    each = nist.digits(found, case.parameters)
    return record | {
        "parameters": [round(float(v), 1) for v in each],
        "least": float(each.min()),
        "deviations": float(nist.digits(deviations, case.standard_deviations).min()),
        "calls": calls,
    }


def markdown(records: list[dict[str, Any]], title: str) -> str:
    """A table: digits of the worst parameter / of the worst standard deviation (model calls)."""
    lines = [
        f"# NIST StRD, {title}",
        "",
        f"problm {problm.__version__}, SciPy {scipy.__version__}, NumPy {np.__version__}. Correct digits of the worst "
        "parameter / of the worst standard deviation, of the 11 that are certified (calls of the model). Exact "
        "derivatives for all.",
        "",
        "| problem | level | start | " + " | ".join(METHODS) + " |",
        "|---|---|---|" + "---|" * len(METHODS),
    ]
    for i in range(0, len(records), len(METHODS)):
        row = records[i : i + len(METHODS)]
        cells = ["failed" if "failed" in r else f"{r['least']:.1f} / {r['deviations']:.1f} ({r['calls']})" for r in row]
        lines.append(f"| {row[0]['problem']} | {row[0]['level']} | {row[0]['start']} | " + " | ".join(cells) + " |")
    for text, key, enough in (("6 digits in every parameter", "least", 6), ("4 in every deviation", "deviations", 4)):
        counts = [sum(r[key] >= enough for r in records if r["method"] == m) for m in METHODS]
        lines.append(f"| **{text}** | | of 54 | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Under its final name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tight", action="store_true", help="tolerances of 1e-15 for all methods")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if not os.environ.get("PROBLM_DATA"):
        parser.error("set PROBLM_DATA to the folder that holds nist_strd")
    folder = Path(os.environ["PROBLM_DATA"]) / "nist_strd"
    options = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15} if arguments.tight else {}
    records = []
    for name in nist.MODELS:
        case = nist.read(folder, name)
        for start in (0, 1):
            for method in METHODS:
                more = {"max_nfev": 20_000} if arguments.tight and method != "ProBLM" else {}
                if "max_nfev" in more and method == "SciPy lm":
                    more = {"maxfev": 20_000}
                records.append(run(case, start, method, options | more))
    stem = "nist_tight" if arguments.tight else "nist"
    text = markdown(records, "tolerances of 1e-15" if arguments.tight else "default tolerances")
    write(arguments.output / f"{stem}.md", text)
    write(arguments.output / f"{stem}.json", json.dumps(records, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
