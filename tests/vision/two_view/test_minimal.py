"""Minimal solvers against scenes with known answers, roots against NumPy, and the compiled work on candidates."""

import numpy as np
import pytest

from problm.kernels.kernel import EVALUATOR, address_of, describe
from problm.linalg.polynomial import real_roots
from problm.manifolds import essential_point, rotation_exp, skew
from problm.vision.two_view import candidates as hy
from problm.vision.two_view import models as tv
from problm.vision.two_view.minimal import five_point, four_point, null_space, seven_point
from problm.vision.two_view.pose import choose_pose, decompose_essential
from problm.vision.two_view.simulate import two_views


def scene(n, rng):
    R, t = rotation_exp(0.4 * rng.normal(size=3)), rng.normal(size=3)
    t /= np.linalg.norm(t)
    X = rng.uniform(-2, 2, (50 * n, 3)) + np.array([0, 0, 5])
    Y = X @ R.T + t
    seen = np.flatnonzero(Y[:, 2] > 0.5)[:n]
    if len(seen) < n:
        return scene(n, rng)
    X, Y = X[seen], Y[seen]
    return np.c_[X[:, :2] / X[:, 2:], Y[:, :2] / Y[:, 2:]], R, t


def nearest(found, wanted):
    wanted = wanted.ravel() / np.linalg.norm(wanted)
    return min((min(np.abs(f - wanted).max(), np.abs(f + wanted).max()) for f in found), default=np.inf)


def test_five_points_hold_the_true_matrix():
    rng = np.random.default_rng(0)
    out = np.empty((10, 9))
    errors, counts = [], []
    for _ in range(500):
        x, R, t = scene(5, rng)
        count = five_point(x, out)
        counts.append(count)
        errors.append(nearest(out[:count], skew(t) @ R))
        for f in out[:count]:
            E = f.reshape(3, 3)
            assert abs(np.linalg.norm(E) - 1.0) < 1e-12
    errors = np.array(errors)
    assert np.median(errors) < 1e-11
    assert np.mean(errors < 1e-4) > 0.985  # the rest are double roots, as in every implementation
    assert min(counts) >= 0
    assert max(counts) <= 10


def test_five_point_solutions_satisfy_every_condition():
    rng = np.random.default_rng(1)
    out = np.empty((10, 9))
    worst = []
    for _ in range(200):
        x, _, _ = scene(5, rng)
        for f in out[: five_point(x, out)]:
            E = f.reshape(3, 3)
            u, v = np.c_[x[:, :2], np.ones(5)], np.c_[x[:, 2:], np.ones(5)]
            epipolar = np.abs((v * (u @ E.T)).sum(1)).max()
            worst.append(max(epipolar, np.abs(2 * E @ E.T @ E - np.trace(E @ E.T) * E).max()))
    assert np.quantile(worst, 0.98) < 1e-6


def test_seven_points():
    rng = np.random.default_rng(2)
    out = np.empty((3, 9))
    for _ in range(200):
        x, R, t = scene(7, rng)
        count = seven_point(x, out)
        assert 1 <= count <= 3
        assert nearest(out[:count], skew(t) @ R) < 1e-8
        assert max(abs(np.linalg.det(f.reshape(3, 3))) for f in out[:count]) < 1e-10


def test_four_points_and_refused_samples():
    rng = np.random.default_rng(3)
    out = np.empty((1, 9))
    for _ in range(100):
        H = np.eye(3) + 0.2 * rng.normal(size=(3, 3))
        x = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1.0]]) + 0.2 * rng.normal(size=(4, 2))
        y = np.c_[x, np.ones(4)] @ H.T
        if (y[:, 2] > 0.2).all() and np.linalg.det(H) > 0:
            assert four_point(np.c_[x, y[:, :2] / y[:, 2:]], out) == 1
            assert nearest(out, H) < 1e-9
    on_a_line = np.array([[0, 0], [1, 1], [2, 2], [0, 3.0]])
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]])
    assert four_point(np.c_[on_a_line, square], out) == 0
    assert four_point(np.c_[square, on_a_line], out) == 0
    crossed = square[[0, 2, 1, 3]]  # one triangle keeps its turn, another does not
    assert four_point(np.c_[square, crossed], out) == 0


def test_degenerate_samples_do_no_harm():
    out = np.empty((10, 9))
    same = np.tile([[0.1, 0.2, 0.3, 0.4]], (7, 1))
    for solver, k in ((five_point, 5), (seven_point, 7), (four_point, 4)):
        count = solver(same[:k], out)
        assert 0 <= count <= 10
    assert 0 <= five_point(np.zeros((5, 4)), out) <= 10
    assert five_point(np.full((5, 4), np.nan), out) == 0


def test_null_space():
    rng = np.random.default_rng(4)
    for m in (4, 5, 7, 8):
        A = rng.normal(size=(m, 9))
        N = null_space(A.copy())
        assert np.abs(N @ N.T - np.eye(9 - m)).max() < 1e-13
        assert np.abs(A @ N.T).max() < 1e-13


@pytest.mark.parametrize("degree", [1, 2, 3, 5, 10])
def test_roots_against_numpy(degree):
    rng = np.random.default_rng(degree)
    for scale in (1.0, 1e-6, 1e6):
        for _ in range(100):
            p = scale * rng.normal(size=degree + 1)
            roots = np.empty(10)
            count = real_roots(p, roots)
            expected = np.roots(p[::-1])
            expected = np.sort(expected[np.abs(expected.imag) < 1e-9].real)
            assert count == len(expected)
            assert np.allclose(np.sort(roots[:count]), expected, rtol=1e-6)


def test_roots_of_odd_polynomials():
    roots = np.empty(10)
    assert real_roots(np.array([1.0, 0.0, 1.0]), roots) == 0
    assert real_roots(np.array([5.0]), roots) == 0
    assert real_roots(np.zeros(4), roots) == 0
    assert real_roots(np.array([-6.0, 3.0, 0.0, 0.0]), roots) == 1  # leading zeros: degree 1
    assert roots[0] == pytest.approx(2.0)
    assert real_roots(np.array([np.nan, 1.0, 1.0]), roots) == 0
    wide = np.poly([1e-3, 1.0, -1.0, 1e4])[::-1].copy()
    assert real_roots(wide, roots) == 4
    assert np.allclose(np.sort(roots[:4]), [-1.0, 1e-3, 1.0, 1e4], rtol=1e-9)


def test_decomposition_and_cheirality():
    rng = np.random.default_rng(5)
    for _ in range(50):
        x, R, t = scene(30, rng)
        for sign in (1.0, -3.0):
            Ra, Rb, d = decompose_essential(sign * skew(t) @ R)
            assert min(np.abs(Ra - R).max(), np.abs(Rb - R).max()) < 1e-12
            assert min(np.abs(d - t).max(), np.abs(d + t).max()) < 1e-12
            best, front = choose_pose(np.concatenate([Ra.ravel(), d]), np.ascontiguousarray(x))
            assert np.abs(best[:9].reshape(3, 3) - R).max() < 1e-12
            assert np.abs(best[9:] - t).max() < 1e-12
            assert front.all()


def test_float32_scores_are_the_truncated_errors():
    views = two_views(1000, inliers=0.6, seed=6)
    x = np.c_[views.x1, views.x2]
    A = np.linalg.inv(views.K)
    frame = tv.Frame(A, A)
    theta = essential_point(views.R, views.t)
    pixel = np.empty((1, 9), dtype=np.float32)
    hy.to_pixels(tv.ESSENTIAL.matrix(theta).ravel(), A, frame.B2, pixel[0])
    out = np.zeros(1, dtype=np.float32)
    hy.score(False, pixel, np.ascontiguousarray(x.T, dtype=np.float32), 100, 900, 1.5, 1.0, out)
    r = tv.two_view_problem(tv.ESSENTIAL, [x], frame, tv.Loss.named("linear")).residuals(theta)[100:900, 0]
    wide, narrow = (np.minimum((r / width) ** 2, 1.0).sum() for width in (1.5, 0.3))
    assert out[0] == pytest.approx(wide, rel=1e-3)
    hy.score(False, pixel, np.ascontiguousarray(x.T, dtype=np.float32), 100, 900, 1.5, 0.2, out)
    assert out[0] - wide == pytest.approx(0.5 * (wide + narrow), rel=1e-3)


@pytest.mark.parametrize("kind", ["essential", "fundamental", "homography"])
def test_walking_downhill_arrives(kind):
    """`descend` must reach the minimum that the solver finds from the same start."""
    from problm.losses import as_loss
    from problm.solver.loop import solve

    views = two_views(600, inliers=0.8, seed=7, plane=kind == "homography")
    x = np.c_[views.x1, views.x2]
    A = np.linalg.inv(views.K)
    rng = np.random.default_rng(8)
    if kind == "homography":
        model, frame = tv.HOMOGRAPHY_SAMPSON, tv.Frame(A, A, maps=True)
        normal, z = np.array([0.3, -0.2, 1.0]), 7.0
        start = model.point(views.R + np.outer(views.t, normal) / z + 1e-3 * rng.normal(size=(3, 3)))
    else:
        model, frame = (tv.ESSENTIAL if kind == "essential" else tv.FUNDAMENTAL), tv.Frame(A, A)
        start = model.point(skew(views.t) @ views.R + 0.01 * rng.normal(size=(3, 3)))
    points, costs = start[None].copy(), np.empty(1)
    hy.descend(
        hy.addresses(model.encode, model.retract), address_of(model.evaluator, EVALUATOR), model.dim, model.components,
        describe([x]), len(x), *model.changes(frame), points, np.array([6.0, 2.0]), 25, costs,
    )  # fmt: skip
    problem = tv.two_view_problem(model, [x], frame, as_loss("truncated", 2.0))
    best = solve(problem, points[0])
    assert problem.cost(points[0]) == pytest.approx(best.cost, rel=1e-4)
    assert costs[0] == pytest.approx(problem.cost(points[0]) / (len(x) * 0.25 * 4.0), rel=1e-9)
    assert problem.cost(points[0]) < 0.8 * problem.cost(start)
