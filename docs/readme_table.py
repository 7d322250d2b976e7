"""Write the measured tables into README.md from the files in ``bench/results``, so that no figure is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PROBLEMS = {
    "exponential": "exponential decay",
    "dblgauss": "two Gaussians and a line",
    "sine": "damped sine, heavy tails",
    "essential": "essential matrix",
}
METHODS = {
    "LM": ("LM, trust region", "LM, lambda I, x10"),
    "paper": ("Eq. 18 corrected, alpha .9",),
    "ProBLM": ("default",),
}
"""Columns and the methods behind them; the better one counts."""
LIKE = {
    "curve": "curves",
    "robust curve": "curves with Cauchy's loss",
    "essential matrix, refined": "pose of two views, refined",
    "essential matrix, robust": "robust pose",
    "affine bundle": "affine bundle",
    "align": "real image pairs",
}
"""Kinds of problems of the comparison with our own LM."""


def results(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["data"]


def work() -> str:
    """Work in units of N to 1 % and to a millionth above the minimum, and to each method's own stop."""
    records = results("evaluations")
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
            for name, methods in METHODS.items():
                best = min(found[m][column] for m in methods)
                value = f"{best:.2g}" if column == "c101" else f"{best:.1f}"
                cells.append(f"**{value}**" if name == "ProBLM" else value)
        lines.append(f"| {title} | {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def like() -> str:
    """The default against our own LM, everything else equal: least and greatest median, and the worst single run."""
    rows = results("like_for_like")
    lines = ["| | N from 10^4 | from 10^5 | from 10^6 | from 10^7 |", "|---|---:|---:|---:|---:|"]
    for start, title in LIKE.items():
        mine = [r for r in rows if r["problem"].startswith(start)]
        cells = [_span([r["ratio"] for r in mine if n <= r["n"] < 10 * n]) for n in (10**4, 10**5, 10**6, 10**7)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _span(ratios: list[dict[str, float]]) -> str:
    """Medians from the least to the greatest, and the worst run; nothing without ratios."""
    if not ratios:
        return ""
    low, high = (f"{pick(r['median'] for r in ratios):.2g}" for pick in (min, max))
    return f"{low if low == high else f'{low} to {high}'} ({min(r['least'] for r in ratios):.2g})"


def peers() -> str:
    """Speed relative to the peers, including the rows where we are slower."""
    lines = ["| | size | against | times as fast |", "|---|---:|---|---:|"]

    def add(task: str, size: str, peer: str, ratio: float) -> None:
        lines.append(f"| {task} | {size} | {peer} | {f'**{ratio:.2g}**' if ratio >= 1.0 else f'{ratio:.2g}'} |")

    for row in results("speed")["rows"]:
        task, peer = row["task"], row["against"].split(":")[0]
        if "to the certificate" in task and row["N"] == "10,000,000":
            add(task, row["N"], f"{peer}, the fastest", row["ratio"])
        elif "curve_fit" in task and row["N"] in ("200", "10,000") and "and Jacobian" not in task:
            add(task.replace("problm.", ""), row["N"], peer, row["ratio"])
    for row in results("two_view")["refine"]["rows"]:
        add("pose of two views, refined", f"{row['n']:,}", "PoseLib", row["ratio"])
    return "\n".join(lines) + "\n"


def digits() -> str:
    """Number of NIST's certified problems that are solved to six digits, with and without exact derivatives."""
    told = []
    for exact, title in ((True, "with exact derivatives"), (False, "without")):
        found: dict[str, list[bool]] = {}
        for record in results("nist"):
            if record["exact"] == exact:
                found.setdefault(record["method"], []).append(record["least"] >= 6.0)
        told.append(f"{title}: " + ", ".join(f"{method} {sum(good)}" for method, good in found.items()))
    return f"Of {len(found['ProBLM'])} fits, with at least six correct digits in every parameter, {'; '.join(told)}.\n"


PARTS = {"like": like, "measured": work, "peers": peers, "digits": digits}


def filled(text: str) -> str:
    """The README with each part between its marks."""
    for name, part in PARTS.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{part()}{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
