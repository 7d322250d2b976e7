"""The quotients of forward differences of a curve, in one compiled call."""

from __future__ import annotations

from ..jit import types
from ..jit.njit import njit

_f8 = types.float64


@njit(types.void(_f8[:, ::1], _f8[::1], _f8[::1], _f8[::1], _f8[::1]), nogil=True, error_model="numpy")
def quotients(values, y, sigma, residuals, widths):  # type: ignore[no-untyped-def]
    """Turn values (d, n) at d moved points into derivatives of residuals, in place.

    NumPy's operations give the same bits, and take five times as long at a few hundred points.

    y, sigma, residuals : (n,) as of `problm.api.plain_curve.PlainCurve`; sigma may be empty.
    widths : (d,) the steps.
    """
    for a in range(len(values)):
        row, width = values[a], widths[a]
        if len(sigma) == 0:
            for i in range(len(row)):
                row[i] = (row[i] - y[i] - residuals[i]) / width
        else:
            for i in range(len(row)):
                row[i] = ((row[i] - y[i]) / sigma[i] - residuals[i]) / width
