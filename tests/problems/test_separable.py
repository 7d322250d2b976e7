"""Variable projection: exact reduced Jacobians, curves one and many, blocks with non-linear parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit, least_squares

from problm.api.separable_fit import separable_fit
from problm.losses import LOSSES, Loss
from problm.problems.separable_curve import SingleCurveProblem
from problm.problems.separable_linear import LinearSeparableProblem
from problm.problems.separable_nonlinear import SeparableProblem
from problm.solver.loop import solve


def decays(x, rates):
    return [np.exp(-rates[0] * x), np.exp(-rates[1] * x), 1.0]


def decay_slopes(x, rates):
    zero = np.zeros_like(x)
    first = np.stack([-x * np.exp(-rates[0] * x), zero, zero], axis=-1)
    second = np.stack([zero, -x * np.exp(-rates[1] * x), zero], axis=-1)
    return np.stack([first, second], axis=-1)


def curves(n=50, m=40, noise=0.05, seed=0, rates=(0.4, 2.0)):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 6, m)
    phi = np.stack([np.broadcast_to(c, x.shape) for c in decays(x, rates)], axis=1)
    c = rng.uniform(1, 3, (n, 3))
    return x, c @ phi.T + noise * rng.normal(size=(n, m)), c


def forms(n=50, m=40, noise=0.05):
    """The same kinds of data in the four forms: shared x, own x, own sigma, both."""
    x, y, _ = curves(n, m, noise)
    rng = np.random.default_rng(1)
    own = np.sort(rng.uniform(0, 6, (n, m)), axis=1)
    y_own = np.stack(
        [rng.uniform(1, 3, 3) @ np.stack([np.broadcast_to(c, m) for c in decays(o, (0.4, 2.0))]) for o in own]
    )
    y_own = y_own + noise * rng.normal(size=y_own.shape)
    sigma = rng.uniform(0.5, 2.0, (n, m))
    sigma[rng.random((n, m)) < 0.1] = np.inf
    return {
        "shared": (x, y, None),
        "shared, sigma": (x, y, sigma[0]),
        "own sigma": (x, y, sigma),
        "own x": (own, y_own, None),
        "own x, sigma": (own, y_own, sigma[0]),
        "own both": (own, y_own, sigma),
    }


def reference_jacobian(residuals, alpha, h=1e-6):
    return np.stack(
        [(residuals(alpha + h * e) - residuals(alpha - h * e)) / (2 * h) for e in np.eye(len(alpha))], axis=-1
    )


@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize("derivative", ["3-point", "cs", decay_slopes])
@pytest.mark.parametrize("loss", ["linear", "cauchy"])
def test_exact_jacobian_is_that_of_the_reduced_residuals(form, derivative, loss):
    x, y, sigma = forms()[form]
    own = "own x" in form or form == "own both"
    problem = LinearSeparableProblem(
        decays, x, y, 2, derivative=derivative, sigma=sigma, own_x=own, loss=Loss.named(loss, 0.3)
    )
    alpha = np.array([0.3, 1.5])
    r = problem.residuals(alpha)
    J = reference_jacobian(problem.residuals, alpha)
    cost, w = problem.loss.cost_and_weight((r**2).sum(axis=1))
    g = np.einsum("n,nm,nma->na", w, r, J)
    costs = np.empty(problem.n)
    normal = problem.linearize(alpha, 0, problem.n, outer=True, costs=costs)
    np.testing.assert_allclose(costs, cost, rtol=1e-9)
    np.testing.assert_allclose(problem.costs(alpha, 0, problem.n), cost, rtol=1e-9)
    assert problem.cost(alpha) == pytest.approx(cost.sum(), rel=1e-10)
    np.testing.assert_allclose(normal.gradient, g.sum(axis=0), rtol=1e-6, atol=1e-7 * np.abs(g).max())
    np.testing.assert_allclose(normal.hessian, np.einsum("n,nma,nmb->ab", w, J, J), rtol=1e-6)
    np.testing.assert_allclose(normal.outer, g.T @ g, rtol=1e-5)


@pytest.mark.parametrize("form", ["shared", "own x"])
def test_kaufman_has_the_same_gradient_and_a_smaller_matrix(form):
    x, y, _ = forms(noise=0.5)[form]
    pair = [LinearSeparableProblem(decays, x, y, 2, own_x=form == "own x", exact=exact) for exact in (True, False)]
    a, b = (p.linearize(np.array([0.3, 1.5]), 0, p.n, outer=False, costs=None) for p in pair)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-12)
    assert np.linalg.eigvalsh(a.hessian - b.hessian).min() > 0


def test_own_x_and_shared_x_agree():
    x, y, _ = curves()
    shared = LinearSeparableProblem(decays, x, y, 2)
    own = LinearSeparableProblem(decays, np.tile(x, (len(y), 1)), y, 2, own_x=True)
    alpha = np.array([0.3, 1.5])
    a = shared.linearize(alpha, 0, 50, outer=True, costs=None)
    b = own.linearize(alpha, 0, 50, outer=True, costs=None)
    np.testing.assert_allclose(a.hessian, b.hessian, rtol=1e-9)
    np.testing.assert_allclose(a.outer, b.outer, rtol=1e-8)
    np.testing.assert_allclose(shared.coefficients(alpha), own.coefficients(alpha), rtol=1e-8)


def test_one_curve_is_the_textbook_fit():
    x, y, _ = curves(1, 100, noise=0.02)
    fit = separable_fit(decays, [0.1, 1.0], x, y[0])
    full = least_squares(
        lambda v: v[2] * np.exp(-v[0] * x) + v[3] * np.exp(-v[1] * x) + v[4] - y[0],
        [*fit.alpha, *fit.coefficients],
        method="lm",
        xtol=1e-14,
        ftol=1e-14,
    )
    assert fit.result.success
    assert fit.cost == pytest.approx(full.cost, rel=1e-10)
    np.testing.assert_allclose([*fit.alpha, *fit.coefficients], full.x, rtol=1e-5)
    # Covariance of the reduced problem is the block of the full one.
    errors = np.sqrt(np.diag(np.linalg.inv(full.jac.T @ full.jac)) * 2 * full.cost / (100 - 5))
    np.testing.assert_allclose(fit.standard_errors, errors[:2], rtol=0.05)  # exact reduced Hessian, not Gauss-Newton's
    np.testing.assert_allclose(fit.coefficient_errors(), errors[2:], rtol=0.05)


@pytest.mark.parametrize("form", forms())
def test_many_curves_reach_the_same_minimum_as_the_full_problem(form):
    x, y, sigma = forms(n=6, m=25)[form]
    fit = separable_fit(decays, [0.2, 1.0], x, y, sigma=sigma, ftol=1e-12)
    assert fit.result.success
    weight = 1.0 if sigma is None else 1.0 / sigma

    def residuals(v):
        phi = decays(x, v[:2])
        model = sum(v[2:].reshape(6, 3)[:, k : k + 1] * phi[k] for k in range(3))
        return ((model - y) * weight).ravel()

    full = least_squares(residuals, np.concatenate([fit.alpha, fit.coefficients.ravel()]), x_scale="jac", xtol=1e-14)
    assert fit.cost == pytest.approx(
        0.5 * (residuals(np.concatenate([fit.alpha, fit.coefficients.ravel()])) ** 2).sum()
    )
    assert full.cost > fit.cost * (1 - 1e-9)
    assert fit.coefficient_errors().shape == (6, 3)
    used = y.size if sigma is None else np.isfinite(np.broadcast_to(sigma, y.shape)).sum()
    assert fit.degrees_of_freedom == used - 18 - 2


def peaks(x, a):
    return [*(np.exp(-0.5 * ((x - a[i]) / a[i + 4]) ** 2) for i in range(4)), 1.0, x]


def one_curve(basis, alpha, m=500, seed=3):
    rng = np.random.default_rng(seed)
    x = np.linspace(-3, 12, m)
    phi = np.stack([np.broadcast_to(c, m) for c in basis(x, alpha)], axis=1)
    return x, phi @ rng.uniform(1, 2, phi.shape[1]) + 0.05 * rng.normal(size=m)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("derivative", ["3-point", "cs"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("close", [1.0, 1e-3, 1e-7])
def test_single_curve_has_the_sums_of_many(exact, derivative, weighted, close):
    """Well-conditioned, projected twice, and with nearly dependent columns."""
    alpha = np.array([0.0, 3.0, 6.0, 6.0 + 3.0 * close, 0.6, 0.7, 0.8, 0.8])
    x, y = one_curve(peaks, alpha)
    sigma = np.random.default_rng(4).uniform(0.5, 2.0, len(x)) if weighted else None
    arguments = {"derivative": derivative, "sigma": sigma, "exact": exact}
    one = SingleCurveProblem(peaks, x, y[None], 8, **arguments)
    many = LinearSeparableProblem(peaks, x, y[None], 8, **arguments)
    expected = many.linearize(alpha, 0, 1, outer=True, costs=None)
    for _ in range(2):  # one parameter at a time, and then in groups
        costs = np.empty(1)
        found = one.linearize(alpha, 0, 1, outer=True, costs=costs)
        assert costs[0] == found.cost == one.cost(alpha) == pytest.approx(expected.cost, rel=1e-12)
        size = np.sqrt(expected.hessian.diagonal())
        loose = 1e-8 / min(close, 0.1) if close == 1e-7 else 1e-8
        np.testing.assert_allclose(found.gradient / size, expected.gradient / size, atol=loose)
        np.testing.assert_allclose(
            found.hessian / np.outer(size, size), expected.hessian / np.outer(size, size), atol=loose
        )
        np.testing.assert_allclose(found.outer, np.outer(found.gradient, found.gradient))
    np.testing.assert_allclose(one.residuals(alpha), many.residuals(alpha), atol=1e-9)


def test_parameters_without_a_common_column_move_together():
    calls = []

    def counted(x, a):
        calls.append(a)
        return peaks(x, a)

    alpha = np.array([0.0, 3.0, 6.0, 9.0, 0.6, 0.7, 0.8, 0.9])
    x, y = one_curve(peaks, alpha)
    problem = SingleCurveProblem(counted, x, y[None], 8)
    counts = []
    for shift in (0.0, 0.01, 0.02):
        calls.clear()
        problem.cost(alpha + shift)
        problem.linearize(alpha + shift, 0, 1, outer=False, costs=None)
        counts.append(len(calls))
    assert counts == [1 + 16, 1 + 4, 1 + 4]  # places together, widths together, on both sides
    calls.clear()
    fit = separable_fit(counted, alpha + 0.1, x, y)
    assert fit.result.success
    assert len(calls) <= 1 + 16 + 9 + 6 * fit.result.nit


def test_a_column_that_depends_on_more_than_it_showed_is_found_out():
    """At the start the second column does not depend on the first parameter; where the fit ends it does."""

    def switched(x, a):
        return [np.exp(-a[0] * x), np.exp(-a[1] * x - (0.5 * (a[0] - 0.2) * x if a[0] > 0.2 else 0.0)), 1.0]

    rng = np.random.default_rng(5)
    x = np.linspace(0, 8, 400)
    y = np.stack([np.broadcast_to(c, 400) for c in switched(x, [0.4, 2.0])], axis=1) @ [3.0, 2.0, 0.5]
    y = y + 0.02 * rng.normal(size=400)
    fit = separable_fit(switched, [0.1, 1.5], x, y)
    exact = separable_fit(switched, fit.alpha, x, y)
    assert fit.result.success
    np.testing.assert_allclose(fit.alpha, exact.alpha, atol=1e-4 * exact.standard_errors.min())
    np.testing.assert_allclose(fit.standard_errors, exact.standard_errors, rtol=1e-6)


def test_errors_are_calibrated():
    truth, deviations, amplitude = np.array([0.4, 2.0]), [], []
    for seed in range(60):
        x, y, c = curves(20, 30, 0.1, seed)
        fit = separable_fit(decays, truth, x, y)
        deviations.append((fit.alpha - truth) / fit.standard_errors)
        amplitude.append(((fit.coefficients - c) / fit.coefficient_errors()).ravel())
    assert 0.75 < np.std(deviations) < 1.3
    assert 0.9 < np.std(amplitude) < 1.1


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("acceptance", ["full", "holdout", "paper", "paper-relaxed"])
def test_every_policy_and_loss_finds_the_minimum(loss, acceptance):
    x, y, _ = curves(3000, 20, 0.1)
    options = {"loss": loss, "f_scale": 2.0, "ftol": 1e-11}
    best = separable_fit(decays, [0.4, 2.0], x, y, acceptance="full", **options)
    fit = separable_fit(decays, [0.25, 1.3], x, y, acceptance=acceptance, **options)
    assert fit.result.success
    assert fit.cost == pytest.approx(best.cost, rel=1e-8)


def test_robust_loss_ignores_foreign_curves():
    x, y, _ = curves(2000, 30, 0.05)
    _, other, _ = curves(200, 30, 0.05, seed=1, rates=(1.0, 6.0))
    y[:200] = other
    plain = separable_fit(decays, [0.3, 1.5], x, y)
    robust = separable_fit(decays, [0.3, 1.5], x, y, loss="cauchy", f_scale=0.1)
    truth = np.array([0.4, 2.0])
    assert np.abs(robust.alpha - truth).max() < 0.3 * np.abs(plain.alpha - truth).max()


def test_two_equal_rates_are_no_disaster():
    x, y, _ = curves(200, 30)
    fit = separable_fit(decays, [0.7, 0.7], x, y)  # Phi has rank 2 at the start
    assert np.isfinite(fit.cost)
    assert np.isfinite(fit.coefficients).all()
    own = separable_fit(decays, [0.7, 0.7], np.tile(x, (200, 1)), y)
    assert np.isfinite(own.cost)


def test_bounds_hold_and_units_do_not_matter():
    x, y, _ = curves(100, 30)
    held = separable_fit(decays, [0.3, 1.5], x, y, bounds=([0, 0], [0.35, np.inf]))
    assert held.alpha[0] <= 0.35
    fit = separable_fit(decays, [0.3, 1.5], x, y, ftol=1e-12)
    nano = separable_fit(decays, [0.3e9, 1.5e9], x * 1e-9, y, ftol=1e-12)
    np.testing.assert_allclose(nano.alpha * 1e-9, fit.alpha, rtol=1e-5)


def test_threads_float32_and_batches_do_not_matter():
    x, y, _ = curves(5000, 20)
    own = np.tile(x, (5000, 1))
    alpha = np.array([0.3, 1.5])
    a, b = (LinearSeparableProblem(decays, own, y, 2, own_x=True, threads=t) for t in (1, 2))
    np.testing.assert_array_equal(
        a.linearize(alpha, 0, 5000, outer=True, costs=None).outer,
        b.linearize(alpha, 0, 5000, outer=True, costs=None).outer,
    )
    shared = LinearSeparableProblem(decays, x, y.astype(np.float32), 2)
    whole = shared.linearize(alpha, 0, 5000, outer=True, costs=None)
    parts = shared.linearize(alpha, 0, 700, outer=True, costs=None) + shared.linearize(
        alpha, 700, 5000, outer=True, costs=None
    )
    np.testing.assert_allclose(parts.hessian, whole.hessian, rtol=1e-10)
    assert parts.cost == pytest.approx(whole.cost, rel=1e-12)


def test_one_sigma_for_every_sample():
    x, y, _ = curves(5, 30)
    fits = [separable_fit(decays, [0.3, 1.5], x, y, sigma=s, absolute_sigma=True) for s in (0.1, np.full(30, 0.1))]
    np.testing.assert_array_equal(fits[0].covariance, fits[1].covariance)


def test_three_exponentials_as_scipy_fits_them():
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 10.0, 400)

    def model(x, a, b, c, p, q, r):
        return p * np.exp(-a * x) + q * np.exp(-b * x) + r * np.exp(-c * x)

    y = model(x, 0.3, 1.0, 4.0, 2.0, 3.0, 1.5) + 1e-3 * rng.normal(size=400)
    theirs, covariance = curve_fit(model, x, y, [0.2, 0.8, 3.0, 1.0, 1.0, 1.0], maxfev=10_000)
    ours = separable_fit(lambda x, a: np.exp(-np.outer(x, a)), [1e-3, 1e-2, 1e-1], x, y)  # a start far away
    order = np.argsort(ours.alpha)
    np.testing.assert_allclose(ours.alpha[order], theirs[:3], rtol=1e-5)
    np.testing.assert_allclose(ours.coefficients[order], theirs[3:], rtol=1e-5)
    np.testing.assert_allclose(ours.standard_errors[order], np.sqrt(np.diag(covariance))[:3], rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(7)}, "x must have 30 samples"),
        ({"y": np.zeros((0, 30))}, "y must have the shape"),
        ({"y": np.full((5, 30), np.nan)}, "y is not finite"),
        ({"alpha0": [np.nan, 1.0]}, "alpha0"),
        ({"sigma": np.zeros(30)}, "sigma must be positive"),
        ({"sigma": np.ones(7)}, "sigma must have the shape"),
        ({"basis": lambda x, a: np.zeros((3, 3))}, r"basis must return an array of shape \(30, k\)"),
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"basis": lambda x, a: np.ones((30, 30))}, "too few to determine"),
        ({"basis": lambda x, a: np.full((30, 2), np.inf)}, "basis is not finite"),
        ({"derivative": "5-point"}, "derivative must be"),
        ({"derivative": lambda x, a: np.zeros((30, 3))}, "derivative must return"),
        ({"jacobian": "none"}, "choose 'exact' or 'kaufman'"),
        ({"bounds": ([1, 1], [2, 2])}, "outside its bounds"),
    ],
)
def test_bad_input_is_named(change, message):
    x, y, _ = curves(5, 30)
    arguments = {"basis": decays, "alpha0": [0.3, 1.5], "x": x, "y": y, **change}
    with pytest.raises(ValueError, match=message):
        separable_fit(**arguments)


def test_a_loss_on_one_curve_is_refused():
    x, y, _ = curves(1, 30)
    with pytest.raises(ValueError, match="acts on whole curves"):
        separable_fit(decays, [0.3, 1.5], x, y[0], loss="huber")


# Blocks with non-linear parameters of their own: pulses of a shared width and skew, own height and place.


X = np.linspace(-4, 4, 50)


def pulse(theta, z, y):
    t = (X - z[:, 1:]) / theta[0]
    return z[:, :1] * np.exp(-(t**2)) * (1 + theta[1] * t**3) - y


def pulse_inner(theta, z, y):
    t = (X - z[:, 1:]) / theta[0]
    e = np.exp(-(t**2))
    by_t = z[:, :1] * e * (3 * theta[1] * t**2 - 2 * t * (1 + theta[1] * t**3))
    return np.stack([e * (1 + theta[1] * t**3), -by_t / theta[0]], axis=2)


def pulse_outer(theta, z, y):
    t = (X - z[:, 1:]) / theta[0]
    e = np.exp(-(t**2))
    by_t = z[:, :1] * e * (3 * theta[1] * t**2 - 2 * t * (1 + theta[1] * t**3))
    return np.stack([-by_t * t / theta[0], z[:, :1] * e * t**3], axis=2)


def pulses(n=300, noise=0.02, seed=0, **options):
    rng = np.random.default_rng(seed)
    z = np.column_stack([rng.uniform(1, 2, n), rng.uniform(-1, 1, n)])
    y = pulse(np.array([0.8, 0.1]), z, 0.0) + noise * rng.normal(size=(n, 50))
    start = np.column_stack([y.max(axis=1), X[y.argmax(axis=1)]])
    return SeparableProblem(pulse, start, (y,), 2, **options), y


@pytest.mark.parametrize("loss", ["linear", "cauchy"])
@pytest.mark.parametrize("analytic", [False, True])
def test_inner_elimination_gradient_and_matrix(loss, analytic):
    jacobians = {"jac": pulse_outer, "inner_jac": pulse_inner} if analytic else {}
    problem, y = pulses(40, 0.05, loss=Loss.named(loss, 0.3), **jacobians)
    theta = np.array([1.0, 0.05])
    normal = problem.linearize(theta, 0, 40, outer=True, costs=None)
    numeric = [(problem.cost(theta + h) - problem.cost(theta - h)) / 2e-5 for h in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(normal.gradient, numeric, rtol=1e-5)
    # The matrix is the Schur complement of the full Jacobian.
    z = problem.inner(theta)
    r, Jz, J = pulse(theta, z, y), pulse_inner(theta, z, y), pulse_outer(theta, z, y)
    w = problem.loss.cost_and_weight((r**2).sum(axis=1))[1]
    H, S = np.zeros((2, 2)), np.zeros((2, 2))
    for j in range(40):
        left = J[j] - Jz[j] @ np.linalg.lstsq(Jz[j], J[j], rcond=None)[0]
        H += w[j] * left.T @ left
        S += w[j] ** 2 * np.outer(left.T @ r[j], left.T @ r[j])
    np.testing.assert_allclose(normal.hessian, H, rtol=1e-5)
    np.testing.assert_allclose(normal.outer, S, rtol=1e-4)


@pytest.mark.parametrize("acceptance", ["full", "holdout"])
def test_inner_elimination_finds_the_minimum_of_the_full_problem(acceptance):
    problem, _ = pulses(1000, 0.02)
    fit = solve(problem, np.array([1.2, 0.0]), acceptance=acceptance, ftol=1e-12)
    assert fit.success
    np.testing.assert_allclose(fit.x, [0.8, 0.1], atol=0.01)
    small, y = pulses(20, 0.05)
    found = solve(small, np.array([1.2, 0.0]), acceptance="full", ftol=1e-14)

    def everything(v):
        return pulse(v[:2], v[2:].reshape(20, 2), y).ravel()

    v0 = np.concatenate([found.x, small.inner(found.x).ravel()])
    full = least_squares(everything, v0, x_scale="jac", xtol=1e-14, ftol=1e-14)
    assert found.cost == pytest.approx(0.5 * (everything(v0) ** 2).sum(), rel=1e-10)
    assert full.cost > found.cost * (1 - 1e-9)


def test_inner_costs_do_not_depend_on_what_was_evaluated_before():
    problem, _ = pulses(100)
    theta = np.array([1.0, 0.05])
    fresh = problem.costs(theta, 0, 100)
    problem.linearize(np.array([1.5, -0.1]), 0, 100, outer=False, costs=None)
    problem.costs(np.array([0.6, 0.2]), 0, 100)
    np.testing.assert_allclose(problem.costs(theta, 0, 100), fresh, rtol=1e-9)


def test_inner_input_is_checked():
    with pytest.raises(ValueError, match="z0 must have the shape"):
        SeparableProblem(pulse, np.zeros(3), (np.zeros((3, 50)),), 2)
    with pytest.raises(ValueError, match="same length"):
        SeparableProblem(pulse, np.zeros((3, 2)), (np.zeros((4, 50)),), 2)
    wrong = SeparableProblem(lambda theta, z, y: y.sum(axis=1), np.ones((3, 2)), (np.zeros((3, 50)),), 2)
    with pytest.raises(ValueError, match="residual must return"):
        wrong.cost(np.ones(2))
    wrong = SeparableProblem(pulse, np.ones((3, 2)), (np.zeros((3, 50)),), 2, inner_jac=lambda *a: np.zeros((3, 50)))
    with pytest.raises(ValueError, match="inner_jac must return"):
        wrong.cost(np.ones(2))
