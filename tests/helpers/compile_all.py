"""Compiles every kernel into the cache on disk, before tests run in several processes.

Two processes import the package's modules from both ends of the list, so that each compiles about half. Tests would do
it too, each process for itself and with coverage watching the compiler, which takes three times as long.

Numba compiles a function again when its own file has changed, not when that of a function which it calls has. So what
is older than any source file is deleted first.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def delete_stale() -> None:
    newest = max(path.stat().st_mtime for path in SOURCES.rglob("*.py"))
    for path in SOURCES.rglob("*.nb[ic]"):
        if path.stat().st_mtime < newest:
            path.unlink()


def load(backwards: bool) -> None:
    import problm

    names = [m.name for m in pkgutil.walk_packages(problm.__path__, "problm.") if not m.name.endswith("__main__")]
    for name in reversed(names) if backwards else names:
        try:
            importlib.import_module(name)
        except ImportError as error:  # an optional package
            print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load(sys.argv[1] == "backwards")
    else:
        delete_stale()
        processes = [subprocess.Popen([sys.executable, __file__, order]) for order in ("forwards", "backwards")]
        sys.exit(max(p.wait() for p in processes))
