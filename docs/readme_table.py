"""Writes the measured table into README.md, from ``bench/results/evaluations.json``: none of its figures is typed."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
PROBLEMS = {
    "exponential": "exponential decay",
    "dblgauss": "two Gaussians and a line",
    "sine": "damped sine, heavy tails",
    "essential": "essential matrix",
}
METHODS = {"LM": "LM, trust region", "paper": "Eq. 18 corrected, alpha .9", "ProBLM": "default (hold-out)"}


def table() -> str:
    """Markdown: work in units of N to 1 % and to a millionth above the minimum, and to each method's own stop."""
    records = json.loads((ROOT / "bench" / "results" / "evaluations.json").read_text())
    lines = [
        "| | N | to 1 % above the minimum: LM | paper | **ProBLM** | to 1e-6: LM | paper | **ProBLM** "
        "| to its stop: LM | paper | **ProBLM** |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for problem, title in PROBLEMS.items():
        n = max(r["n"] for r in records if r["problem"] == problem)
        found = {r["method"]: r for r in records if r["problem"] == problem and r["n"] == n}
        cells = []
        for column in ("c101", "c1e-6", "total"):
            for name, method in METHODS.items():
                value = f"{found[method][column]:.2g}" if column == "c101" else f"{found[method][column]:.1f}"
                cells.append(f"**{value}**" if name == "ProBLM" else value)
        lines.append(f"| {title} | {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """The README with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
