"""What a process that reads an untrusted file may still do: read the files that are open, compute, and answer."""

from __future__ import annotations

import os

MEMORY = 1 << 28
"""Bytes of address space for the reader itself, beyond twice the room of its columns."""


def seconds_for(size: int) -> int:
    """Seconds of computing for a file of ``size`` bytes: a slow reader takes one for a megabyte."""
    return 20 + size // 1_000_000


def confine(size: int, room: int) -> None:
    """Limit this process for the rest of its life; exactly one more file can be opened.

    Without POSIX limits nothing happens.
    """
    try:
        import resource
    except ImportError:
        return
    with open("/proc/self/statm") if os.path.exists("/proc/self/statm") else open(os.devnull) as file:
        pages = file.read().split()
    if pages:  # elsewhere the address space that is in use is not known
        used = int(pages[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, used + MEMORY + 2 * room)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_CPU, seconds_for(size))
    if hasattr(resource, "RLIMIT_NPROC") and os.getuid() != 0:
        _lower(resource.RLIMIT_NPROC, 0)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    _lower(resource.RLIMIT_NOFILE, free + 1)


def _lower(kind: int, value: int) -> None:
    import resource

    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
