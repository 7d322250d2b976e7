"""Tables of `bench.studies.two_view`."""

from __future__ import annotations

from typing import Any

from ..harness.summary import markdown_table


def table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return markdown_table(columns, [[row.get(c, "") for c in columns] for row in rows])


def pivot(rows: list[dict[str, Any]], down: str, across: tuple[str, ...], value: str) -> str:
    """Methods side by side."""
    keys = list(dict.fromkeys(row[down] for row in rows))
    heads = list(dict.fromkeys(tuple(row[a] for a in across) for row in rows))
    cells = {(row[down], tuple(row[a] for a in across)): _cell(row, value) for row in rows}
    lines = [[str(k), *(cells.get((k, h), "") for h in heads)] for k in keys]
    return markdown_table([down, *(" ".join(str(v) for v in h) for h in heads)], lines)


def _cell(row: dict[str, Any], value: str) -> Any:
    if value != "success" or "interval" not in row:
        return row[value]
    low, high = row["interval"]
    return f"{row[value]:.3g} ({low:.2f} to {high:.2f})"


def describe(found: dict[str, Any]) -> list[str]:
    """Title and tables."""
    parts = ["# Two-view geometry", "CPU time, one thread."]
    if "refine" in found:
        flat = []
        for row in found["refine"]["rows"]:
            times = {f"{k}, ms": 1e3 * v for k, v in row["seconds"].items()}
            flat.append(
                {"n": row["n"], **times, **{k: v for k, v in row.items() if k not in ("n", "seconds", "starts")}}
            )
        parts += ["## Refinement to the certificate", table(flat)]
    for name in ("simulated", "strecha"):
        if name in found:
            parts += [f"## Robust pose, {name}", table(found[name]["rows"])]
    if "shares" in found:
        rows = found["shares"]["rows"]
        runs = sorted({row["runs"] for row in rows})
        text = f"Wilson's 95 % intervals; {' or '.join(map(str, runs))} runs per share, the more of them for ours."
        parts += [f"## Success against the share of inliers\n\n{text}"]
        parts += [pivot(rows, "share", ("method",), "success")]
        parts += ["Median milliseconds:", pivot(rows, "share", ("method",), "median ms")]
    if "time" in found:
        rows = found["time"]["rows"]
        parts += ["## Success against a time limit", pivot(rows, "limit ms", ("method", "share"), "success")]
    return parts
