"""Losses: against SciPy, against differences, at the edges of the number range, and compiled against NumPy."""

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize._lsq.least_squares import IMPLEMENTED_LOSSES, construct_loss_function

import problm
from problm.losses import LOSSES, RULES, Loss, as_loss, robust_loss

# Every size that a squared residual can have, the joints of the piecewise losses, and both ends of the range.
Z = np.concatenate([[0.0], np.logspace(-300, 300, 601), np.linspace(0.0, 4.0, 401), [1.0 - 1e-15, 1.0 + 1e-15]])


def exact(name, z):
    """rho(z) from the textbook formula, in so many digits that nothing cancels."""
    with localcontext() as context:
        context.prec = 700
        x = Decimal(float(z))
        q = max(Decimal(0), 1 - x)
        formula = {
            "linear": lambda: x,
            "huber": lambda: x if x <= 1 else 2 * x.sqrt() - 1,
            "soft_l1": lambda: 2 * ((1 + x).sqrt() - 1),
            "cauchy": lambda: (1 + x).ln(Context(prec=700)),
            "arctan": lambda: np.arctan(float(z)),
            "geman_mcclure": lambda: x / (1 + x),
            "welsch": lambda: 1 - (-x).exp(),
            "tukey": lambda: (1 - q**3) / 3,
            "truncated": lambda: (1 - q**2) / 2,
        }
        return float(formula[name]())


@pytest.mark.parametrize("name", ["linear", *sorted(set(IMPLEMENTED_LOSSES) & set(LOSSES) - {"linear"})])
@pytest.mark.parametrize("scale", [1.0, 0.03, 250.0])
def test_values_and_weights_are_scipys(name, scale):
    rng = np.random.default_rng(1)
    residual = rng.standard_cauchy(1000) * scale
    cost, weight = Loss.named(name, scale).cost_and_weight(residual**2)
    if name == "linear":
        np.testing.assert_allclose(cost, 0.5 * residual**2, rtol=1e-15)
        np.testing.assert_array_equal(weight, 1.0)
        return
    scipys = construct_loss_function(len(residual), name, scale)
    # Its rows are rho, rho', rho'' with the scale put in: the weight is rho'.
    value, slope, _ = scipys(residual)
    np.testing.assert_allclose(cost, 0.5 * value, rtol=1e-12, atol=1e-15 * scale**2)
    np.testing.assert_allclose(weight, slope, rtol=1e-13)
    assert math.isclose(cost.sum(), scipys(residual, cost_only=True), rel_tol=1e-12)


def test_every_loss_of_scipy_is_here():
    assert set(IMPLEMENTED_LOSSES) <= set(LOSSES)


@pytest.mark.parametrize("name", LOSSES)
def test_all_digits_at_every_size(name):
    value = Loss.named(name).function(Z)[0]
    np.testing.assert_allclose(value[::4], [exact(name, z) for z in Z[::4]], rtol=4e-15, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_weight_is_the_derivative_of_the_value(name):
    rho = Loss.named(name).function
    z = np.concatenate([np.linspace(0.01, 0.97, 49), np.linspace(1.03, 6.0, 50), np.logspace(1, 4, 20)])
    h = 1e-4 * z
    five_points = (rho(z - 2 * h)[0] - 8 * rho(z - h)[0] + 8 * rho(z + h)[0] - rho(z + 2 * h)[0]) / (12 * h)
    np.testing.assert_allclose(rho(z)[1], five_points, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", LOSSES)
def test_curvature_is_the_derivative_of_the_weight(name):
    rule = RULES[name]
    z = np.concatenate([np.linspace(0.01, 0.97, 49), np.linspace(1.03, 6.0, 50), np.logspace(1, 4, 20)])
    h = 1e-4 * z
    sides = [rule.value_and_weight(z + k * h)[1] for k in (-2, -1, 1, 2)]
    five_points = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h)
    np.testing.assert_allclose(rule.curvature(z, np), five_points, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_of_a_block_is_weight_times_residual(name):
    # The identity that makes IRLS weights exact gradients: d/dr s^2/2 rho(|r|^2/s^2) = rho' r, a block of three.
    rng = np.random.default_rng(2)
    loss = Loss.named(name, 0.7)
    for r in rng.standard_normal((20, 3)):
        _, weight = loss.cost_and_weight(np.array([r @ r]))
        h = 1e-6
        for axis, step in enumerate(np.eye(3) * h):
            up, down = (loss.cost(np.array([x @ x]))[0] for x in (r + step, r - step))
            assert (up - down) / (2 * h) == pytest.approx(weight[0] * r[axis], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_bound_is_the_least_upper_bound(name):
    loss = Loss.named(name, 3.0)
    value = loss.cost(Z * 9.0)
    assert np.all(value <= loss.bound)
    if loss.bound < math.inf:
        assert value.max() == pytest.approx(loss.bound, rel=1e-14)
        assert loss.cost(np.array([math.inf]))[0] == pytest.approx(loss.bound, rel=1e-15)
    else:
        assert value.max() > 1e2
        assert loss.cost(np.array([math.inf]))[0] == math.inf


@pytest.mark.parametrize("name", LOSSES)
def test_shape_of_a_loss(name):
    value, weight = Loss.named(name).function(np.sort(Z))
    assert value[0] == 0.0
    assert weight[0] == 1.0
    assert np.all(np.diff(value) >= 0.0)
    assert np.all((weight >= 0.0) & (weight <= 1.0))
    assert np.all(np.diff(weight) <= 1e-15)


@pytest.mark.parametrize("name", LOSSES)
def test_nan_is_never_hidden(name):
    value, weight = Loss.named(name).function(np.array([math.nan, 0.5]))
    assert math.isnan(value[0])
    assert name == "linear" or math.isnan(weight[0])
    assert np.isfinite([value[1], weight[1]]).all()


@pytest.mark.parametrize("name", LOSSES)
def test_compiled_loss_is_the_numpy_loss(name):
    from problm.kernels.robust import curvature, rho

    loss = Loss.named(name)
    z = np.concatenate([Z, [math.inf]])
    value, weight = loss.function(z)
    compiled = np.array([rho(loss.code, x) for x in z])
    np.testing.assert_allclose(compiled[:, 0], value, rtol=1e-15)
    np.testing.assert_allclose(compiled[:, 1], weight, rtol=1e-15, atol=1e-299)
    with np.errstate(over="ignore"):
        wanted = RULES[name].curvature(Z, np)
    np.testing.assert_allclose([curvature(loss.code, x) for x in Z], wanted, rtol=2e-15, atol=1e-299)
    got = rho(loss.code, math.nan)
    assert math.isnan(got[0])
    assert name == "linear" or math.isnan(got[1])


def test_a_loss_is_one_entry(monkeypatch):
    """The recipe of CONTRIBUTING.md: from it come the loss of NumPy, of compiled code and of the devices."""
    from numba import njit

    from problm.kernels.robust import of_block, of_number
    from problm.problems.backends.device import cost_and_weight

    monkeypatch.setitem(RULES, "halved", None)  # removes the entry afterwards

    @robust_loss(curvature=lambda z, xp: -1.0 / (1.0 + 0.5 * z) ** 3, bound=2.0, width=3.0)
    def halved(z, xp=np):
        q = 1.0 / (1.0 + 0.5 * z)
        return xp.where(z < 1.0, xp.minimum(z, 1.0) * q, 2.0 - 2.0 * q), q * q

    loss = as_loss("halved", 0.5)
    assert (loss.code, loss.bound) == (len(LOSSES), 0.25)
    x = np.linspace(0, 1, 300)
    y = 2.0 * x + 1.0 + np.where(np.arange(300) % 10, 0.0, 40.0)
    fit = problm.least_squares(lambda theta, x, y: theta[0] * x + theta[1] - y, [0.0, 0.0], data=(x, y), loss=loss)
    np.testing.assert_allclose(fit.x, [2.0, 1.0], atol=1e-3)

    z = np.linspace(0.0, 5.0, 50)
    values, weights = loss.function(z)
    number = of_number(rule.value_and_weight for rule in RULES.values())
    curvature = of_number(rule.curvature for rule in RULES.values())
    block = of_block(rule.value_and_weight for rule in RULES.values())
    found = np.array([njit(lambda code, z: (number(code, z), curvature(code, z)))(loss.code, x)[0] for x in z[:2]])
    np.testing.assert_allclose(found, np.stack([values, weights], axis=1)[:2], rtol=1e-15)
    over, beside = z.copy(), np.empty(50)
    njit(lambda code, m, z, weight: block(code, m, z, weight))(loss.code, 50, over, beside)
    np.testing.assert_allclose(over, values, rtol=1e-15)
    np.testing.assert_allclose(beside, weights, rtol=1e-15)
    for mine, numpys in zip(cost_and_weight(loss, z, np), loss.cost_and_weight(z), strict=True):
        np.testing.assert_array_equal(mine, numpys)


@given(
    name=st.sampled_from(LOSSES),
    scale=st.floats(1e-6, 1e6),
    factor=st.floats(1e-3, 1e3),
    z=st.floats(0.0, 1e12),
)
def test_scaling(name, scale, factor, z):
    # Residuals and scale in other units: the cost goes with their square, the weight stays.
    loss = Loss.named(name, scale)
    wide = loss.scaled(factor)
    assert wide.scale == scale * factor
    assert wide.bound == pytest.approx(loss.bound * factor**2)
    cost, weight = loss.cost_and_weight(np.array([z * scale**2]))
    other, same = wide.cost_and_weight(np.array([z * (scale * factor) ** 2]))
    assert other[0] == pytest.approx(cost[0] * factor**2, rel=1e-9, abs=1e-300)
    assert same[0] == pytest.approx(weight[0], rel=1e-9, abs=1e-12)
    assert loss.cost(np.array([z]))[0] == pytest.approx(loss.cost_and_weight(np.array([z]))[0][0], rel=1e-14)


def test_users_loss_with_scipys_signature():
    def rho(z):
        return np.array([np.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2])

    loss = as_loss(rho, 2.0)
    z = np.array([0.0, 1.0, 7.0])
    for mine, named in zip(loss.cost_and_weight(z), Loss.named("cauchy", 2.0).cost_and_weight(z), strict=True):
        np.testing.assert_allclose(mine, named)
    assert loss.bound == math.inf
    assert (loss.name, loss.is_linear) == ("rho", False)


@pytest.mark.parametrize("bad", [lambda z: z, lambda z: (z[:1], z[:1]), lambda z: (z,), lambda z: (z, z[:1], z)])
def test_users_loss_of_the_wrong_shape(bad):
    with pytest.raises(ValueError, match=r"rho\(z\) and rho'\(z\)"):
        as_loss(bad).cost(np.arange(4.0))


@pytest.mark.parametrize("f_scale", [0.0, -1.0, math.nan, math.inf])
def test_bad_scale(f_scale):
    with pytest.raises(ValueError, match="f_scale"):
        as_loss("huber", f_scale)


def test_bad_loss():
    with pytest.raises(ValueError, match=r"loss='hubber'.*huber"):
        as_loss("hubber")
    with pytest.raises(TypeError, match="loss must be"):
        as_loss(3.0)


def test_a_loss_keeps_its_own_scale():
    loss = Loss.named("tukey", 4.0)
    assert as_loss(loss) is loss
    with pytest.raises(ValueError, match="f_scale=2"):
        as_loss(loss, 2.0)
