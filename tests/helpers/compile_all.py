"""Compiles every kernel into the cache on disk, before tests run in several processes.

Two processes import the package's modules from both ends of the list, so that each compiles about half. Tests would do
it too, each process for itself and with coverage watching the compiler, which takes three times as long.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys


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
        processes = [subprocess.Popen([sys.executable, __file__, order]) for order in ("forwards", "backwards")]
        sys.exit(max(p.wait() for p in processes))
