"""Accuracy of the vectorised functions over their whole range, and that they are vectorised at all."""

import math

import numpy as np
import pytest
from numba import njit

from problm.jit import elementary as vm
from problm.jit.faddeeva import w

FLAGS = {"reassoc", "contract", "nsz", "arcp"}  # of the loops that use the functions


def over(function):
    @njit(error_model="numpy", fastmath=FLAGS)
    def loop(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    def call(x):
        x = np.ascontiguousarray(x, dtype=np.float64)
        out = np.empty_like(x)
        loop(x, out)
        return out

    call.loop = loop
    return call


NAMES = ("exp", "expm1", "log", "log1p", "tanh", "arctan", "sin", "cos", "erf", "erfc")
FUNCTIONS = {name: over(getattr(vm, name)) for name in NAMES}


def wide(rng, low, high, n, both=True):
    """Numbers of all sizes between low and high."""
    x = np.exp(rng.uniform(math.log(low), math.log(high), n))
    return np.concatenate([x, -x]) if both else x


def arguments(name, rng):
    n = 400
    quarter_turns = np.concatenate([np.arange(1, 100), np.arange(600_000, 600_100)]) * (math.pi / 2)
    return {
        "exp": [rng.uniform(-707.6, 709.7, n), rng.uniform(-1, 1, n), wide(rng, 1e-300, 1, n)],
        "expm1": [rng.uniform(-60, 709.7, n), rng.uniform(-1, 1, n), wide(rng, 1e-300, 1, n)],
        "log": [wide(rng, 5e-324, 1.7e308, n, False), rng.uniform(0.5, 2, n), 1 + wide(rng, 1e-16, 0.3, n)],
        "log1p": [wide(rng, 1e-300, 1.7e308, n, False), rng.uniform(-0.99, 2, n), wide(rng, 1e-20, 0.5, n)],
        "tanh": [wide(rng, 1e-300, 30, n), rng.uniform(-3, 3, n)],
        "arctan": [wide(rng, 1e-300, 1e300, n), rng.uniform(-3, 3, n)],
        "sin": [rng.uniform(-1e6, 1e6, n), rng.uniform(-10, 10, n), wide(rng, 1e-300, 1e6, n), quarter_turns],
        "cos": [rng.uniform(-1e6, 1e6, n), rng.uniform(-10, 10, n), wide(rng, 1e-300, 1e6, n), quarter_turns],
        "erf": [rng.uniform(-6, 6, n), wide(rng, 1e-300, 6, n)],
        "erfc": [rng.uniform(-6, 26, n), wide(rng, 1e-300, 6, n)],
    }[name]


LIMITS = {"exp": 1.0, "expm1": 1.5, "log": 0.8, "log1p": 1.5, "tanh": 2.5, "arctan": 1.0, "sin": 0.8, "cos": 0.8,
          "erf": 1.0, "erfc": 4.0}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_errors_in_units_in_the_last_place(name):
    mp = pytest.importorskip("mpmath", reason="mpmath gives the reference")
    reference = {"arctan": mp.atan}.get(name) or getattr(mp, name)
    x = np.concatenate(arguments(name, np.random.default_rng(0)))
    y = FUNCTIONS[name](x)
    with mp.workprec(120):
        exact = [reference(mp.mpf(float(v))) for v in x]
        units = np.spacing(np.abs(np.array([float(v) for v in exact])))
        errors = [
            abs(float((mp.mpf(float(a)) - b) / mp.mpf(float(u)))) for a, b, u in zip(y, exact, units, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= LIMITS[name], (x[worst], y[worst])


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name):
    reference = {"erf": math.erf, "erfc": math.erfc}.get(name)
    function = np.vectorize(reference) if reference else getattr(np, name)
    x = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, 710.0, -750.0, 1e5, -1e5, np.inf, -np.inf, np.nan])
    if name in ("sin", "cos"):
        x = x[np.abs(x) <= vm.TRIG_LIMIT]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(FUNCTIONS[name](x), function(x), rtol=5e-16, atol=5e-308)


def test_sign_of_zero_is_kept():
    for name in ("expm1", "tanh", "arctan", "sin", "erf"):
        assert np.signbit(FUNCTIONS[name](np.array([-0.0])))[0], name


def test_small_results_of_exp_are_zero_or_normal():
    y = FUNCTIONS["exp"](np.linspace(-760, -700, 10_001))
    assert ((y == 0.0) | (y >= np.finfo(float).tiny)).all()
    assert (np.diff(y) >= 0).all()


def test_power_against_exact():
    mp = pytest.importorskip("mpmath", reason="mpmath gives the reference")

    @njit(error_model="numpy", fastmath=FLAGS)
    def loop(x, y, out):
        for i in range(x.size):
            out[i] = vm.power(x[i], y[i])

    rng = np.random.default_rng(1)
    x = np.concatenate([wide(rng, 1e-5, 1e5, 500, False), rng.uniform(0.1, 10, 500)])
    y = rng.uniform(-20, 20, 1000)
    out = np.empty(1000)
    loop(x, y, out)
    with mp.workprec(120):
        exact = [mp.mpf(float(a)) ** mp.mpf(float(b)) for a, b in zip(x, y, strict=True)]
        errors = [abs(float(mp.mpf(float(a)) / b - 1)) for a, b in zip(out, exact, strict=True)]
    assert max(errors) < 4e-16


def test_faddeeva_against_exact():
    mp = pytest.importorskip("mpmath", reason="mpmath gives the reference")

    @njit(error_model="numpy", fastmath=FLAGS)
    def loop(x, y, real, imaginary):
        for i in range(x.size):
            real[i], imaginary[i] = w(x[i], y[i])

    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-14, 14, 600), rng.uniform(-100, 100, 200)])
    y = 10 ** rng.uniform(-8, 2, 800)
    y[:50] = 0.0
    real, imaginary = np.empty(800), np.empty(800)
    loop(x, y, real, imaginary)
    with mp.workdps(30):
        z = [mp.mpc(float(a), float(b)) for a, b in zip(x, y, strict=True)]
        exact = np.array([complex(mp.exp(-(v**2)) * mp.erfc(-1j * v)) for v in z])
    far = np.abs(x + 1j * y) > 12
    assert np.abs(real - exact.real).max() < 2e-15
    assert np.abs(imaginary - exact.imag).max() < 2e-15
    assert (np.abs(real / exact.real - 1)[far & (y > 0)]).max() < 3e-14


@pytest.mark.parametrize("name", NAMES)
def test_loops_use_vector_registers(name):
    """On x86 with AVX2 the inner loop works on 256-bit registers; elsewhere there is nothing to look for."""
    import llvmlite.binding as llvm

    if not llvm.get_host_cpu_features().get("avx2"):
        pytest.skip("this machine has no AVX2")
    loop = FUNCTIONS[name].loop
    loop(np.ones(8), np.ones(8))
    text = "\n".join(loop.inspect_asm().values())
    assert "ymm" in text
    assert text.count("vmulpd") + text.count("vfmadd") > 8
