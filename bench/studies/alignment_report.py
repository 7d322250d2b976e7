"""Tables and curves of `bench.studies.alignment`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..harness.summary import markdown_table


def draw_recovery(rows: list[dict[str, Any]], path: Path) -> None:
    """The recovery curves as an SVG; None without Matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    changes, methods = (list(dict.fromkeys(r[k] for r in rows)) for k in ("change", "method"))
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axis, change in zip(figure.subplots(2, 2).flat, changes, strict=True):
        for method in methods:
            mine = [r for r in rows if r["change"] == change and r["method"] == method]
            axis.semilogy([r["amount"] for r in mine], [r["median error, px"] for r in mine], "o-", label=method)
        axis.set_xlabel(change)
        axis.set_ylabel("median corner error, pixels")
        axis.grid(alpha=0.3)
    figure.axes[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def describe(found: dict[str, Any]) -> list[str]:
    """Title, tables and conclusions."""
    titles = {
        "lm": "Against plain LM on the full resolution",
        "truth": "Against ground truth",
        "starts": "From starts that are off",
        "recovery": "Noise, blur, occlusion, light",
    }
    parts = ["# Dense alignment", "CPU time, one thread."]
    for name, title in titles.items():
        if name in found:
            rows = found[name]["rows"]
            parts += [f"## {title}", markdown_table(list(rows[0]), [list(r.values()) for r in rows])]
            each = found[name].get("pairs", [])
            parts += [markdown_table(list(each[0]), [list(r.values()) for r in each])] if each else []
    parts += [against(found["starts"]["pairs"])] if "starts" in found else []
    if "lm" in found:
        for where in ("identity", "near the plane"):
            for way in ("batches", "align"):
                mine = [r for r in found["lm"]["rows"] if r["start"] == where and r["method"] == way]
                ratios = [r["LM's over it"] for r in mine]
                theirs = [r for r in found["lm"]["rows"] if r["start"] == where and r["method"] == "LM"]
                never = sum(not np.isfinite(r["s to 1.01 lowest"]) for r in theirs)
                below = sum(
                    a["final cost / lowest"] <= 1.001 * b["final cost / lowest"]
                    for a, b in zip(mine, theirs, strict=True)
                )
                parts.append(
                    f"From {where}, {way}: LM takes {np.median(ratios):.3g} times as long to 1.01 of its own final "
                    f"cost (median of {len(mine)}, least {min(ratios):.3g}), and never comes within 1 % of the lowest "
                    f"cost of the three on {never}. Final cost at most 0.1 % above LM's on {below}, within 0.1 % of "
                    f"the lowest on {sum(r['final cost / lowest'] <= 1.001 for r in mine)}."
                )
    return parts


def against(rows: list[dict[str, Any]]) -> str:
    """Pair by pair against each peer, as medians over the pairs."""
    lines = []
    mine = [r for r in rows if r["method"] == "problm.align"]
    for peer in dict.fromkeys(r["method"] for r in rows if r["method"] != "problm.align"):
        theirs = [r for r in rows if r["method"] == peer]
        error, seconds = (
            float(np.nanmedian([a[key] / b[key] for a, b in zip(mine, theirs, strict=True)]))
            for key in ("error where found, px", "s")
        )
        success = [float(np.mean([r["success"] for r in each])) for each in (mine, theirs)]
        lines.append(
            f"Against {peer}, medians over {len(mine)} pairs: {error:.2f} times its error, {seconds:.2f} times its "
            f"time; found from {success[0]:.0%} of all starts, it from {success[1]:.0%}."
        )
    return "\n\n".join(lines)
