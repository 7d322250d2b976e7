"""The program ``problm``: thin commands over the library's public names.

Calls every other room. Start with `problm.cli.app`, then `problm.cli.fit`.

Exit codes: 0 done (a fit converged), 1 a fit ended without converging (its result is printed and written nevertheless),
2 wrong usage or bad input, 3 an optional package is missing, 4 an error inside ProBLM, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import sys

from .exits import MISSING, complain, delivered, interrupted, interruption, terminable


def main() -> None:
    """Entry point of the program. Typer and Rich come with the extra ``cli``; without them it says so."""
    with terminable():
        try:
            _run()
        except SystemExit as leaving:
            if not interrupted(leaving.code):
                raise
        except KeyboardInterrupt:  # before a command began: importing takes a moment
            complain("interrupted")
        except Exception:
            if not interrupted():
                raise
            complain("interrupted")
        else:
            return
        raise SystemExit(interruption()) from None


def _run() -> None:
    try:
        import typer  # noqa: F401
    except ImportError:
        print("problm: the command line needs Typer and Rich: pip install 'problm[cli]'", file=sys.stderr)
        raise SystemExit(MISSING) from None
    from .app import app

    with delivered():
        app(prog_name="problm")
