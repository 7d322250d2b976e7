"""Residuals and derivatives of RGB-D odometry, and the pyramid of depth maps."""

import numpy as np
import pytest

from problm.manifolds import rotation_exp
from problm.vision.images.image import Image
from problm.vision.rgbd.problem import LIT, RIGID, RgbdProblem
from problm.vision.rgbd.simulate import two_frames
from problm.vision.rgbd.views import Views, halve_depth, pyramid

FRAMES = two_frames(64, 48, holes=0.1, seed=5)


def views(depth2=True, mask=False):
    valid = None
    if mask:
        valid = np.ones(FRAMES.image2.shape, dtype=bool)
        valid[10:20, 30:40] = False
    K = FRAMES.K.copy()
    K[0, 1] = 0.7
    second = Image(FRAMES.image2, 1.0, valid)
    return Views(Image(FRAMES.image1, 1.0), FRAMES.depth1, second, FRAMES.depth2 if depth2 else None, K)


def pose(lit):
    theta = np.concatenate([rotation_exp(np.array([0.08, -0.05, 0.11])).ravel(), [0.11, -0.07, 0.05]])
    return np.append(theta, [1.1, -0.04]) if lit else theta


@pytest.mark.parametrize(("depth2", "lit", "mask"), [(False, False, True), (True, True, False), (True, False, True)])
def test_derivatives(depth2, lit, mask):
    problem = RgbdProblem(views(depth2, mask), (0.02, 0.05), outside=(1.5, 0.8), lit=lit)
    theta, space, h = pose(lit), LIT if lit else RIGID, 1e-7
    r, jacobian = problem.residuals(theta), problem.jacobian(theta)
    partly = problem.look_up(theta)[1]
    assert ((partly > 0.0) & (partly < 1.0)).any(axis=1).all()  # some rows lie in the band, some outside
    assert (partly == 0.0).any(axis=1).all()
    for k in range(space.dim):
        step = np.zeros(space.dim)
        step[k] = h
        ahead, behind = (problem.residuals(space.retract(theta, s * step)) for s in (1, -1))
        # Squares, because the sign of a residual changes where a pixel enters the band.
        slopes, expected = (ahead**2 - behind**2) / (2 * h), 2.0 * r * jacobian[:, :, k]
        off = np.abs(slopes - expected) > 1e-4 * np.abs(expected).max()
        assert off.mean() < 2e-3  # rows that cross into the next cell


def test_residuals_by_their_definition():
    v = views()
    problem = RgbdProblem(v, (0.02, 0.05), lit=True)
    theta = pose(True)
    moved = v.points.astype(float) @ theta[:9].reshape(3, 3).T + theta[9:12]
    seen = moved @ v.K.T
    u, w = seen[:, 0] / seen[:, 2], seen[:, 1] / seen[:, 2]
    inside = (u > 3) & (u < 60) & (w > 3) & (w < 44) & (problem.look_up(theta)[1][1] == 1.0)
    i, j = np.floor(w[inside]).astype(int), np.floor(u[inside]).astype(int)
    q, p = w[inside] - i, u[inside] - j

    def at(plane):
        top = (1 - p) * plane[i, j] + p * plane[i, j + 1]
        return (1 - q) * top + q * ((1 - p) * plane[i + 1, j] + p * plane[i + 1, j + 1])

    light = (1.1 * at(FRAMES.image2.astype(float)) - 0.04 - v.values[inside]) / 0.02
    depth = (at(FRAMES.depth2.astype(float)) - moved[inside, 2]) / 0.05
    assert inside.sum() > 500
    assert np.allclose(problem.residuals(theta)[inside], np.column_stack([light, depth]), atol=1e-3)


def test_points_project_to_their_pixels_on_every_level():
    for level in pyramid(views(), 3, 20):
        seen = level.points @ level.K.T
        assert np.allclose(seen[:, :2] / seen[:, 2:], level.pixels, atol=1e-3)
        assert level.points[:, 2].min() > 0.0


def test_depth_is_averaged_on_one_surface_only():
    depth = np.array([[1.0, 1.0, 1.0, 5.0, 0.0, 2.0], [1.0, 1.0, 1.0, 5.0, 0.0, 0.0]], dtype=np.float32)
    assert np.array_equal(halve_depth(depth), [[1.0, 0.0, 0.0]])
