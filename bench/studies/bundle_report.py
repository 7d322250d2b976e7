"""Tables and curves of `bench.studies.bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

LM = "LM"


def table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(k for row in rows for k in row))

    def show(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(show(row.get(k)) for k in names) + " |" for row in rows]
    return "\n".join(lines)


def describe(parts: dict[str, Any]) -> list[str]:
    text = ["# Bundle adjustment and separable fits", "One thread."]
    for part, cases in parts.items():
        text.append(f"## {part}")
        for case, value in cases.items():
            if not isinstance(value, dict):
                text.append(f"{case}: {value}")
                continue
            text += [f"### {case}" + (f", F* = {value['F*']:.8g}" if "F*" in value else ""), table(value["rows"])]
            ratio = speedup(value["rows"])
            if ratio is not None:
                text.append(f"LM over ProBLM to 1.01 F*: {ratio:.1f}.")
    return text


def speedup(rows: list[dict[str, Any]]) -> float | None:
    times = {r.get("method"): r.get("ms to 1.01 F*") for r in rows}
    if times.get(LM) and times.get("ProBLM (hold-out)"):
        return float(times[LM] / times["ProBLM (hold-out)"])
    return None


def plot(parts: dict[str, Any], folder: Path) -> None:
    """Cost over time of every case with curves, as an SVG; None without Matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return
    cases = [(c, v) for p in parts.values() for c, v in p.items() if isinstance(v, dict) and "curves" in v]
    if not cases:
        return
    figure, axes = plt.subplots(1, len(cases), figsize=(5 * len(cases), 4), squeeze=False)
    for axis, (case, value) in zip(axes[0], cases, strict=True):
        for name, curve in value["curves"].items():
            axis.plot(1e3 * np.array(curve["seconds"]), np.array(curve["costs"]) / value["F*"], label=name)
        axis.set(title=case, xlabel="ms", ylabel="cost / F*", xscale="log", yscale="log")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "bundle.svg")
