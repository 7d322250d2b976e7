"""Residuals and derivatives of two-view geometry against their definitions and finite differences."""

import numpy as np
import pytest

from problm.losses import LOSSES, as_loss
from problm.manifolds import (
    ESSENTIAL,
    FUNDAMENTAL,
    ROTATION,
    Manifold,
    essential_point,
    euclidean,
    fundamental_from_point,
    fundamental_point,
    rotation_exp,
    skew,
    sphere,
)
from problm.vision.two_view import models as tv
from problm.vision.two_view.degenerate import TURN
from problm.vision.two_view.kernels import pose_from_angles

K1 = np.array([[800.0, 2.0, 320.0], [0.0, 830.0, 240.0], [0.0, 0.0, 1.0]])
K2 = np.array([[650.0, 0.0, 300.0], [0.0, 640.0, 260.0], [0.0, 0.0, 1.0]])
UNIT = np.array([[1 / 300, 0.0, -1.05], [0.0, 1 / 310, -0.8], [0.0, 0.0, 1.0]])


def matches(n=150, seed=0):
    return np.random.default_rng(seed).uniform(0.0, 600.0, (n, 4))


def rotation(kind, rng):
    if kind == "near pi":
        axis = rng.normal(size=3)
        return rotation_exp((np.pi - 1e-9) * axis / np.linalg.norm(axis))
    return np.eye(3) if kind == "identity" else rotation_exp(rng.normal(size=3))


def cases():
    """(name, model, manifold, frame, point)."""
    calibrated = tv.Frame(np.linalg.inv(K1), np.linalg.inv(K2))
    unit = tv.Frame(UNIT, UNIT @ np.diag([0.9, 0.9, 1.0]))
    maps = tv.Frame(UNIT, UNIT @ np.diag([0.9, 0.9, 1.0]), maps=True)
    turned = tv.Frame(np.linalg.inv(K1), np.linalg.inv(K2), maps=True)
    rng = np.random.default_rng(1)
    for kind in ("random", "identity", "near pi"):
        for direction in ([0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [1e-7, -1e-8, -1.0], [1.0, 0.0, 0.0], rng.normal(size=3)):
            theta = essential_point(rotation(kind, rng), direction)
            yield f"E {kind} {np.round(direction, 1)}", tv.ESSENTIAL, ESSENTIAL, calibrated, theta
    for k in range(3):
        yield f"angles {k}", tv.ESSENTIAL_ANGLES, euclidean(5), calibrated, rng.normal(size=5)
        yield f"F {k}", tv.FUNDAMENTAL, FUNDAMENTAL, unit, fundamental_point(rng.normal(size=(3, 3)))
        g = (np.eye(3) + 0.1 * rng.normal(size=(3, 3))).ravel()
        g /= np.linalg.norm(g) * (1 if k < 2 else -1)
        yield f"H transfer {k}", tv.HOMOGRAPHY, sphere(9), maps, g
        yield f"H sampson {k}", tv.HOMOGRAPHY_SAMPSON, sphere(9), maps, g
        yield f"turn {k}", TURN, ROTATION, turned, rotation_exp(0.2 * rng.normal(size=3)).ravel()
    essential = fundamental_point(skew(rng.normal(size=3)) @ rotation("random", rng))
    yield "F at an essential matrix", tv.FUNDAMENTAL, FUNDAMENTAL, unit, essential


CASES = list(cases())


def evaluate(model, frame, theta, x, jacobian):
    """Residuals (n, p) and, if wanted, derivatives (n, p, d), straight from the evaluator."""
    p, d, out = model.components, model.dim, []
    for lo in range(0, len(x), 128):
        part = x[lo : lo + 128]
        rows, values = np.zeros((4, 128)), np.empty((p * (1 + d), 128))
        rows[:, : len(part)] = part.T
        none = np.empty(0)
        model.evaluator(
            model.encoder(frame)(theta), rows, len(part), none.astype(np.int64), none, int(jacobian), values
        )
        out.append(values[:, : len(part)])
    values = np.concatenate(out, axis=1)
    return values[:p].T, values[p:].reshape(p, d, -1).transpose(2, 0, 1) if jacobian else None


@pytest.mark.parametrize(("name", "model", "manifold", "frame", "theta"), CASES, ids=[c[0] for c in CASES])
def test_derivatives_against_differences(name, model, manifold: Manifold, frame, theta):
    x = matches()
    r, J = evaluate(model, frame, theta, x, True)
    alone, _ = evaluate(model, frame, theta, x, False)
    assert np.allclose(r, alone, rtol=1e-13, atol=1e-13 * np.abs(r).max())
    h = 1e-6
    for k in range(model.dim):
        e = h * np.eye(model.dim)[k]
        up, _ = evaluate(model, frame, manifold.retract(theta, e), x, False)
        down, _ = evaluate(model, frame, manifold.retract(theta, -e), x, False)
        slope = (up - down) / (2 * h)
        error = np.abs(slope - J[:, :, k])
        # Near a pole of the error (a point on the line at infinity) differences lose digits first.
        assert (error <= 2e-6 * (np.abs(slope) + np.abs(J).max(axis=(1, 2))[:, None]) + 1e-7).all(), name


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", [tv.ESSENTIAL, tv.FUNDAMENTAL, tv.HOMOGRAPHY, tv.HOMOGRAPHY_SAMPSON])
def test_gradient_of_the_cost_for_every_loss(model, loss):
    _, _, manifold, frame, theta = next(c for c in CASES if c[1] is model)
    x = matches(300, 2)
    problem = tv.two_view_problem(model, [x], frame, as_loss(loss, 30.0))
    gradient = problem.linearize(theta, 0, problem.n, outer=False, costs=None).gradient
    h = 1e-6
    slopes = [
        (problem.cost(manifold.retract(theta, h * e)) - problem.cost(manifold.retract(theta, -h * e))) / (2 * h)
        for e in np.eye(model.dim)
    ]
    assert np.allclose(gradient, slopes, rtol=1e-5, atol=1e-6 * np.abs(gradient).max())


def homogeneous(x):
    return np.c_[x, np.ones(len(x))]


def test_sampson_error_is_its_definition_in_pixels():
    _, model, _, frame, theta = CASES[4]
    x = matches(40)
    R, t = theta[:9].reshape(3, 3), theta[9:]
    F = np.linalg.inv(K2).T @ skew(t) @ R @ np.linalg.inv(K1)
    u, v = homogeneous(x[:, :2]), homogeneous(x[:, 2:])
    Fu, Fv = u @ F.T, v @ F
    expected = (v * Fu).sum(1) / np.sqrt(Fu[:, 0] ** 2 + Fu[:, 1] ** 2 + Fv[:, 0] ** 2 + Fv[:, 1] ** 2)
    r, _ = evaluate(model, frame, theta, x, False)
    assert np.allclose(r[:, 0], expected, rtol=1e-11)


def test_sampson_error_is_the_distance_to_first_order():
    """Moving a perfect match by a small amount changes the error by the distance from the epipolar constraint."""
    rng = np.random.default_rng(3)
    R, t = rotation_exp(0.1 * rng.normal(size=3)), np.array([1.0, 0.2, -0.1])
    X = np.c_[rng.uniform(-2, 2, (50, 2)), rng.uniform(4, 8, 50)]
    Y = X @ R.T + t
    u, v = X @ K1.T, Y @ K2.T
    x = np.c_[u[:, :2] / u[:, 2:], v[:, :2] / v[:, 2:]]
    frame, theta = tv.Frame(np.linalg.inv(K1), np.linalg.inv(K2)), essential_point(R, t)
    exact, _ = evaluate(tv.ESSENTIAL, frame, theta, x, False)
    assert np.abs(exact).max() < 1e-10
    # The gradient by the four coordinates has length one: the error is a distance in pixels.
    h = 1e-4
    gradient = []
    for k in range(4):
        moved = x.copy()
        moved[:, k] += h
        gradient.append((evaluate(tv.ESSENTIAL, frame, theta, moved, False)[0] - exact)[:, 0] / h)
    assert np.allclose(np.linalg.norm(gradient, axis=0), 1.0, rtol=1e-4)


def test_homography_errors_are_their_definitions():
    _, _, _, frame, theta = next(c for c in CASES if c[1] is tv.HOMOGRAPHY)
    x = matches(40)
    H = frame.to_pixels(theta.reshape(3, 3))
    there, back = homogeneous(x[:, :2]) @ H.T, homogeneous(x[:, 2:]) @ np.linalg.inv(H).T
    expected = np.c_[there[:, :2] / there[:, 2:] - x[:, 2:], back[:, :2] / back[:, 2:] - x[:, :2]]
    r, _ = evaluate(tv.HOMOGRAPHY, frame, theta, x, False)
    assert np.allclose(r, expected, rtol=1e-9, atol=1e-9)
    # Sampson: e' (J J')^-1 e with e = x2 w - (u, v), J its derivative by the four coordinates.
    s, _ = evaluate(tv.HOMOGRAPHY_SAMPSON, frame, theta, x, False)
    for i in range(len(x)):
        w = there[i, 2]
        e = x[i, 2:] * w - there[i, :2]
        J = np.c_[np.outer(x[i, 2:], H[2, :2]) - H[:2, :2], w * np.eye(2)]
        assert np.isclose(s[i] @ s[i], e @ np.linalg.solve(J @ J.T, e), rtol=1e-9)


def test_single_precision_matches_are_read_in_place():
    _, model, _, frame, theta = CASES[0]
    x = matches(1000).astype(np.float32)
    a = tv.two_view_problem(model, [x], frame, as_loss("linear"))
    b = tv.two_view_problem(model, [x.astype(np.float64)], frame, as_loss("linear"))
    assert a.data.columns[0] is x
    assert a.cost(theta) == b.cost(theta)


def test_angles_are_the_papers():
    from scipy.spatial.transform import Rotation

    a = np.array([0.3, -0.5, 0.9, 1.1, -2.0])
    pose = pose_from_angles(a)
    assert np.allclose(pose[:9].reshape(3, 3), Rotation.from_euler("XYZ", a[:3]).as_matrix())
    assert np.allclose(pose[9:], [np.sin(1.1) * np.cos(-2), np.sin(1.1) * np.sin(-2), np.cos(1.1)])
    back = tv.angles_from_pose(pose[:9].reshape(3, 3), pose[9:])
    assert np.allclose(back, a)


def test_point_and_matrix_of_each_model_are_inverse():
    rng = np.random.default_rng(5)
    E = skew(rng.normal(size=3)) @ rotation_exp(rng.normal(size=3))
    E /= np.linalg.norm(E)
    F = fundamental_from_point(fundamental_point(rng.normal(size=(3, 3))))
    H = rng.normal(size=(3, 3))
    H /= np.linalg.norm(H)
    for model, X in ((tv.ESSENTIAL, E), (tv.ESSENTIAL_ANGLES, E), (tv.FUNDAMENTAL, F), (tv.HOMOGRAPHY, H)):
        Y = model.matrix(model.point(X))
        Y = Y / np.linalg.norm(Y)
        assert min(np.abs(Y - X).max(), np.abs(Y + X).max()) < 1e-12, model.name
    frame = tv.Frame(UNIT, UNIT, maps=True)
    Y = frame.from_pixels(frame.to_pixels(H))
    assert np.allclose(Y * np.sign(Y[2, 2]), H * np.sign(H[2, 2]))
