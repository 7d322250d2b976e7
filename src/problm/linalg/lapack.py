"""SciPy's wrappers of BLAS and LAPACK, without the rest of `scipy.linalg`, which takes longer to import than NumPy."""

from __future__ import annotations

from ..support.scipy_extensions import extension

_blas, _lapack = extension("linalg", "_fblas"), extension("linalg", "_flapack")
dposv, dpotrf, dpotri, dpotrs = _lapack.dposv, _lapack.dpotrf, _lapack.dpotri, _lapack.dpotrs
dtrsm = _blas.dtrsm
dsygvd, dtrtri = _lapack.dsygvd, _lapack.dtrtri
