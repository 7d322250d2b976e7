"""Description of the environment of a measurement: machine, versions, settings."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from .run import Experiment, Settings, code_digest, now

ROOT = Path(__file__).parents[2]
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


def commit() -> str | None:
    """Short hash of the checkout's commit, with a ``+`` if files of the package or the benchmarks differ from it;
    None outside a repository."""
    found = git("rev-parse", "--short=10", "HEAD")
    changed = git("status", "--porcelain", "--", "src", "bench/*.py", "bench/**/*.py")
    return None if found is None else found + ("+" if changed else "")


def git(*arguments: str) -> str | None:
    """What git says in the checkout; None without git, or if it refuses."""
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def command(arguments: Sequence[str] | None = None) -> str:
    """The command that is running, without the paths of folders, which are others elsewhere."""
    given = list(sys.argv if arguments is None else arguments)
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(given[0]).name
    shown = ["DIR" if os.sep in a else a for a in given[1:]]
    return " ".join([name, *shown])


def describe(settings: Settings, experiments: Sequence[Experiment], seconds: float) -> dict[str, Any]:
    """Date, machine and settings of a run of the experiments."""
    shown = asdict(settings)
    shown["data"] = "real data sets" if settings.data else "stand-ins"
    return {
        "when": now(),
        "commit": commit(),
        "command": command(),
        "seconds": round(seconds, 1),
        "seed": settings.seed,
        "settings": shown,
        "code": code_digest(),
        "machine": machine(),
        "versions": versions(),
        "methods": {e.name: {m.label: v for m, v in e.available().values()} for e in experiments},
    }
