"""Where compiled code is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder() -> Path:
    """NUMBA_CACHE_DIR, the package's own folder, or the user's folder for caches: the first that can be written."""
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
    if place.startswith("~"):  # a user without a home: nothing can be kept, which whoever tries it says
        place = os.devnull
    return Path(place, "problm").absolute()
