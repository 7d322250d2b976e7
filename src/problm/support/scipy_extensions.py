"""Extension modules of SciPy by themselves, without their packages, whose imports take longer than most fits.

If that fails (another SciPy, a platform whose libraries are found by SciPy's own import), the package is imported. The
functions are the same.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@lru_cache
def extension(package: str, name: str) -> Any:
    """The module ``scipy.package.name``."""
    whole = f"scipy.{package}.{name}"
    scipy = None if whole in sys.modules else importlib.util.find_spec("scipy")
    if scipy is not None and scipy.origin is not None:
        path = Path(scipy.origin).parent / package / f"{name}{EXTENSION_SUFFIXES[0]}"
        spec = importlib.util.spec_from_file_location(whole, path)
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
            sys.modules.pop(whole, None)  # SciPy's own import makes it an attribute of its package
    return importlib.import_module(whole)


def gammaincinv(a: float, probability: float) -> float:
    """`scipy.special.gammaincinv`."""
    return float(_gammaincinv()(a, probability))


@lru_cache
def _gammaincinv() -> Any:
    """SciPy's function, which lies in an extension module that needs no other since SciPy 1.15."""
    try:
        return extension("special", "_special_ufuncs").gammaincinv
    except (ImportError, AttributeError):
        from scipy.special import gammaincinv as whole

        return whole


def lmder(
    fun: Callable[[Array], Array], x0: Array, jac: Callable[[Array], Array], tolerance: float, gtol: float, calls: int
) -> Array:
    """MINPACK's Levenberg-Marquardt method, as in `scipy.optimize.leastsq`.

    Parameters
    ----------
    fun
        Residuals (n,) at a point (d,).
    x0
        (d,), with d <= n
    jac
        Derivatives (n, d).
    tolerance
        MINPACK's ftol and xtol.
    gtol
        MINPACK's gtol.
    calls
        Limit on the calls of ``fun``.

    Returns
    -------
    (d,) array
    """
    if not _as_known():
        from scipy.optimize import leastsq

        found = leastsq(
            fun, x0, Dfun=jac, full_output=True, ftol=tolerance, xtol=tolerance, gtol=gtol, maxfev=calls
        )  # fmt: skip
        return np.asarray(found[0])
    return _lmder(fun, np.array(x0), jac, tolerance, gtol, calls)


def _lmder(fun: Any, x0: Array, jac: Any, tolerance: float, gtol: float, calls: int) -> Array:
    minpack = extension("optimize", "_minpack")
    # No further arguments, no whole output; the rows of the Jacobian are residuals; factor and diag by default.
    found: Array = minpack._lmder(fun, jac, x0, (), 0, 0, tolerance, tolerance, gtol, calls, 100, None)[0]
    return found


@lru_cache
def _as_known() -> bool:
    """Whether MINPACK's private entry is as in the SciPy that this was written for: it solves ``(2 x - 4, x) = 0``."""
    try:
        found = _lmder(
            lambda x: np.array([2 * x[0] - 4, x[0]]), np.ones(1), lambda x: np.array([[2.0], [1.0]]), 1e-8, 0.0, 9
        )
    except Exception:
        return False
    return bool(found.shape == (1,) and abs(found[0] - 1.6) < 1e-8)
