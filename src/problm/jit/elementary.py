r"""Elementary functions that the compiler can vectorise.

Numba calls the C library for ``exp``, ``log`` and so on, one value at a time. That takes 5 to 20 ns each, more than
the rest of a typical model. The functions here have no branches, no tables and no calls, so that LLVM inlines them into
a loop and runs it in vector registers; with AVX2 an ``exp`` takes about 1 ns. They follow the classical recipes:

exp, expm1
    ``x = k ln 2 + r`` (Cody and Waite, ln 2 in two parts), a polynomial in ``|r| <= ln(2)/2``, times
    ``2**k`` made from its bits.
log, log1p
    ``x = 2**k f`` with ``sqrt(1/2) < f < sqrt(2)`` taken from the bits, then the series of ``log(1 + f)`` in
    ``s = f / (2 + f)`` with the coefficients of fdlibm.
sin, cos
    ``x = k pi/2 + r`` with pi/2 in three parts of 33 bits and a rest, ``r`` in two parts; fdlibm's polynomials.
    Valid for ``|x| <= TRIG_LIMIT``; call the C library beyond it (`problm.kernels.tape` does).
arctan
    reduced to ``|x| <= tan(pi/8)`` with one division, a polynomial in ``x**2``.
erf, erfc
    a polynomial in ``x**2`` for ``|x| < 1``; ``exp(-x**2)`` times a polynomial in ``(x - 4)/(x + 4)`` elsewhere
    (Shepherd and Laframboise 1981), ``x**2`` in two parts.
power
    ``exp(y log x)`` with the logarithm and the product in two parts each.

Polynomials without a source are Chebyshev fits computed to 40 digits. All but `power`, `sin` and `cos` take any
argument, infinities and NaN included. The largest errors against 40-digit arithmetic, in units in the last place, are
asserted in ``tests/jit/test_elementary.py``: 1 for exp, log, sin, cos, arctan and erf, 1.5 for expm1, log1p and power,
2.5 for tanh, 4 for erfc.

The functions are compiled with ``contract`` (fused multiply-add) but without ``reassoc``, which would undo the
sums of two parts; LLVM keeps that flag on the inlined instructions whatever the flags of the caller.

Examples
--------
>>> import numpy as np
>>> from numba import njit
>>> from problm.jit import elementary
>>> @njit
... def decay(x, out):
...     for i in range(len(x)):
...         out[i] = elementary.exp(-x[i])
>>> x = np.linspace(0.0, 5.0, 1000)
>>> y = np.empty_like(x)
>>> decay(x, y)
>>> bool(np.allclose(y, np.exp(-x), rtol=4e-16, atol=0))
True
"""

from __future__ import annotations

import math

from numpy import sqrt as sqrt

from .intrinsics import bits_of, fma, number_of, select, shift_right
from .njit import part

_inline = part(forceinline=True, nogil=True, error_model="numpy", fastmath={"contract"})

_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer, left in the low bits
_TWO52 = 4503599627370496.0
_TWO52_BITS = 0x4330000000000000
_LOG2E = 1.4426950408889634
_LN2_HI = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LO = float.fromhex("0x1.a39ef35793c76p-33")
_SIGN = -0x8000000000000000


where = select


@_inline
def minimum(x, y):  # type: ignore[no-untyped-def]
    """The smaller of x and y; x if it is NaN."""
    return select(x > y, y, x)


@_inline
def maximum(x, y):  # type: ignore[no-untyped-def]
    """The greater of x and y; x if it is NaN."""
    return select(x < y, y, x)


@_inline
def ones_like(x):  # type: ignore[no-untyped-def]
    return 1.0


@_inline
def _power_of_two(shifted):  # type: ignore[no-untyped-def]
    """``2**k`` where ``shifted`` is ``k + _ROUND``, -1022 <= k <= 1023."""
    return number_of((bits_of(shifted) + 1023) << 52)


@_inline
def _cubic(x, x2, a, b, c, d):  # type: ignore[no-untyped-def]
    """``a + b x + c x**2 + d x**3``, in pairs (Estrin): Horner's chain of dependent operations takes twice the time."""
    return (a + b * x) + x2 * (c + d * x)


@_inline
def _exp_rest(r):  # type: ignore[no-untyped-def]
    """``exp(r) - 1 - r`` for ``|r| <= 0.3466``; error 1.2e-17 before rounding."""
    r2 = r * r
    r4 = r2 * r2
    p = _cubic(r, r2, 5.000000000000001e-01, 1.6666666666666669e-01, 4.166666666662413e-02, 8.333333333330062e-03)
    q = _cubic(r, r2, 1.3888888917213717e-03, 1.9841269863053618e-04, 2.4801521295954376e-05, 2.7557268459997064e-06)
    p += r4 * (q + r4 * (2.7620088445409746e-07 + r * 2.510038549551032e-08))
    return r2 * p


@_inline
def exp(x):  # type: ignore[no-untyped-def]
    """e to the power x; results below 4.5e-308 become 0."""
    x = select(x > 709.79, 709.79, x)
    x = select(x < -708.3, -708.3, x)
    shifted = x * _LOG2E + _ROUND
    k = shifted - _ROUND
    r = (x - k * _LN2_HI) - k * _LN2_LO
    p = 1.0 + (r + _exp_rest(r))
    # 2 p 2**(k-1), because the exponent k = 1024 of the largest results does not fit. The smallest, -1022, gives a
    # factor of zero: subnormal results would slow down everything that uses them.
    return (p + p) * number_of((bits_of(shifted) + 1022) << 52)


@_inline
def _halves(x):  # type: ignore[no-untyped-def]
    """``exp(x)`` and ``exp(x) - 1`` for -60 <= x <= 710, halved because 2**1024 overflows."""
    k = (x * _LOG2E + _ROUND) - _ROUND
    hi = x - k * _LN2_HI
    lo = k * _LN2_LO
    r = hi - lo
    lost = (hi - r) - lo
    p = _exp_rest(r) + (lost + lost * r)
    two = _power_of_two((k - 1.0) + _ROUND)
    return two * (1.0 + (r + p)), (two * r + (two - 0.5)) + two * p


@_inline
def expm1(x):  # type: ignore[no-untyped-def]
    """``exp(x) - 1``, accurate for small x."""
    y = select(x > 710.0, 710.0, x)
    y = select(y < -60.0, -60.0, y)
    return select(y != 0.0, 2.0 * _halves(y)[1], x)


@_inline
def _log_series(f):  # type: ignore[no-untyped-def]
    """``(s, R, f**2/2)`` with ``log(1 + f) = f - (f**2/2 - s (f**2/2 + R))`` for ``sqrt(1/2) < 1 + f < sqrt(2)``."""
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    odd = z * (
        0.6666666666666735130 + w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591))
    )
    return s, even + odd, 0.5 * f * f


@_inline
def _split(x):  # type: ignore[no-untyped-def]
    """``(k, f)`` with ``x = 2**k f`` and ``sqrt(1/2) < f < sqrt(2)``, for a normal positive x."""
    bits = bits_of(x) + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    # The biased exponent is converted to a float by writing it into the low bits of 2**52.
    k = number_of(shift_right(bits, 52) | _TWO52_BITS) - (_TWO52 + 1023.0)
    return k, number_of((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD)


@_inline
def log(x):  # type: ignore[no-untyped-def]
    """Natural logarithm; -inf at 0, NaN below."""
    tiny = x < 2.2250738585072014e-308
    k, f = _split(x * 18014398509481984.0 if tiny else x)
    k = k - 54.0 if tiny else k
    f -= 1.0
    s, R, half = _log_series(f)
    y = k * _LN2_HI - ((half - (s * (half + R) + k * _LN2_LO)) - f)
    y = y if x < math.inf else x
    y = y if x > 0.0 else -math.inf
    return y if x >= 0.0 else math.nan


@_inline
def log1p(x):  # type: ignore[no-untyped-def]
    """``log(1 + x)``, accurate for small x."""
    u = 1.0 + x
    k, f = _split(u)
    lost = (1.0 - (u - x)) if k >= 1.0 else (x - (u - 1.0))
    lost = lost / u if k != 0.0 else 0.0
    f = f - 1.0 if k != 0.0 else x
    s, R, half = _log_series(f)
    y = k * _LN2_HI - ((half - (s * (half + R) + (k * _LN2_LO + lost))) - f)
    y = y if x < math.inf else x
    y = y if x > -1.0 else -math.inf
    return y if x >= -1.0 else math.nan


@_inline
def tanh(x):  # type: ignore[no-untyped-def]
    """Hyperbolic tangent."""
    y = -2.0 * abs(x)
    half, half_m1 = _halves(select(y < -60.0, -60.0, y))
    # With E = exp(-2 |x|), tanh is (1 - E) / (1 + E), or 1 - 2 E / (1 + E) if E is small.
    far = y < -1.1
    q = select(far, 2.0 * half, -half_m1) / (0.5 + half)
    return math.copysign(select(far, 1.0 - q, q), x)


@_inline
def arctan(x):  # type: ignore[no-untyped-def]
    """Inverse tangent, in (-pi/2, pi/2)."""
    t = abs(x)
    large = t > 2.414213562373095
    middle = t > 0.41421356237309503
    top = -1.0 if large else (t - 1.0 if middle else t)
    bottom = t if large else (t + 1.0 if middle else 1.0)
    base = 1.5707963267948966 if large else (0.7853981633974483 if middle else 0.0)
    more = 6.123233995736766e-17 if large else (3.061616997868383e-17 if middle else 0.0)
    r = top / bottom
    z = r * r
    z2 = z * z
    z4 = z2 * z2
    p = _cubic(z, z2, -0.3333333333333333, 0.199999999999998, -0.14285714285659326, 0.11111111105106705)
    q = _cubic(z, z2, -0.09090908751076636, 0.0769229630497447, -0.06666423628069258, 0.058789145444006215)
    t = _cubic(z, z2, -0.052303478730160745, 0.04551108126325172, -0.034558092551413795, 0.01627194475162406)
    p += z4 * (q + z4 * t)
    return math.copysign(base + (r + (r * z * p + more)), x)


TRIG_LIMIT = 1.0e6
"""Largest argument of `sin`, `cos` and `sincos` for which the multiples of the parts of pi/2 are exact."""
_PIO2_1 = float.fromhex("0x1.921fb54400000p+0")
_PIO2_2 = float.fromhex("0x1.0b4611a600000p-34")
_PIO2_3 = float.fromhex("0x1.3198a2e000000p-69")
_PIO2_4 = float.fromhex("0x1.b839a252049c1p-104")


@_inline
def _reduce(x):  # type: ignore[no-untyped-def]
    """``(q, r, e)`` with ``x = k pi/2 + r + e``, ``|r| <= pi/4``, and the bits ``q`` of k."""
    shifted = x * 0.6366197723675814 + _ROUND
    k = shifted - _ROUND
    a = x - k * _PIO2_1
    b = k * _PIO2_2
    r1 = a - b
    part = r1 - a
    e1 = (a - (r1 - part)) - (b + part)
    t = k * _PIO2_3 - e1
    r = r1 - t
    return bits_of(shifted), r, ((r1 - r) - t) - k * _PIO2_4


@_inline
def sincos(x):  # type: ignore[no-untyped-def]
    """``(sin x, cos x)`` for ``|x| <= TRIG_LIMIT``."""
    q, r, e = _reduce(x)
    z = r * r
    s = 1.58969099521155010221e-10
    s = s * z - 2.50507602534068634195e-08
    s = s * z + 2.75573137070700676789e-06
    s = s * z - 1.98412698298579493134e-04
    s = s * z + 8.33333333332248946124e-03
    sine = r - ((z * (0.5 * e - (z * r) * s) - e) + (z * r) * 1.66666666666666324348e-01)
    c = -1.13596475577881948265e-11
    c = c * z + 2.08757232129817482790e-09
    c = c * z - 2.75573143513906633035e-07
    c = c * z + 2.48015872894767294178e-05
    c = c * z - 1.38888888888741095749e-03
    c = c * z + 4.16666666666666019037e-02
    half = 0.5 * z
    w = 1.0 - half
    cosine = w + (((1.0 - w) - half) + (z * (z * c) - r * e))
    swap = (q & 1) == 1
    a = cosine if swap else sine
    b = sine if swap else cosine
    # The signs follow from the quadrant: sin is negative in quadrants 2 and 3, cos in 1 and 2.
    return (
        number_of(bits_of(a) ^ ((q & 2) << 62)),
        number_of(bits_of(b) ^ (((q + 1) & 2) << 62)),
    )


@_inline
def sin(x):  # type: ignore[no-untyped-def]
    """Sine for ``|x| <= TRIG_LIMIT``."""
    return sincos(x)[0]


@_inline
def cos(x):  # type: ignore[no-untyped-def]
    """Cosine for ``|x| <= TRIG_LIMIT``."""
    return sincos(x)[1]


@_inline
def _erfc_positive(x):  # type: ignore[no-untyped-def]
    """``erfc(x)`` for x >= 0."""
    x = 28.0 if x > 28.0 else x
    t = (x - 4.0) / (x + 4.0)
    t2 = t * t
    t4 = t2 * t2
    p = _cubic(t, t2, 1.2329951186255526, -1.396211168405625e-01, 1.5379652102610162e-02, 6.80970542546862e-02) + t4 * (
        _cubic(t, t2, -1.0103906603585294e-01, 9.373283499865172e-02, -6.633036582050367e-02, 3.71675155318432e-02)
    )
    q = _cubic(
        t, t2, -1.619773397992426e-02, 5.031970032548695e-03, -7.577737141838885e-04, -1.9925700412184815e-04
    ) + t4 * (
        _cubic(t, t2, 1.506231178516207e-04, -2.439811794207995e-05, -1.1225140354449658e-05, 5.707239573693257e-06)
    )
    u = _cubic(
        t, t2, 2.9805960553227694e-07, -8.218020654813044e-07, 7.111912428010419e-08, 1.0683442926744582e-07
    ) + t4 * (
        _cubic(t, t2, -1.6357383982124745e-08, -1.2544825403855497e-08, 1.5712153638319019e-09, 9.65540822548282e-10)
    )
    t8 = t4 * t4
    p += t8 * (q + t8 * u)
    square = x * x
    error = fma(x, x, -square)
    e = exp(-square)
    return (e - e * error) * p / (1.0 + 2.0 * x)


@_inline
def _erf_small(x):  # type: ignore[no-untyped-def]
    """``erf(x)`` for ``|x| <= 1``."""
    z = x * x
    z2 = z * z
    z4 = z2 * z2
    q = _cubic(z, z2, 5.2239776071164225e-03, -8.548325975389692e-04, 1.2055294904839707e-04, -1.492473690741966e-05)
    t = _cubic(z, z2, 1.6447424703317362e-06, -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10)
    p = _cubic(
        z, z2, 0.1283791670955126, -3.7612638903183543e-01, 1.1283791670945006e-01, -2.686617064323777e-02
    ) + z4 * (q + z4 * t)
    # With 2/sqrt(pi) = 1 + 0.128... only the last rounding of the sum matters.
    return x + x * p


@_inline
def erf(x):  # type: ignore[no-untyped-def]
    """Error function."""
    t = abs(x)
    large = math.copysign(1.0 - _erfc_positive(t), x)
    return select(t >= 1.0, large, _erf_small(x))


@_inline
def erfc(x):  # type: ignore[no-untyped-def]
    """``1 - erf(x)``, accurate where it is small."""
    t = abs(x)
    tail = _erfc_positive(t)
    tail = select(x > 0.0, tail, 2.0 - tail)
    return select(t >= 0.5, tail, 1.0 - _erf_small(x))


@_inline
def power(x, y):  # type: ignore[no-untyped-def]
    """``x**y`` for a normal, finite x > 0 and ``|y log x| < 690``.

    Relative error about ``(1 + |y log x| / 64)`` units in the last place.
    """
    k, f = _split(x)
    top = f - 1.0
    bottom = f + 1.0
    # bottom = f + 1 is rounded; the rounding error goes into the second part of s = top / bottom.
    bottom_lost = f - (bottom - 1.0)
    s = top / bottom
    s_lost = (fma(-s, bottom, top) - s * bottom_lost) / bottom
    z = s * s
    p = 0.1479819860511658591
    p = p * z + 0.1531383769920937332
    p = p * z + 0.1818357216161805012
    p = p * z + 0.2222219843214978396
    p = p * z + 0.2857142874366239149
    p = p * z + 0.3999999999940941908
    p = p * z + 0.6666666666666735130
    # log x = k ln 2 + 2 s + s z p; the large part comes first and is exact.
    a = k * _LN2_HI
    b = 2.0 * s
    hi = a + b
    part = hi - a
    lost = (a - (hi - part)) + (b - part)
    lo = lost + (k * _LN2_LO + (2.0 * s_lost + s * z * p))
    log_hi = hi + lo
    log_lo = lo - (log_hi - hi)
    u = y * log_hi
    u_lost = fma(y, log_hi, -u) + y * log_lo
    e = exp(u)
    return e + e * u_lost
