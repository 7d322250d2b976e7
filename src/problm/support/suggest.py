"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: object, choices: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest choice, or an empty string."""
    near = difflib.get_close_matches(str(name), list(choices), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
