"""``python -m tests.hardship.fuzz [TARGET...] [--seconds 600] [--seed 0]``: exit code 1 for a bug."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback

from .driver import fuzz, limit_memory
from .isolated import ENDED
from .targets import TARGETS


def _ended(name: str) -> str:
    count = ENDED.get({"tiff": "picture"}.get(name, name), 0)
    return f"; its process was ended {count:,} times" if count else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.hardship.fuzz", description="Hostile input for every parser."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all if not given")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first round (default: %(default)s)")
    options = parser.parse_args()
    if unknown := [t for t in options.targets if t not in TARGETS]:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    limit_memory()
    bugs = 0
    for name in options.targets or TARGETS:
        needs = TARGETS[name].needs
        if needs and importlib.util.find_spec(needs) is None:
            print(f"{name}: left out, {needs} is not installed")
            continue
        try:
            print(f"{name}: {fuzz(name, options.seconds, options.seed):,} cases, no bug{_ended(name)}")
        except Exception:
            bugs += 1
            traceback.print_exc()
            print(f"{name}: a bug, see above")
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
