"""Description of the environment of a measurement: machine, versions, settings."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from .run import Experiment, Settings, code_digest, now

PACKAGES = ("problm", "numpy", "scipy", "numba")
PEERS = ("opencv-python-headless", "poselib", "pyceres", "optimistix", "jaxopt", "jax")


def versions(more: Sequence[str] = PEERS) -> dict[str, str]:
    """Versions of Python, of the packages that every fit uses, and of the installed packages among ``more``."""
    found = {"python": platform.python_version()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Processor, cores and memory, but not the name of the machine."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {
        "processor": model, "cores": os.cpu_count(), "memory_GiB": memory, "system": platform.system(),
        "load_at_the_end": load,
    }  # fmt: skip


def describe(settings: Settings, experiments: Sequence[Experiment], seconds: float) -> dict[str, Any]:
    """Date, machine and settings of a run of the experiments."""
    shown = asdict(settings)
    shown["data"] = "real data sets" if settings.data else "stand-ins"
    return {
        "when": now(),
        "seconds": round(seconds, 1),
        "seed": settings.seed,
        "settings": shown,
        "code": code_digest(),
        "machine": machine(),
        "versions": versions(),
        "methods": {e.name: {m.label: v for m, v in e.available().values()} for e in experiments},
    }
