"""Real roots of a polynomial, compiled: Sturm's chain to isolate them, Newton's method to find them."""

from __future__ import annotations

import numpy as np

from ..jit import types
from ..jit.njit import njit, part

_f8, _i8 = types.float64, types.int64
_compiled = {"nogil": True, "error_model": "numpy"}


@part(**_compiled, fastmath=False)
def _sign_changes(quotients, last, x):  # type: ignore[no-untyped-def]
    """Sign changes of the Sturm chain at x, by its recurrence from the last member up."""
    n = quotients.shape[0]
    below, here = 0.0, last
    changes = 0
    for k in range(n - 1, -1, -1):
        above = (quotients[k, 0] + quotients[k, 1] * x) * here - below
        changes += (above < 0.0) != (here < 0.0)
        below, here = here, above
    return changes


@part(**_compiled, fastmath=False)
def _middle(lo, hi):  # type: ignore[no-untyped-def]
    """Where to cut a bracket. Roots crowd around zero while Cauchy's bound is far out: halve its logarithm first."""
    if hi - lo <= 8.0:
        return 0.5 * (lo + hi)
    if lo < 0.0 < hi:
        return 0.0
    if lo >= 0.0:
        return np.sqrt(max(lo, 0.25) * hi)
    return -np.sqrt(max(-hi, 0.25) * -lo)


@njit(_i8(_f8[::1], _f8[::1]), any_types=True, **_compiled)
def real_roots(p, roots):  # type: ignore[no-untyped-def]
    """Real roots of the polynomial with ascending coefficients ``p``, written to ``roots``; returns their number.

    Sturm's chain isolates each simple root, a safeguarded Newton iteration finds it. Multiple roots, which do not
    come up in noisy data, may be missed.
    """
    n = p.shape[0] - 1
    largest = 0.0
    for k in range(n + 1):
        largest = max(largest, abs(p[k]))
    while n > 0 and abs(p[n]) <= 1e-14 * largest:
        n -= 1
    if n < 1 or not np.isfinite(largest):
        return 0
    # Chain p_0 = p, p_1 = p', p_{k+1} = -(p_{k-1} mod p_k); only the linear quotients are kept.
    a, b = np.empty(n + 1), np.empty(n + 1)
    quotients = np.empty((n, 2))
    bound = 0.0
    for k in range(n + 1):
        a[k] = p[k] / p[n]
        if k < n:
            bound = max(bound, abs(a[k]))
    for k in range(n):
        b[k] = (k + 1) * a[k + 1]
    monic = a.copy()
    length = 0
    deg = n
    last = 1.0
    while True:
        # Divide a (degree deg) by b (degree deg - 1).
        q1 = a[deg] / b[deg - 1]
        if deg == 1:
            quotients[length, 0], quotients[length, 1] = a[0] / b[0], q1
            length += 1
            last = b[0]
            break
        q0 = (a[deg - 1] - q1 * b[deg - 2]) / b[deg - 1]
        quotients[length, 0], quotients[length, 1] = q0, q1
        length += 1
        size = 0.0
        for k in range(deg - 1):
            r = q0 * b[k] - a[k]
            if k > 0:
                r += q1 * b[k - 1]
            a[k] = r
            size = max(size, abs(r))
        deg -= 1
        if not size > 0.0 or a[deg - 1] == 0.0:
            return 0  # a multiple root, or a chain that breaks off
        a, b = b, a
    chain = quotients[:length]
    limit = 1.0 + bound  # Cauchy's
    intervals = np.empty((n + 2, 4))
    lo, hi = -limit, limit
    intervals[0, 0], intervals[0, 1] = lo, hi
    intervals[0, 2] = _sign_changes(chain, last, lo)
    intervals[0, 3] = _sign_changes(chain, last, hi)
    top, count = 1, 0
    while top > 0:
        top -= 1
        lo, hi, at_lo, at_hi = intervals[top, 0], intervals[top, 1], intervals[top, 2], intervals[top, 3]
        inside = at_lo - at_hi
        if inside <= 0 or count >= roots.shape[0]:
            continue
        if inside == 1:
            roots[count] = _polish(monic, n, lo, hi)
            count += 1
            continue
        mid = _middle(lo, hi)
        if hi - lo < 1e-12 * (1.0 + abs(mid)):
            continue
        at_mid = _sign_changes(chain, last, mid)
        if at_lo > at_mid:  # only intervals with roots are kept, so there are never more than n
            intervals[top, 0], intervals[top, 1], intervals[top, 2], intervals[top, 3] = lo, mid, at_lo, at_mid
            top += 1
        if at_mid > at_hi:
            intervals[top, 0], intervals[top, 1], intervals[top, 2], intervals[top, 3] = mid, hi, at_mid, at_hi
            top += 1
    return count


@part(**_compiled, fastmath=False)
def _polish(p, n, lo, hi):  # type: ignore[no-untyped-def]
    """The one root of p in (lo, hi): Newton's steps, bisection where they leave the bracket."""
    flo = p[n]
    for k in range(n - 1, -1, -1):
        flo = flo * lo + p[k]
    x = 0.5 * (lo + hi)
    for _ in range(100):
        f, df = p[n], 0.0
        for k in range(n - 1, -1, -1):
            df = df * x + f
            f = f * x + p[k]
        if f == 0.0:
            break
        if (f < 0.0) == (flo < 0.0):
            lo = x
        else:
            hi = x
        new = x - f / df if df != 0.0 else lo
        if not (lo < new < hi):
            new = _middle(lo, hi)
        moved = abs(new - x)
        x = new
        if moved <= 1e-13 * (1.0 + abs(x)):
            break
    return x
