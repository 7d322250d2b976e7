"""Steps over all rows in compiled code, by the rules of the loop and with its bits.

Calls `problm.jit`, `problm.kernels` and the linear algebra. Start with `problm.solver.compiled.advance`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=2)
def taking_steps(rows: bool) -> Callable[[Any, Any], bool]:
    """The function ``(run, system) -> bool`` that takes steps in compiled code, for compiled rows or for functions;
    imported where it is needed."""
    if rows:
        from .loop import take_steps
    else:
        from .advance import take_steps
    return take_steps
