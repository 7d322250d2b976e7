"""``problm bench``: the paper's figures, with peers. The harness is in ``bench/``, outside the package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import typer

from .exits import Bad, interruption, leave

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
_GRACE, _PATIENCE = 0.5, 10.0
"""Seconds to wait for the harness to end by itself, and after it was terminated."""


def command(ctx: typer.Context) -> None:
    """Reproduce the paper's figures, with the peers that are installed: problm bench all. Needs a checkout."""
    root = checkout()
    inherited = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(root), *([inherited] if inherited else [])])
    arguments = ctx.args or ["--help"]
    # -P: use the harness of the checkout, not one in the current folder.
    with subprocess.Popen(  # noqa: S603  our own interpreter, arguments as the user gave them, no shell
        [sys.executable, "-P", "-m", "bench", *arguments], env={**os.environ, "PYTHONPATH": paths}
    ) as harness:
        try:
            code = harness.wait()
        except KeyboardInterrupt:
            _stop(harness)
            code = interruption()
    leave(code if code >= 0 else 128 - code)


def _stop(harness: subprocess.Popen[bytes]) -> None:
    """End the harness as Control-C would; a signal that was sent only to this process has not reached it."""
    try:
        harness.wait(_GRACE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        harness.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        try:
            harness.wait(_PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            harness.kill()


def checkout() -> Path:
    """The repository: ``PROBLM_CHECKOUT``, the current folder or one above it, or that of the package."""
    given = os.environ.get("PROBLM_CHECKOUT")
    here = Path.cwd()
    places = [Path(given)] if given else [here, *here.parents, *Path(__file__).resolve().parents[3:4]]
    for place in places:
        if (place / "bench" / "__main__.py").is_file():
            return place
    raise Bad(
        "the benchmarks are not part of the installed package: run this in a checkout of the repository, or set "
        "PROBLM_CHECKOUT to one"
    )
