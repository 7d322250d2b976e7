"""Functions for the rules of losses (`problm.losses`) on single numbers in compiled code, from the C library.

`problm.jit.elementary` has functions of the same names for vectorised loops.
"""

from __future__ import annotations

from numpy import arctan, exp, expm1, log1p, sqrt

from .elementary import maximum, minimum, ones_like, where

__all__ = ["arctan", "exp", "expm1", "log1p", "maximum", "minimum", "ones_like", "sqrt", "where"]
