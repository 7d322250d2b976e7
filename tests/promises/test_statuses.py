"""Points that look like an end and are none: what the status says there."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import problm
from problm.manifolds import rotation_exp
from problm.solver.result import Status
from tests.helpers.wild_problems import Family, grid, made, solved, u

X = np.linspace(0.0, 1.0, 500)
Y = 2.0 * X + 101.0


def line(t, x, y):
    return t[0] * x + t[1] - y


# --- bounded losses whose every row is beyond their scale --------------------------------------------------------


@pytest.mark.parametrize("loss", ["tukey", "truncated", "welsch"])
@pytest.mark.parametrize("kind", ["function", "formula", "files"])
def test_a_start_without_weights_is_no_success(tmp_path, loss, kind):
    model, data = line, (X, Y)
    if kind == "formula":
        model = problm.formula("a*x + b")
    if kind == "files":
        np.savez(tmp_path / "data.npz", x=X, y=Y)
        data = str(tmp_path / "data.npz")
    fit = problm.least_squares(model, [0.0, 0.0], data=data, loss=loss, f_scale=0.1)
    assert fit.status is Status.NOT_DETERMINED
    assert not fit.success
    assert not fit.certified


@pytest.mark.parametrize("loss", ["cauchy", "geman_mcclure", "huber"])
def test_losses_with_weights_everywhere_find_the_way(loss):
    fit = problm.least_squares(line, [0.0, 0.0], data=(X, Y), loss=loss, f_scale=0.1)
    assert fit.success
    np.testing.assert_allclose(fit.x, [2.0, 101.0], atol=1e-3)


# --- saddle points and maxima ------------------------------------------------------------------------------------

T = np.linspace(0.0, 5.0, 200)


def exponentials(t):
    with np.errstate(over="ignore"):
        terms = sum(a * np.exp(-b * T) for a, b in zip(t[::2], t[1::2], strict=True))
    return terms - 2.0 * np.exp(-T) - np.exp(-0.2 * T)


SADDLES = {
    "two equal terms": (exponentials, [1.0] * 4),
    "three equal terms": (exponentials, [1.0] * 6),
    "two equal peaks": (lambda t: t[0] * np.exp(-((T - t[1]) ** 2)) + t[2] * np.exp(-((T - t[3]) ** 2))
                        - np.exp(-((T - 1.5) ** 2)) - np.exp(-((T - 3.5) ** 2)), [1.0, 2.5, 1.0, 2.5]),
    "a square at zero": (lambda t: np.array([t[0] ** 2 - 1.0]), [0.0]),
    "a square in other units": (lambda t: np.array([t[0] ** 2 - 1e10]), [0.0]),
    "a product at zero": (lambda t: np.array([t[0] * t[1] - 1.0, 0.1 * (t[0] - t[1])]), [0.0, 0.0]),
    "a square times x": (lambda t: t[0] ** 2 * T - T, [0.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", SADDLES)
@pytest.mark.parametrize("jac", ["2-point", "cs"])
def test_saddle_points_of_symmetric_starts_are_left(name, jac):
    residuals, start = SADDLES[name]
    began = 0.5 * float((residuals(np.array(start)) ** 2).sum())
    fit = problm.least_squares(residuals, start, jac=jac)
    scipys = scipy.optimize.least_squares(residuals, np.array(start) + 0.1 * np.arange(1, 1 + len(start)))
    assert fit.success
    assert fit.cost <= max(1.01 * scipys.cost, 1e-12 * began)


# --- parameters that run away ------------------------------------------------------------------------------------


def ellipse(t, x, y):
    return np.sqrt((x / t[0]) ** 2 + (y / t[1]) ** 2) - 1.0


RUNAWAYS = {
    "a half axis": (ellipse, [1.0, 1.5], np.linspace(-3.0, 3.0, 200), np.ones(200)),
    "a saturation": (lambda t, x, y: t[0] * x / (t[1] + x) - y, [1.0, 1.0], X, 2.0 * X),
    "a step": (lambda t, x, y: 0.5 + 0.5 * np.tanh(t[0] * (x - t[1])) - y, [5.0, 0.45], X, (X > 0.4) * 1.0),
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_what_runs_to_infinity_has_no_angle_left_if_it_succeeds(name):
    """A step below xtol of a parameter that has become huge is no sign of convergence."""
    residuals, start, x, y = RUNAWAYS[name]
    fit = problm.least_squares(residuals, start, data=(x, y), max_iter=500)
    assert not fit.success or fit.cosine < 1e-3 or fit.cost < 1e-20
    assert np.isfinite(fit.x).all()


# --- poses -------------------------------------------------------------------------------------------------------

K = np.array([[800.0, 0.0, 320.0], [0.0, 800.0, 240.0], [0.0, 0.0, 1.0]])
TURN = rotation_exp(np.array([0.05, -0.1, 0.02]))


def images(points, R, t, noise, rng):
    def project(Q):
        p = Q @ K.T
        return p[:, :2] / p[:, 2:] + noise * rng.standard_normal((len(Q), 2))

    return project(points), project(points @ R.T + np.asarray(t))


def scene(kind, rng):
    points = np.column_stack([rng.uniform(-2, 2, (300, 2)), rng.uniform(4, 8, 300)])
    if kind == "line":
        points = np.column_stack([points[:, 0], 0.5 * points[:, 0], 5.0 + 0.3 * points[:, 0]])
    if kind == "narrow field":
        points[:, :2] *= 0.01
    return points


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize(
    ("kind", "R", "t", "noise"),
    [
        ("general", np.eye(3), (0, 0, 0), 0.0), ("general", np.eye(3), (0, 0, 0), 0.5),
        ("general", TURN, (0, 0, 0), 0.0), ("general", TURN, (0, 0, 0), 0.5),
        ("line", TURN, (0.5, 0, 0), 0.5), ("narrow field", TURN, (0.5, 0, 0), 0.5),
    ],
    ids=["no motion, exact", "no motion", "rotation, exact", "rotation", "line", "narrow field"],
)  # fmt: skip
def test_degenerate_poses(kind, R, t, noise, robust):
    rng = np.random.default_rng(1)
    pose = problm.essential_matrix(*images(scene(kind, rng), R, t, noise, rng), K, robust=robust)
    assert pose.status == "degenerate"
    assert not pose.success


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("t", [(0.5, 0, 0), (0, 0, -1)], ids=["sideways", "forward"])
def test_poses_that_are_not(t, robust):
    rng = np.random.default_rng(1)
    pose = problm.essential_matrix(*images(scene("general", rng), TURN, t, 0.5, rng), K, robust=robust)
    assert pose.status == "ok"
    assert pose.rotation_error(TURN) < 0.2


def test_a_minimum_at_which_the_derivative_vanishes_is_one():
    """The cost rises to both sides, although no residual depends on the parameter there."""
    fit = problm.least_squares(lambda x: x**2 + 5.0, [2.0])
    assert fit.success
    assert abs(fit.x[0]) < 1e-5


@pytest.mark.parametrize("start", [1e100, 1e150])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_start_far_from_everything_measures_nothing(start, compiled):
    """Steps below 1e-10 of the start, and residuals below 1e-14 of it, looked like an end."""
    rng = np.random.default_rng(900)
    x = np.linspace(0.1, 5.0, 60)
    curve = problm.formula("a*exp(-b*x) + c") if compiled else lambda t, x, y: t[0] * np.exp(-t[1] * x) + t[2] - y
    for a, b, c in rng.uniform(0.2, 3.0, (20, 3)):
        y = a * np.exp(-b * x) + c + 0.01 * rng.standard_normal(60)
        with np.errstate(all="ignore"):
            fit = problm.least_squares(curve, [start, 1.0, 0.0], data=(x, y))
        best = problm.least_squares(curve, [a, b, c], data=(x, y))
        assert not fit.success or fit.cost < 1.01 * best.cost


@pytest.mark.parametrize("amplitude", [1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_term_that_vanished_from_a_small_start(amplitude, compiled):
    """The rate runs to 1e5 and more, where no row depends on the term any more; the small amplitude hid that."""
    rng = np.random.default_rng(77)
    x = np.linspace(0.1, 5.0, 80)
    y = 2.0 * np.exp(-1.2 * x) + 0.5 + 0.01 * rng.standard_normal(80)
    curve = problm.formula("a*exp(-b*x) + c") if compiled else lambda t, x, y: t[0] * np.exp(-t[1] * x) + t[2] - y
    with np.errstate(over="ignore"):
        fit = problm.least_squares(curve, [amplitude, 1.0, 1.0], data=(x, y))
    assert not fit.success or fit.cost < 0.004


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_are_equal_but_for_a_factor_are_redundant(seed):
    """The difference of the smaller one is rounding at the start, and its parameter is as large as that makes it."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((200, 4))
    a[:, 1], a[:, 3] = 1e-9, 1.0
    y = a @ [1.0, 2.0, -1.0, 0.5] + 0.01 * rng.standard_normal(200)
    fit = problm.least_squares(lambda t, a, y: np.sinh(a @ t) - np.sinh(y), rng.uniform(0.5, 1.5, 4), data=(a, y))
    assert fit.success, fit.message
    assert abs(fit.x[[0, 2]] - [1.0, -1.0]).max() < 0.01


def test_a_start_at_which_a_term_has_nearly_underflowed_is_no_minimum():
    """A logistic curve of -1e-15 at most, from a start far beyond the data: rounding hides any change of the cost."""
    rng = np.random.default_rng([1, 1616, 19])
    rng.random()  # as the seed was found

    def start(rng, truth):
        return truth * 10 ** rng.uniform(-1.5, 1.5, 3) * np.where(rng.random(3) < 0.1, -1, 1)

    family = Family("a/(1+exp(-(x-m)/w))", u((1, 5), (2, 8), (0.2, 2)), grid(0, 10), start=start)
    wild = made(family, "logistic", rng)
    outcome = solved(wild)
    assert not outcome.success
    assert outcome.result.status is Status.NOT_DETERMINED


def test_a_start_on_a_plateau_is_no_minimum():
    """A bump that has underflowed at all points: neither height nor width matters here, but both do elsewhere."""
    rng = np.random.default_rng(4)
    x = np.linspace(0.0, 9.0, 60)

    def bump(t, x, y):
        with np.errstate(all="ignore"):
            return t[0] * x * x * np.exp(-x * x / (2.0 * t[1] * t[1])) + t[2] - y

    y = bump(np.array([1.1, 2.0, 0.4]), x, 0.0) + 0.03 * rng.standard_normal(len(x))
    fit = problm.least_squares(bump, [0.1, 0.003, 0.4], data=(x, y))
    assert (fit.status, fit.certified) == (Status.NOT_DETERMINED, False)


def test_a_parameter_that_nothing_ever_depends_on_does_no_harm():
    x = np.linspace(0.0, 9.0, 60)
    fit = problm.least_squares(lambda t, x: t[0] * x + t[1] - np.sin(x), [1.0, 1.0, 5.0], data=(x,))
    assert fit.success
    assert fit.x[2] == 5.0
    assert fit.standard_errors[2] == np.inf
