"""Steps extrapolated from the last two, where Gauss-Newton converges linearly."""

import numpy as np
import pytest

import problm
from problm.linalg.cholesky_compiled import CompiledCholesky
from problm.linalg.normal import Normal
from problm.linalg.quadratic import QuadraticModel
from problm.linalg.space import Space
from problm.solver import rules
from problm.solver.termination import Termination

BOTH = pytest.mark.parametrize("compiled", [None, CompiledCholesky], ids=["numpy", "compiled"])


def system(step, hessian, compiled):
    """A system near its minimum, whose Gauss-Newton step is this."""
    normal = Normal(10, 1e6, -hessian @ step, hessian, compiled=compiled)
    return QuadraticModel(normal, np.ones(len(step)), Space(len(step)), lambda diagonal: None)


@BOTH
@pytest.mark.parametrize("share", [0.3, -0.3])
def test_steps_that_shrink_by_a_factor_are_summed(compiled, share):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 4))
    before = 1e-2 * rng.standard_normal(4)
    now = system(share * before, root.T @ root, compiled)
    step, predicted, length, rest = now.extrapolated(before, before)
    np.testing.assert_allclose(step, share * before / (1.0 - share), rtol=1e-9)  # the geometric series
    # The curvature is less than that of H by the share, so the decrease is more than the decrement by as much.
    assert predicted == pytest.approx(now.decrement / (1.0 - share), rel=1e-9)
    assert length == pytest.approx((step**2 * now.normal.hessian.diagonal()).sum() / 10)
    assert rest <= 1e-9 * now.decrement


@BOTH
def test_the_rest_is_what_no_share_of_the_last_step_explains(compiled):
    hessian, before, now = np.diag([1.0, 3.0]), np.array([1e-2, 2e-2]), np.array([4e-3, 4e-3])
    share = np.linspace(-1.0, 1.0, 200_001)
    rests = now[:, None] - share * (now - before)[:, None]
    model = system(now, hessian, compiled)
    *_, rest = model.extrapolated(before, before)
    assert rest == pytest.approx(0.5 * np.einsum("ak,ab,bk->k", rests, hessian, rests).min() / 10, rel=1e-6)
    assert rest > 0.01 * model.decrement


@BOTH
def test_no_reason_to_extrapolate(compiled):
    hessian, before = np.diag([1.0, 3.0]), np.array([1e-2, 2e-2])
    assert system(0.3 * before, hessian, compiled).extrapolated(before, before) is not None
    assert system(1e-3 * before, hessian, compiled).extrapolated(before, before) is None, "converges fast"
    assert system(0.9 * before, hessian, compiled).extrapolated(before, before) is None, "not at all"
    assert system(before, hessian, compiled).extrapolated(before, before) is None, "no change"
    assert system(3e3 * before, hessian, compiled).extrapolated(1e4 * before, 1e4 * before) is None, "far away"
    singular = system(0.3 * before, np.ones((2, 2)), compiled)
    assert singular.extrapolated(before, before) is None


def outliers(n):
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 5, n)
    y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.1 * rng.standard_normal(n)
    bad = rng.random(n) < 0.2
    y[bad] += rng.normal(0, 2, bad.sum())
    return x, y


@pytest.mark.parametrize("options", [{}, {"keep_path": True}])  # whoever keeps the path gets the loop
def test_a_robust_fit_takes_fewer_passes_to_the_same_minimum(monkeypatch, options):
    data = outliers(3000)  # of a function: a formula takes Newton steps

    def function(theta, x, y):
        return theta[0] * np.exp(-theta[1] * x) + theta[2] - y

    def fit():
        return problm.least_squares(
            function, [1, 0.5, 0], data=data, loss="cauchy", f_scale=0.3, jac="3-point", **options
        )  # fmt: skip

    extrapolated = fit()
    monkeypatch.setattr("problm.linalg.quadratic.NEAR", 0.0)
    plain = fit()
    assert extrapolated.success
    assert extrapolated.nit <= 0.75 * plain.nit
    assert extrapolated.cost == pytest.approx(plain.cost, rel=1e-12)
    np.testing.assert_allclose(extrapolated.x, plain.x, rtol=1e-6)


def test_a_step_that_leads_up_is_refused_and_the_plain_one_taken(monkeypatch):
    asked = []

    def far(self, taken, promised):
        asked.append(1)
        return np.full(3, 50.0), 1e-3, 1.0, 1.0

    def solve():
        def residuals(t, x, y):
            return t[0] * np.exp(-t[1] * x) + t[2] - y

        return problm.least_squares(residuals, [1, 0.5, 0], data=outliers(500), keep_path=True)  # step by step

    plain = solve()
    monkeypatch.setattr(QuadraticModel, "extrapolated", far)
    fit = solve()
    assert fit.success
    assert asked
    rejected = fit.history.decision.count("reject") - len(asked)
    assert 0 <= rejected <= 1, "rounding may refuse a last step"
    assert set(fit.history.damping) == {0.0}, "a refused extrapolation says nothing about the trust region"
    assert fit.cost == pytest.approx(plain.cost, rel=1e-12)
    assert (
        np.diff([c for c, d in zip(fit.history.cost, fit.history.decision, strict=True) if d == "accept"]) <= 0
    ).all()


def test_what_rounding_hides_is_taken_on_the_word_of_the_model_twice():
    stopping = Termination(0.0, 0.0, 1e-8, 97, np.inf, digits=True, bounded=False)
    near, far = (system(np.full(2, size), 1e6 * np.eye(2), None) for size in (1e-9, 1e-6))
    assert near.decrement < 1e-14 * near.cost < far.decrement
    rounding = 1e-15 * near.cost
    assert not stopping.lost_in_rounding(near, 100 * rounding), "it rose, visibly"
    assert not stopping.lost_in_rounding(far, rounding), "the gain should have been visible"
    assert not stopping.lost_in_rounding(near, np.nan)
    assert [stopping.lost_in_rounding(near, rounding) for _ in range(4)] == [True, True, False, False]
    stopping.begin_anew()
    assert stopping.lost_in_rounding(near, -rounding)


def test_a_damping_that_makes_no_difference_is_none():
    assert rules.is_plain(0.0, 0.5, 0.5, True)
    assert rules.is_plain(1e-6, 0.99995, 1.0, True)  # what gain-ratio leaves over near the end
    assert not rules.is_plain(1e-2, 0.99, 1.0, True)
    assert not rules.is_plain(0.0, 1.0, 1.0, False)
