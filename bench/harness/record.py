"""Results of a single command: ``NAME.md`` to read, ``NAME.json`` with everything that was measured, and on what."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ..__main__ import write_text
from . import environment
from .harness import code_digest, now

RESULTS = Path(__file__).parents[1] / "results"


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, least and greatest of repeats, and all of them."""
    return {
        "median": float(f"{statistics.median(values):.5g}"),
        "least": float(f"{min(values):.5g}"),
        "greatest": float(f"{max(values):.5g}"),
        "all": [float(f"{v:.5g}") for v in values],
    }


def told(found: dict[str, Any], unit: str = "", digits: int = 3) -> str:
    """A spread as text: median (least to greatest)."""
    middle, least, greatest = (f"{found[k]:.{digits}g}" for k in ("median", "least", "greatest"))
    space = " " if unit else ""
    return f"{middle}{space}{unit} ({least} to {greatest})"


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def write(
    folder: Path,
    name: str,
    text: Sequence[str],
    data: dict[str, Any],
    *,
    seed: int,
    seconds: float,
    packages: Sequence[str] = (),
) -> None:
    """Write both files; the paragraphs of ``text`` begin with the title."""
    versions = environment.versions()
    for package in packages:
        versions[package] = metadata.version(package)
    machine = environment.machine()
    about = {
        "when": now(), "seconds": round(seconds, 1), "seed": seed, "code": code_digest(), "machine": machine,
        "versions": versions,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json.dumps({**about, **data}, indent=1) + "\n")
    used = ("python", "problm", "numpy", "numba", *packages)
    foot = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_GiB']} GiB of memory, load at the end "
        f"{machine['load_at_the_end']}; {', '.join(f'{p} {versions[p]}' for p in used if p in versions)}; seed {seed}; "
        f"{seconds:.0f} s in all."
    )
    write_text(folder / f"{name}.md", "\n\n".join([*text, foot]) + "\n")
    print("\n\n".join([*text, foot]))
