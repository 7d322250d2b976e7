"""One grid: solver x problem x loss. Every success is checked by differences over all residuals."""

from dataclasses import replace

import numpy as np
import pytest

from problm.losses import LOSSES
from tests.helpers import zoo

POLICIES = ["holdout", "full", "paper", "paper-relaxed", "hoeffding-serfling", "empirical-bernstein"]
CONVEX = ("linear", "huber", "soft_l1")


def problem(name, loss):
    fit = zoo.ZOO[name]()
    if loss != "linear":
        fit = zoo.with_outliers(fit)
    # A redescending loss sees nothing of a bad start: begin near the answer of a convex one.
    if loss not in CONVEX:
        begun = zoo.problm(replace(fit, loss="soft_l1", f_scale=3 * fit.scale), acceptance="full")
        fit = replace(fit, x0=begun.x + 0.05 * (fit.x0 - begun.x))
    return replace(fit, loss=loss, f_scale=3 * fit.scale)


def check(fit, outcome):
    assert zoo.violations(fit, outcome) == []
    assert outcome.success, outcome.message
    result = outcome.result
    assert result.certified
    assert result.cost == pytest.approx(fit.cost(outcome.x), rel=1e-10)
    # The reported gradient is that of the cost.
    residuals = fit.residuals(outcome.x)
    weight = zoo.RHO[fit.loss](fit._z(residuals))[1]
    gradient = fit.jacobian(outcome.x).T @ (weight[:, None] * residuals).ravel()
    scale = np.abs(fit.jacobian(outcome.x)).T @ np.abs(weight[:, None] * residuals).ravel()
    np.testing.assert_allclose(result.grad / scale, gradient / scale, atol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("loss", ["linear", "soft_l1"])
def test_every_policy(policy, name, loss):
    fit = problem(name, loss)
    outcome = zoo.problm(fit, acceptance=policy)
    check(fit, outcome)
    reference = zoo.problm(fit, method="lm")
    assert outcome.cost <= reference.cost * (1 + 1e-6)  # the zoo's problems have one minimum near the start


@pytest.mark.parametrize("policy", ["holdout", "full"])
@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss(policy, name, loss):
    fit = problem(name, loss)
    check(fit, zoo.problm(fit, acceptance=policy))


@pytest.mark.parametrize("damping", ["gain-ratio", "nielsen", "tenfold"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_every_damping(damping, name):
    fit = problem(name, "linear")
    check(fit, zoo.problm(fit, damping=damping))


@pytest.mark.parametrize("jac", ["2-point", "3-point", "cs"])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_every_derivative(jac, name):
    fit = replace(problem(name, "linear"), jac=None)
    import problm

    outcome = zoo.timed(lambda: problm.least_squares(fit.fun, fit.x0, data=fit.data, jac=jac))
    check(fit, outcome)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_the_check_itself(name):
    """It passes SciPy's minimum, agrees with other differences, and fails a point nearby."""
    fit = zoo.ZOO[name]()
    found = zoo.scipy_lm(fit, ftol=1e-14, xtol=1e-14, gtol=1e-14)
    seen = zoo.certificate(fit, found.x)
    assert seen.agrees()
    assert zoo.certificate(fit, found.x, "3-point").agrees()
    if found.x.all():
        assert not zoo.certificate(fit, found.x * 1.01).agrees()
    np.testing.assert_allclose(fit.jacobian(found.x), fit.jacobian(found.x, "3-point"), rtol=1e-5, atol=1e-6)
    if fit.jac is not None:
        np.testing.assert_allclose(
            np.reshape(fit.jac(found.x, *fit.data), (-1, len(found.x))), fit.jacobian(found.x), atol=1e-12
        )
    lie = replace(found, x=found.x * 1.01, success=True)
    assert any("false success" in v for v in zoo.violations(fit, lie))
    assert any("above the start" in v for v in zoo.violations(replace(fit, x0=found.x), replace(found, x=fit.x0)))
    assert any("not finite" in v for v in zoo.violations(fit, replace(found, x=found.x * np.nan)))
