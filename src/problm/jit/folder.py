"""The folder of compiled code, and whose code in it is run."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def folder() -> Path:
    """The first writable one of NUMBA_CACHE_DIR, the package's own folder and the user's cache folder."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        return Path(configured, "problm")
    own = PACKAGE / "__pycache__"
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


def refuse_strangers(path: Path) -> None:
    """Raise ValueError if other users may have written this file of code: it would run with our rights.

    Trusted are root, the present user and group, and the owner of the package; a cache in a shared
    folder (``NUMBA_CACHE_DIR``) may hold files of anybody. Files in the package's folder are as safe as its sources.
    """
    if not hasattr(os, "geteuid") or PACKAGE in path.absolute().parents:
        return
    file, place = os.stat(path), os.stat(path.parent)
    if {file.st_uid, place.st_uid} - {0, os.geteuid(), os.stat(__file__).st_uid}:
        raise ValueError(f"{path} belongs to another user")
    if _others_may_write(file) or (_others_may_write(place) and not place.st_mode & stat.S_ISVTX):
        raise ValueError(f"others may write to {path}")


def _others_may_write(found: os.stat_result) -> bool:
    """Whether everybody may, or the members of a group that is not the present user's first one."""
    group = bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in (0, os.getegid())
    return group or bool(found.st_mode & stat.S_IWOTH)
