"""The folder of compiled code."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder() -> Path:
    """The first writable one of NUMBA_CACHE_DIR, the package's own folder and the user's cache folder."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        return Path(configured, "problm")
    own = Path(__file__).resolve().parents[1] / "__pycache__"
    if os.access(own if own.exists() else own.parent, os.W_OK):
        return own
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        home = "~/Library/Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    place = os.path.expanduser(home)
    if place.startswith("~"):  # a user without a home folder: nothing can be kept, and the writer reports that
        place = os.devnull
    return Path(place, "problm").absolute()
