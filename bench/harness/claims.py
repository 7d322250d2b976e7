"""The page "The paper, reproduced": one row per claim, from the published results of the experiments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from . import record
from .summary import markdown_table

NONE = "–"


def published(folder: Path) -> dict[str, dict[str, Any]]:
    """The results in the folder by stem, in the order of the paper."""
    from ..paper import NAMES

    stems = [s for name in NAMES for s in (f"{name}-real", name)]
    paths = {s: folder / f"{s}.json" for s in stems}
    return {s: json.loads(p.read_text(encoding="utf-8")) for s, p in paths.items() if p.exists()}


def rows(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per claim: where, text, what was found on real data and on made ones, and the verdicts on both."""
    found: dict[str, dict[str, Any]] = {}
    for stem, result in results.items():
        kind = "real" if stem.endswith("-real") else "made"
        for claim in result["data"].get("claims", ()):
            row = found.setdefault(claim["key"], {"where": claim["where"], "claim": claim["text"]})
            row[kind], row[f"{kind} verdict"] = claim["found"], claim["verdict"]
    return sorted(found.values(), key=lambda row: order(row["where"]))


def order(where: str) -> tuple[int, int, str]:
    """Sections first, then figures by number."""
    number = re.search(r"\d+", where)
    return ("Fig." in where, int(number.group()) if number else 0, where)


def judged(row: dict[str, Any]) -> str:
    """The verdict on real data, and that on made ones if it differs or is the only one."""
    real, made = row.get("real verdict"), row.get("made verdict")
    if real is None or made is None or real == made:
        return f"**{real or made}**"
    return f"**{real}**; stand-ins: {made}"


def write_claims(folder: Path) -> None:
    """Write ``claims.md`` and ``claims.json`` beside the results that they summarise."""
    results = published(folder)
    found = rows(results)
    if not found:
        return
    cells = [[row["where"], row["claim"], row.get("real", NONE), row.get("made", NONE), judged(row)] for row in found]
    measured = {stem: result["about"] for stem, result in results.items() if result["data"].get("claims")}
    first = min(measured.values(), key=lambda about: str(about["when"]))
    commits = sorted({str(about.get("commit")) for about in measured.values()})
    known = {**first, "commit": ", ".join(commits), "seconds": sum(a.get("seconds") or 0.0 for a in measured.values())}
    known = {k: v for k, v in known.items() if k not in ("settings", "methods")}
    scales = sorted({str(about.get("settings", {}).get("scale", "unknown")) for about in measured.values()})
    text = [
        "# The claims of the paper",
        "Ratios are medians (least to greatest over five seeds). *Real data*: AdelaideRMF, Strecha's and ETH3D's "
        "matches, the authors' own demo pair, Sceaux castle. *Stand-ins*: made from the seed. A claim *agrees* if "
        "our figure shows it for the paper's own method, *agrees in part* if only for some of the cases or for our "
        f"default, and *disagrees* otherwise. Scale of the runs: {', '.join(scales)}.",
        markdown_table(["where", "claim of the paper", "found on real data", "found on stand-ins", "verdict"], cells),
    ]
    record.write(folder, "claims", text, found, known, quiet=True)
