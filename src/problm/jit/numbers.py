"""The functions of a loss's rule (`problm.losses`) for single numbers in compiled code: those of the C library.

`problm.jit.elementary` has the same names for loops over many.
"""

from __future__ import annotations

from numpy import arctan, exp, expm1, log1p, sqrt

from .elementary import maximum, minimum, ones_like, where

__all__ = ["arctan", "exp", "expm1", "log1p", "maximum", "minimum", "ones_like", "sqrt", "where"]
