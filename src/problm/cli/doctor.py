"""``problm doctor``: check the installation."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any

from .. import __version__
from .common import Debug, Json, Voice
from .exits import BUG, DONE, leave

_CORE = ("numpy", "scipy", "numba", "llvmlite")
_EXTRAS = {
    "vision": ("opencv-python-headless", "pillow"),
    "plot": ("matplotlib",),
    "cli": ("typer", "rich"),
    "big": ("pyarrow", "zarr", "dask"),
    "files": ("openpyxl", "h5py", "astropy", "pillow"),
    "jax": ("jax",),
    "torch": ("torch",),
}


def command(json: Json = False, debug: Debug = False) -> None:
    """Versions, threads, compile cache, extras, and a self-test of about two seconds."""
    voice = Voice(json)
    facts = collect()
    for title, entries in facts.items():
        voice.say(title)
        for name, value in entries.items():
            voice.say(f"  {name:<24} {value}")
    test = self_test()
    voice.say("self-test")
    for name, value in test.items():
        voice.say(f"  {name:<24} {value}")
    healthy = test["outcome"] == "passed"
    voice.finish({**facts, "self-test": test, "healthy": healthy})
    leave(DONE if healthy else BUG)


def collect() -> dict[str, dict[str, str]]:
    """Versions and locations of the installed packages."""
    from ..support.threads import available_threads

    versions = {"problm": __version__, "python": platform.python_version(), **{p: _version(p) for p in _CORE}}
    machine = {
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores for this process": str(available_threads()),
        **{k: os.environ[k] for k in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_DISABLE_JIT") if k in os.environ},
    }
    extras = {}
    for extra, packages in _EXTRAS.items():
        found = [f"{p} {_version(p)}" for p in packages if _version(p) != "missing"]
        missing = [p for p in packages if _version(p) == "missing"]
        told = ", ".join(found)
        if missing:
            told += f"{'; ' if found else ''}missing: {', '.join(missing)} (pip install 'problm[{extra}]')"
        extras[extra] = told
    return {"versions": versions, "machine": machine, "extras": extras, "compile cache": _cache()}


def _version(package: str) -> str:
    from importlib import metadata  # loads the modules of e-mail

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _cache() -> dict[str, str]:
    """Functions compiled ahead of time; folder of the cache, and whether it is writable."""
    from ..jit import library
    from ..jit.folder import folder as cache_folder
    from ..jit.warm_up import missing

    lacking, path = missing(), library.candidates()[:1]
    ahead = f"all {len(library.table())} functions" if not lacking else f"all but {len(lacking)} functions"
    folder = cache_folder()
    files = list(folder.glob("*.nbc"))
    writable = os.access(next(p for p in (folder, *folder.parents) if p.exists()), os.W_OK)
    return {
        "ahead of time": f"{ahead}, in {path[0]}" if path else "nothing: problm warmup makes the first calls faster",
        "folder": str(folder),
        "files": f"{len(files)}, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB",
        "writable": "yes" if writable else "no: every process compiles again; set NUMBA_CACHE_DIR to a writable folder",
    }


def self_test() -> dict[str, Any]:
    """Fit a million points with a known answer, twice."""
    import numpy as np

    from ..api.curve_fit import fit
    from ..support.compiling import seconds

    def decay(x: Any, a: float, b: float) -> Any:
        return a * np.exp(-b * x)

    rng = np.random.default_rng(0)
    x = rng.random(1_000_000)
    y = decay(x, 2.0, 1.5) + 0.1 * rng.standard_normal(x.size)
    times, compiling = [], seconds()
    for _ in range(2):
        began, before = time.perf_counter(), seconds()
        result = fit(decay, x, y, (1.0, 1.0))
        times.append(time.perf_counter() - began - (seconds() - before))
    off = np.abs(result.x - (2.0, 1.5)) / result.standard_errors
    passed = result.success and result.certified and bool((off < 6.0).all())
    return {
        "outcome": "passed" if passed else f"FAILED: {result.message} parameters {result.x}",
        "10^6 points": f"{times[0]:.3f} s, again {times[1]:.3f} s",
        "compiling for it": f"{seconds() - compiling:.3f} s",
        "off by standard errors": ", ".join(f"{v:.2f}" for v in off),
    }
