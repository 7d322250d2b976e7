"""``make results-check``: list the committed results that are older than the code that they measure.

    python -m bench.harness.stale

Each result records the commit at which it was measured, and the table in ``bench/README.md`` names the parts of the
package that it measures. A result is old if commits since then, or changes that are not committed, touch those parts or
the study itself.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from .environment import ROOT, git
from .record import RESULTS

CORE = ("api", "solver", "linalg", "sampling", "kernels", "problems", "models", "losses.py", "jit")
"""Parts that every fit goes through; ``core`` in the table."""


@dataclass(frozen=True)
class Row:
    """A row of the table: files of a result, the command that makes them, and the parts that it measures."""

    files: list[str]
    command: str
    pages: list[str]
    """Paths of the pages that show it."""
    parts: list[str]

    def paths(self) -> list[str]:
        """Paths in the repository that matter: the parts of the package, and the module of the command."""
        parts = [p for part in self.parts for p in (CORE if part == "core" else (part,))]
        module = re.findall(r"python -m (bench[\w.]*)", self.command)[0].replace(".", "/")
        studies = ["bench/paper", "bench/harness/methods.py", "bench/data"] if module == "bench" else [module]
        found = [f"src/problm/{part}" for part in parts] + studies
        return [p if (ROOT / p).exists() else f"{p}.py" for p in found]


def table(text: str) -> list[Row]:
    """The rows of the table in ``bench/README.md``."""
    rows = []
    for line in text.splitlines():
        if re.match(r"\| `[\w/*-]+\.\w+`", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            pages = [f"docs/{name}" for name in _files(cells[2])] + ["README.md"] * cells[2].endswith("README")
            rows.append(Row(_files(cells[0]), cells[1], pages, cells[3].split()))
    return rows


def _files(cell: str) -> list[str]:
    """Names of files; one that begins with a dot is a suffix of the one before."""
    names: list[str] = []
    for name in re.findall(r"`([^`]+)`", cell):
        names.append(names[-1].rpartition(".")[0] + name if name.startswith(".") else name)
    return names


def changes_since(commit: str, paths: list[str]) -> int | None:
    """Number of commits since then that touch the paths, one more for changes that are not committed; None if the
    commit is not known here."""
    first = commit.split(" ")[0].rstrip("+")
    found = git("rev-list", "--count", f"{first}..HEAD", "--", *paths)
    pending = git("status", "--porcelain", "--", *paths)
    return None if found is None else int(found) + bool(pending)


def listed(folder: Path = RESULTS) -> list[tuple[str, str, int | None]]:
    """Each result with the commit that it names, and the number of changes since."""
    rows = table((ROOT / "bench" / "README.md").read_text(encoding="utf-8"))
    found = []
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder))
        row = next(r for r in rows if any(fnmatch(name, pattern) for pattern in r.files))
        commit = json.loads(path.read_text(encoding="utf-8"))["about"]["commit"]
        found.append((name, commit, changes_since(commit, row.paths())))
    return found


def main() -> int:
    """Return 1 if a result is older than its code, else 0."""
    everything = listed()
    old = [entry for entry in everything if entry[2] != 0 or "before" in entry[1]]
    for name, commit, count in old:
        told = "a commit that is not in this history" if count is None else f"{count} changes since"
        print(f"{name:36} {commit}: {told}")
    print(f"{len(everything) - len(old)} of {len(everything)} results are as new as the code that they measure")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
