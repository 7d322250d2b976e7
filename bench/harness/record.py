"""Results: ``NAME.md`` to read and ``NAME.json`` with everything that was measured, written by one function.

The JSON holds ``about`` (when, on what, with which versions and seed) and ``data``; the text ends with a paragraph that
says the same.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from problm.support.files import write_atomically

from . import environment
from .run import code_digest, now, plain

RESULTS = Path(__file__).parents[1] / "results"


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, smallest and largest of repeats, and all values."""
    return {
        "median": float(f"{statistics.median(values):.5g}"),
        "least": float(f"{min(values):.5g}"),
        "greatest": float(f"{max(values):.5g}"),
        "all": [float(f"{v:.5g}") for v in values],
    }


def told(found: dict[str, Any], unit: str = "", digits: int = 3) -> str:
    """A spread as text: median (smallest to largest)."""
    middle, least, greatest = (f"{found[k]:.{digits}g}" for k in ("median", "least", "greatest"))
    space = " " if unit else ""
    return f"{middle}{space}{unit} ({least} to {greatest})"


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def about(*, seconds: float, seed: int | None = None, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Date and machine of a result; ``packages`` are those whose versions matter besides the usual ones."""
    return {
        "when": now(), "commit": environment.commit(), "command": environment.command(),
        "seconds": round(seconds, 1), "seed": seed, "code": code_digest(),
        "machine": environment.machine(), "versions": environment.versions(packages),
    }  # fmt: skip


def foot(known: Mapping[str, Any]) -> str:
    """The last paragraph of a text, from what was recorded."""
    machine = known.get("machine", {})
    at = f" at commit {known['commit']}" if known.get("commit") else ""
    parts = [f"Measured {known['when'][:10]}{at}" + (f" on {machine['processor']}" if "processor" in machine else "")]
    if "cores" in machine:
        parts.append(f"{machine['cores']} cores")
    if machine.get("memory_GiB") is not None:
        parts.append(f"{machine['memory_GiB']} GiB of memory")
    if machine.get("load_at_the_end") is not None:
        parts.append(f"load {machine['load_at_the_end']} at the end")
    more = [", ".join(f"{name} {version}" for name, version in known.get("versions", {}).items())]
    settings = known.get("settings", {})
    more += [f"{settings['data']}, scale {settings['scale']}"] if settings else []
    more += [f"seed {known['seed']}"] if known.get("seed") is not None else []
    more += [f"{known['seconds']:.0f} s in all"] if known.get("seconds") is not None else []
    more += [f"`{known['command']}`"] if known.get("command") else []
    return "; ".join([", ".join(parts), *filter(None, more)]) + "."


def write(
    folder: Path, name: str, text: Sequence[str], data: Any, known: Mapping[str, Any], *, quiet: bool = False
) -> None:
    """Write both files, and print the text.

    Parameters
    ----------
    folder
        Output folder; created if necessary.
    name
        Name of the files, without suffix.
    text
        Paragraphs; the first one is the title.
    data
        The measurements: numbers, text, lists and dicts, also NumPy numbers and arrays.
    known
        The result of `about`.
    quiet
        Whether not to print.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"about": dict(known), "data": plain(data)}
    write_atomically(folder / f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    page = "\n\n".join([*text, foot(known)]) + "\n"
    write_atomically(folder / f"{name}.md", page)
    if not quiet:
        print(page, flush=True)


def read(folder: Path, name: str) -> Any:
    """The data of a result, or None if there is none."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["data"] if path.exists() else None
