"""Limits on the memory of a solve."""

from __future__ import annotations

import os
import re
from pathlib import Path

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def as_bytes(max_memory: int | float | str | None) -> int:
    """Bytes from a number or from text such as ``"500MB"`` or ``"2 GiB"``; None is half of the free memory.

    Examples
    --------
    >>> as_bytes("1.5GB"), as_bytes("2 GiB"), as_bytes(1e6)
    (1500000000, 2147483648, 1000000)
    """
    if max_memory is None:
        return available() // 2
    if isinstance(max_memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?I?)B?\s*", max_memory.upper())
        if match is None or match[2] not in _UNITS:
            raise ValueError(f"max_memory must be bytes or text such as '500MB' or '2GiB', got {max_memory!r}")
        max_memory = float(match[1]) * _UNITS[match[2]]
    if not max_memory >= 10**6:
        raise ValueError(f"max_memory must be at least 1 MB, got {max_memory!r} bytes")
    return int(max_memory)


def available() -> int:
    """Memory available to the process, in bytes, with limits of containers; 1 GiB if unknown."""
    sizes = []
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            sizes.append(int(line.split()[1]) * 1024)
    limit, used = _text("/sys/fs/cgroup/memory.max").strip(), _text("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        sizes.append(max(int(limit) - int(used), 0))
    if not sizes and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return max(min(sizes, default=2**30), 2**26)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
