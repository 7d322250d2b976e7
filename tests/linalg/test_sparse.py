"""Many parameters and a sparse Jacobian: the answers of dense normal equations, without a dense matrix."""

import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array, eye_array, kron, vstack
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import problm
from problm.linalg import sparse
from problm.linalg.normal import Normal
from problm.linalg.quadratic import QuadraticModel
from problm.linalg.space import Space

D = 700
X0 = -np.ones(D)
TARGET = 0.1 * np.random.default_rng(0).standard_normal(D)


def residuals(x):
    """Broyden's tridiagonal function, and a weak pull that no x satisfies."""
    f = (3.0 - x) * x + 1.0
    f[1:] -= x[:-1]
    f[:-1] -= 2.0 * x[1:]
    return np.concatenate([f, 0.3 * (x - TARGET)])


def banded(x):
    band = diags_array([-np.ones(D - 1), 3.0 - 2.0 * x, -2.0 * np.ones(D - 1)], offsets=[-1, 0, 1]).toarray()
    return csr_array(np.vstack([band, 0.3 * np.eye(D)]))


def operator(x):
    jacobian = banded(x)
    return LinearOperator(jacobian.shape, matvec=jacobian.dot, rmatvec=jacobian.T.dot, dtype=np.float64)


SPARSITY = banded(X0) != 0
BOUNDS = np.full(D, -2.0), np.full(D, -0.45)


@pytest.fixture(scope="module")
def dense():
    found = {}
    for name, options in (("plain", {}), ("bounds", {"bounds": BOUNDS}), ("loss", {"loss": "huber", "f_scale": 0.1})):
        found[name] = problm.least_squares(residuals, X0, jac=lambda x: banded(x).toarray(), **options)
    return found


@pytest.fixture
def no_dense_matrix(monkeypatch):
    """A sparse matrix may not be made dense, and an operator gives its products with vectors only."""
    product = LinearOperator.matmat

    def refuse(*_):
        raise AssertionError("a dense matrix of d^2 numbers")

    monkeypatch.setattr(csr_array, "toarray", refuse)
    monkeypatch.setattr(LinearOperator, "matmat", lambda self, x: refuse() if x.shape[1] > 1 else product(self, x))


@pytest.mark.usefixtures("no_dense_matrix")
@pytest.mark.parametrize("kind", ["jac", "jac_sparsity", "operator"])
@pytest.mark.parametrize("case", ["plain", "bounds", "loss"])
def test_the_same_minimum(kind, case, dense):
    options = {"plain": {}, "bounds": {"bounds": BOUNDS}, "loss": {"loss": "huber", "f_scale": 0.1}}[case]
    how = {"jac": {"jac": banded}, "jac_sparsity": {"jac_sparsity": SPARSITY}, "operator": {"jac": operator}}[kind]
    fit = problm.least_squares(residuals, X0, **how, **options)
    assert fit.success
    assert fit.cost <= dense[case].cost * (1 + 1e-10)
    np.testing.assert_allclose(fit.x, dense[case].x, atol=2e-6)
    np.testing.assert_array_equal(fit.active_mask, dense[case].active_mask)
    assert "parameters        700" in str(fit)
    assert "parameter" not in fit._repr_html_()


def test_errors_are_those_of_the_dense_inverse(dense):
    fit = problm.least_squares(residuals, X0, jac=banded)
    np.testing.assert_allclose(fit.standard_errors, dense["plain"].standard_errors, rtol=1e-6)
    np.testing.assert_allclose(fit.covariance, dense["plain"].covariance, rtol=1e-4, atol=1e-12)
    held = problm.least_squares(residuals, X0, jac=banded, fixed=[3])
    assert held.standard_errors[3] == 0.0
    with pytest.raises(RuntimeError, match="no covariance"):
        problm.least_squares(residuals, X0, jac=operator).standard_errors  # noqa: B018
    with pytest.raises(ValueError, match="many parameters"):
        fit.to_dict()


def test_a_parameter_without_influence_is_singular():
    def reduced(x):
        return residuals(np.append(x[:-1], -1.0))

    def jacobian(x):
        full = banded(np.append(x[:-1], -1.0)).tolil()
        full[:, -1] = 0.0
        return csr_array(full)

    fit = problm.least_squares(reduced, X0, jac=jacobian)
    assert fit.singular
    assert fit.success
    assert fit.x[-1] == X0[-1]


@pytest.mark.parametrize("radius", [1e9, 3.0, 0.1])
@pytest.mark.parametrize("metric", [False, True])
def test_steps_of_a_trust_region(radius, metric):
    jacobian, r = banded(X0), residuals(X0)
    hessian = (jacobian.T @ jacobian).tocsc()
    rows = len(r)
    metrics = np.linspace(1.0, 2.0, D) * hessian.diagonal() / rows if metric else None
    models = [
        QuadraticModel(Normal(rows, 0.5 * r @ r, jacobian.T @ r, hessian.toarray()), X0, Space(D), lambda _: metrics),
        sparse.SparseModel(Normal(rows, 0.5 * r @ r, jacobian.T @ r, hessian), X0, Space(D), lambda _: metrics),
        sparse.SparseModel(
            Normal(rows, 0.5 * r @ r, jacobian.T @ r, sparse.Gram(aslinearoperator(jacobian), r)),
            X0, Space(D), lambda _: metrics,
        ),
    ]  # fmt: skip
    dense, direct, iterative = models
    damping, length = dense.damping_within(radius)
    assert direct.damping_within(radius) == pytest.approx((damping, length), rel=1e-3)
    np.testing.assert_allclose(direct.step(damping)[0], dense.step(damping)[0], rtol=1e-6, atol=1e-9)
    assert direct.step(damping)[1] == pytest.approx(dense.step(damping)[1], rel=1e-6)
    assert iterative.decrement == pytest.approx(dense.decrement, rel=1e-8)
    assert iterative.damping_within(radius)[1] <= 1.11 * radius


def test_conjugate_gradients_give_up_where_they_take_too_long():
    laplace = diags_array([-np.ones(1999), np.full(2000, 2.0), -np.ones(1999)], offsets=[-1, 0, 1]).tocsr()
    right = np.random.default_rng(0).standard_normal(2000)
    assert sparse.conjugate_gradients(laplace, np.zeros(2000), right) is None
    x = sparse.conjugate_gradients(laplace, np.ones(2000), right)
    np.testing.assert_allclose(laplace @ x + x, right, atol=1e-5)


def test_bands_give_the_solution_of_a_general_factor():
    band = diags_array([np.full(699, 0.3), np.ones(700), np.full(699, 0.3)], offsets=[-1, 0, 1]).tocsc()
    right = np.random.default_rng(1).standard_normal(700)
    factor, singular = sparse.factored(band, 0.1)
    assert isinstance(factor, sparse._Banded)
    assert not singular
    np.testing.assert_allclose((band + diags_array(np.full(700, 0.1))) @ factor.solve(right), right, atol=1e-12)
    loose = band.tolil()
    loose[3, 3] = loose[3, 2] = loose[2, 3] = loose[3, 4] = loose[4, 3] = 0.0
    assert sparse.factored(loose.tocsc())[1]


def test_no_factor_where_conjugate_gradients_converge(monkeypatch):
    """An image: its matrix is never factored, not for the rank at the end either."""
    side = 24
    d = side * side
    difference = diags_array([-np.ones(side - 1), np.ones(side - 1)], offsets=[0, 1], shape=(side - 1, side))
    edges = vstack([kron(eye_array(side), difference), kron(difference, eye_array(side))]).tocsr()
    y, x = np.mgrid[:side, :side]
    seen = (0.05 + 0.9 * ((x - 12) ** 2 + (y - 12) ** 2 < 50)).ravel() ** 2
    seen = seen + 0.05 * np.random.default_rng(0).standard_normal(d)
    factors = []
    factored = sparse.factored
    monkeypatch.setattr(sparse, "factored", lambda *a: factors.append(1) or factored(*a))
    fit = problm.least_squares(
        lambda u: np.concatenate([u**2 - seen, 0.5 * (edges @ u)]), np.full(d, 0.5),
        lambda u: vstack([diags_array(2 * u), 0.5 * edges]).tocsr(),
    )  # fmt: skip
    assert fit.success
    assert fit.nit > 3
    assert np.abs(fit.grad).max() < 1e-6
    assert not factors
    assert not fit.singular


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1.0])
def test_twins_are_singular_though_gradients_never_show_it(apart):
    """Two parameters that do the same to all residuals: any gradient is orthogonal to their difference."""
    rng = np.random.default_rng(2)
    jacobian = vstack([eye_array(D), 0.2 * diags_array([np.ones(D - 40)], offsets=[40], shape=(D, D))]).tolil()
    jacobian[:, 5] = jacobian[:, 600].toarray() + apart * jacobian[:, 5].toarray()
    jacobian = csr_array(jacobian)
    target = rng.standard_normal(2 * D)
    fit = problm.least_squares(lambda x: jacobian @ x - target, np.zeros(D), jac=lambda x: jacobian)
    assert fit.singular == (apart < 1.0)
    assert np.abs(jacobian.T @ fit.fun).max() < 1e-6


def test_bounds_of_an_image_are_reached_together(monkeypatch):
    """One at a time would take thousands of solves."""
    side = 40
    difference = diags_array([-np.ones(side), np.ones(side - 1)], offsets=[0, 1])
    edges = csr_array(vstack([kron(difference, eye_array(side)), kron(eye_array(side), difference)]))
    jacobian = csr_array(vstack([eye_array(side * side), 2.0 * edges]))
    seen = np.add.outer(np.sin(np.arange(side) / 9), np.cos(np.arange(side) / 7)).ravel()
    seen += 0.3 * np.random.default_rng(0).standard_normal(side * side)
    target = np.concatenate([seen, np.zeros(2 * side * side)])
    solves = []
    solver = sparse.conjugate_gradients
    monkeypatch.setattr(sparse, "conjugate_gradients", lambda *a, **k: solves.append(1) or solver(*a, **k))
    fit = problm.least_squares(
        lambda u: jacobian @ u - target, np.full(side * side, 0.1), jac=lambda u: jacobian, bounds=(0.0, 1.2)
    )
    assert fit.success
    slope = jacobian.T @ fit.fun
    assert (fit.x == 0.0).sum() > 200
    assert np.abs(slope[(fit.x > 0.0) & (fit.x < 1.2)]).max() < 1e-3
    assert slope[fit.x == 0.0].min() > -1e-3
    assert len(solves) < 300
