"""SciPy's wrappers of LAPACK, without the rest of `scipy.linalg`, whose import takes twice as long as that of NumPy.

They are in one extension module of SciPy, which is loaded by itself; if that fails (another SciPy, a platform whose
libraries are found by SciPy's own import), from `scipy.linalg.lapack`. The functions are the same.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

_NAME = "scipy.linalg._flapack"


def _loaded() -> Any:
    scipy = None if _NAME in sys.modules else importlib.util.find_spec("scipy")
    if scipy is not None and scipy.origin is not None:
        path = Path(scipy.origin).parent / "linalg" / f"_flapack{EXTENSION_SUFFIXES[0]}"
        spec = importlib.util.spec_from_file_location(_NAME, path)
        assert spec is not None
        assert spec.loader is not None
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except (ImportError, OSError):
            pass
        else:
            return module
        finally:
            sys.modules.pop(_NAME, None)  # SciPy's own import makes it an attribute of its package
    from scipy.linalg import lapack

    return lapack


_lapack = _loaded()
dposv, dpotrf, dpotri, dpotrs = _lapack.dposv, _lapack.dpotrf, _lapack.dpotri, _lapack.dpotrs
dsygvd, dtrtri = _lapack.dsygvd, _lapack.dtrtri
