"""Compiled costs of a block of rows: the linear loss here, robust losses by the address of `problm.kernels.robust`."""

from __future__ import annotations

from typing import Any

from ..jit import types
from ..jit.addresses import caller
from ..jit.njit import intrinsic, part
from .evaluator import FASTMATH

_f8, _i8 = types.float64, types.int64
COMPILED = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH}
ROBUST = _f8(_f8[:, ::1], _i8, _i8, _i8, _f8, _f8[::1], _f8[::1])
"""Signature of `problm.kernels.robust.robust_costs`."""
BENDS = types.void(_f8[:, ::1], _i8, _i8, _f8, _f8[::1])
"""Signature of `problm.kernels.robust.robust_bends`."""


@part(**COMPILED)
def plain_costs(out, m, p, cost):  # type: ignore[no-untyped-def]
    """Compute the costs of a block of rows by the linear loss; return their sum."""
    total = 0.0
    if p == 1:
        for i in range(m):
            cost[i] = 0.5 * out[0, i] * out[0, i]
            total += cost[i]
        return total
    for i in range(m):
        cost[i] = out[0, i] * out[0, i]
    for c in range(1, p):
        for i in range(m):
            cost[i] += out[c, i] * out[c, i]
    for i in range(m):
        cost[i] *= 0.5
    for i in range(m):
        total += cost[i]
    return total


@intrinsic
def call_robust(typing: Any, at: Any, out: Any, m: Any, p: Any, code: Any, scale: Any, cost: Any, weight: Any) -> Any:
    """Call `problm.kernels.robust.robust_costs` by address."""
    return ROBUST.return_type(_i8, *ROBUST.args), caller(ROBUST)


@intrinsic
def call_bends(typing: Any, at: Any, out: Any, m: Any, code: Any, scale: Any, bend: Any) -> Any:
    """Call `problm.kernels.robust.robust_bends` by address."""
    return BENDS.return_type(_i8, *BENDS.args), caller(BENDS)
