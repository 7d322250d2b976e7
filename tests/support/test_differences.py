"""Differences: every method, on manifolds, inside bounds, and of several points at once."""

import numpy as np
import pytest

from problm.support.differences import METHODS, derivatives, relative

POINT = np.array([0.5, 2.0, 0.0])


def curve(t):
    return np.array([t[0] * np.exp(t[1]), np.sin(t[2]) + t[0] ** 3, t[1] * t[2]])


EXACT = np.array(
    [[np.exp(2.0), 0.75, 0.0], [0.5 * np.exp(2.0), 0.0, 0.0], [0.0, 1.0, 2.0]]
)  # by each parameter, of each value


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method):
    found = derivatives(curve, POINT, relative(POINT), method, value=curve(POINT))
    np.testing.assert_allclose(found, EXACT, atol={"2-point": 1e-6, "3-point": 1e-9, "cs": 1e-14}[method])


def test_the_sizes_of_zeros_are_one():
    np.testing.assert_array_equal(relative(np.array([[0.0, -3.0]])), [[1.0], [3.0]])


@pytest.mark.parametrize("method", ["2-point", "3-point"])
def test_steps_stay_inside_bounds(method):
    seen = []

    def watched(t):
        seen.append(t.copy())
        return curve(t)

    limits = np.array([0.5, 1.0, 0.0]), np.array([1.5, 2.0, 0.0])  # at the lower one, at the upper one, fixed
    found = derivatives(watched, POINT, relative(POINT), method, value=curve(POINT), limits=limits)
    assert all((limits[0] <= t).all() and (t <= limits[1]).all() for t in seen)
    np.testing.assert_allclose(found[:2], EXACT[:2], rtol=1e-4)
    np.testing.assert_array_equal(found[2], 0.0)


def test_steps_move_along_a_retraction():
    def turned(angle, delta):
        return (angle[0] + delta[0],)

    found = derivatives(lambda angle: np.array([np.sin(angle[0])]), (0.3,), [1.0], retract=turned)
    np.testing.assert_allclose(found, [[np.cos(0.3)]], rtol=1e-9)


def test_several_points_at_once_have_steps_of_their_own():
    points = np.array([[1e-9, 2.0], [1e6, -3.0]])
    found = derivatives(lambda z: np.stack([z[:, 0] ** 2, z[:, 0] * z[:, 1]], axis=1), points, relative(points))
    np.testing.assert_allclose(found[0], [[2e-9, 2.0], [2e6, -3.0]], rtol=1e-9)
    np.testing.assert_allclose(found[1], [[0.0, 1e-9], [0.0, 1e6]], rtol=1e-9)
