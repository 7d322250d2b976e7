"""``problm bench``: the paper's figures, with peers. The harness lives beside the package, in ``bench/``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import Debug
from .exits import Bad, leave


def command(
    name: Annotated[str, typer.Argument(help="alignment, essential, curves, ..., or all.")] = "all",
    data: Annotated[Path | None, typer.Option("--data", help="Folder with the real data sets.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for tables and figures.")] = Path("out/bench"),
    debug: Debug = False,
) -> None:
    """Reproduce the figures of the paper, with the peers that are installed. Needs a checkout of the repository."""
    root = checkout()
    sys.path.insert(0, str(root))
    import importlib

    harness = importlib.import_module("bench.harness")
    leave(int(harness.main(name=name, data=data, output=output) or 0))


def checkout() -> Path:
    """The repository: ``PROBLM_CHECKOUT``, the current folder or one above it, or where the package lies."""
    given = os.environ.get("PROBLM_CHECKOUT")
    here = Path.cwd()
    places = [Path(given)] if given else [here, *here.parents, *Path(__file__).resolve().parents[3:4]]
    for place in places:
        if (place / "bench" / "harness.py").is_file():
            return place
    raise Bad(
        "the benchmarks are not part of the installed package: run this in a checkout of the repository, or set "
        "PROBLM_CHECKOUT to one"
    )
