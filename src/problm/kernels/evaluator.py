r"""The evaluator: a model as one compiled function of a block of rows, called by address.

An *evaluator* computes residuals and derivatives of at most 128 rows. It has the signature ``EVALUATOR`` and this
contract::

    @evaluator
    def my_evaluator(theta, rows, m, program, constants, jacobian, out):
        # theta (q,) the point; rows (columns, 128) this block's data as float64; m <= 128 rows are valid;
        # program, constants: int64 and float64 arrays of the model (addresses of images, a tape, ...);
        # out (p * (1 + d), 128): write residual c of row i to out[c, i] and, if jacobian != 0,
        # its derivative with respect to tangent parameter a to out[p + c * d + a, i].

The passes (`problm.kernels.passes`) call it by address (`problm.jit.addresses`), once per block, so that they are
compiled only once for all models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..jit import types
from ..jit.addresses import caller
from ..jit.njit import intrinsic, njit

BLOCK = 128

_f8, _i8 = types.float64, types.int64
EVALUATOR = types.void(_f8[::1], _f8[:, ::1], _i8, _i8[::1], _f8[::1], _i8, _f8[:, ::1])
# Reassociation lets dot products of columns use vector registers; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


def evaluator(function: Callable[..., None]) -> Any:
    """Compile an evaluator with the signature that the passes call; it is cached on disk."""
    return njit(EVALUATOR, nogil=True, error_model="numpy", fastmath=FASTMATH)(function)


@intrinsic
def call_evaluator(
    typing: Any, at: Any, theta: Any, rows: Any, m: Any, program: Any, constants: Any, jacobian: Any, out: Any
) -> Any:
    return types.void(_i8, *EVALUATOR.args), caller(EVALUATOR)
