"""Curved spaces: points stay on them, tangents are first-order exact, retractions are onto and smooth everywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

from problm.manifolds import (
    ESSENTIAL,
    FUNDAMENTAL,
    ROTATION,
    as_rotation,
    essential_point,
    euclidean,
    fundamental_from_point,
    fundamental_point,
    nearest_rotation,
    product,
    quaternions_of,
    rotation_exp,
    rotation_log,
    rotations_by,
    rotations_of,
    skew,
    sphere,
    tangent_basis,
    walk_sphere,
)


def random_rotation(rng):
    return rotation_exp(rng.normal(size=3))


def test_exponential_of_small_and_large_angles():
    from scipy.linalg import expm

    rng = np.random.default_rng(0)
    for angle in (0.0, 1e-12, 1e-6, 1e-4, 1.0001e-4, 1e-2, 1.0, np.pi - 1e-7, np.pi, 6.0):
        axis = rng.normal(size=3)
        w = angle * axis / np.linalg.norm(axis)
        assert np.abs(rotation_exp(w) - expm(skew(w))).max() < 3e-15


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.5, np.pi - 1e-8, np.pi - 1e-4])
def test_logarithm_inverts_the_exponential(angle):
    w = angle * np.array([0.6, -0.64, 0.48])
    assert np.abs(rotation_log(rotation_exp(w)) - w).max() < 1e-8


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=9))
def test_tangent_basis_is_orthonormal_and_orthogonal(values):
    x = np.array(values)
    if np.linalg.norm(x) < 1e-3:
        x[-1] = 1.0
    x /= np.linalg.norm(x)
    B = tangent_basis(x)
    n = len(x)
    assert np.abs(B.T @ B - np.eye(n - 1)).max() < 1e-14
    assert np.abs(B.T @ x).max() < 1e-14


@pytest.mark.parametrize("pole", [[0, 0, 1.0], [0, 0, -1.0], [1.0, 0, 0], [1e-9, 0, 1.0], [0, 1e-9, -1.0]])
def test_sphere_at_and_near_its_poles(pole):
    x = np.array(pole) / np.linalg.norm(pole)
    delta = np.array([0.3, -0.2])
    y = walk_sphere(x, delta)
    assert abs(np.linalg.norm(y) - 1.0) < 1e-15
    assert abs(np.arccos(x @ y) - np.linalg.norm(delta)) < 1e-12  # by the angle |delta|
    h = 1e-6
    for k in range(2):
        e = h * np.eye(2)[k]
        slope = (walk_sphere(x, e) - walk_sphere(x, -e)) / (2 * h)
        assert np.abs(slope - tangent_basis(x)[:, k]).max() < 1e-9


def test_thousands_of_steps_leave_a_rotation_a_rotation():
    rng = np.random.default_rng(1)
    theta = np.eye(3).ravel()
    for _ in range(3000):
        theta = ROTATION.retract(theta, 0.1 * rng.normal(size=3))
    R = theta.reshape(3, 3)
    assert np.abs(R.T @ R - np.eye(3)).max() < 1e-14
    assert abs(np.linalg.det(R) - 1.0) < 1e-14


def test_rotation_is_moved_on_the_left():
    rng = np.random.default_rng(2)
    R, w = random_rotation(rng), rng.normal(size=3)
    assert np.abs(ROTATION.retract(R.ravel(), w).reshape(3, 3) - rotation_exp(w) @ R).max() < 1e-14


def test_essential_moves_rotation_and_direction():
    rng = np.random.default_rng(3)
    R, t = random_rotation(rng), rng.normal(size=3)
    theta = essential_point(R, t)
    delta = rng.normal(size=5)
    moved = ESSENTIAL.retract(theta, delta)
    assert np.allclose(moved[:9].reshape(3, 3), rotation_exp(delta[:3]) @ R)
    assert np.allclose(moved[9:], walk_sphere(t / np.linalg.norm(t), delta[3:]))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_fundamental_keeps_rank_and_norm(seed):
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(3, 3))
    theta = fundamental_point(F)
    start = fundamental_from_point(theta)
    U, s, Vt = np.linalg.svd(F)
    nearest = U[:, :2] @ np.diag(s[:2]) @ Vt[:2]
    assert np.abs(start - nearest / np.linalg.norm(nearest)).max() < 1e-14
    moved = fundamental_from_point(FUNDAMENTAL.retract(theta, rng.normal(size=7)))
    assert abs(np.linalg.norm(moved) - 1.0) < 1e-14
    assert abs(np.linalg.det(moved)) < 1e-15


@pytest.mark.parametrize("matrix", ["general", "essential", "nearly rank one"])
def test_fundamental_tangents_span_all_seven_directions(matrix):
    rng = np.random.default_rng(4)
    if matrix == "general":
        F = rng.normal(size=(3, 3))
    elif matrix == "essential":  # equal singular values: the form with diag(s1, s2) loses a direction here
        F = skew(rng.normal(size=3)) @ random_rotation(rng)
    else:
        F = random_rotation(rng) @ np.diag([1.0, 1e-2, 0.0]) @ random_rotation(rng)
    theta = fundamental_point(F)
    h = 1e-6
    J = np.array(
        [
            (
                fundamental_from_point(FUNDAMENTAL.retract(theta, h * e))
                - fundamental_from_point(FUNDAMENTAL.retract(theta, -h * e))
            ).ravel()
            / (2 * h)
            for e in np.eye(7)
        ]
    )
    values = np.linalg.svd(J, compute_uv=False)
    assert len(values) == 7
    assert values[-1] > (5e-3 if matrix == "nearly rank one" else 0.1)


def test_products_and_flat_space():
    space = product(ROTATION, sphere(4), euclidean(2))
    assert (space.size, space.dim) == (15, 8)
    rng = np.random.default_rng(5)
    x = rng.normal(size=4)
    theta = np.concatenate([np.eye(3).ravel(), x / np.linalg.norm(x), [1.0, 2.0]])
    delta = rng.normal(size=8)
    moved = space.retract(theta, delta)
    assert np.allclose(moved[:9], rotation_exp(delta[:3]).ravel())
    assert np.allclose(moved[9:13], walk_sphere(theta[9:13], delta[3:6]))
    assert np.allclose(moved[13:], theta[13:] + delta[6:])
    assert np.array_equal(theta[:9], np.eye(3).ravel())  # the start is not touched


def test_nearest_rotation_of_a_reflection_is_a_rotation():
    assert abs(np.linalg.det(nearest_rotation(np.diag([1.0, 1.0, -0.1]))) - 1.0) < 1e-14


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        sphere(1)
    with pytest.raises(ValueError, match="at least one"):
        product()


def test_nearly_rotations_are_straightened_and_others_told():
    rng = np.random.default_rng(6)
    R = random_rotation(rng)
    near, departure = as_rotation(R + 1e-4 * rng.normal(size=(3, 3)))
    assert np.abs(near.T @ near - np.eye(3)).max() < 1e-14
    assert 1e-5 < departure < 2e-3
    assert np.abs(near - R).max() < 1e-3
    assert as_rotation(-R)[1] >= 2.0
    assert as_rotation(2.0 * R)[1] >= 2.0
    assert not np.isfinite(as_rotation(np.full((3, 3), np.nan))[1])


def some_vectors(n: int = 500) -> np.ndarray:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-8.0, 0.4, (n, 1))
    vectors[:4] = [[0, 0, 0], [np.pi, 0, 0], [0, -np.pi, 0], [0.6 * np.pi, -0.8 * np.pi, 0]]
    return vectors


def test_rotations_of_vectors_and_quaternions_are_scipys() -> None:
    vectors, few = some_vectors(), np.random.default_rng(6).normal(size=(200, 4))
    assert_allclose(rotations_by(vectors), Rotation.from_rotvec(vectors).as_matrix(), rtol=0.0, atol=1e-15)
    assert_allclose(rotations_of(few), Rotation.from_quat(few).as_matrix(), rtol=0.0, atol=1e-15)
    assert rotations_of(np.empty((0, 4))).shape == (0, 3, 3)


def test_quaternions_and_logarithms_are_scipys() -> None:
    rotations = Rotation.from_rotvec(some_vectors()).as_matrix()
    theirs = Rotation.from_matrix(rotations)
    assert_allclose(quaternions_of(rotations), theirs.as_quat(canonical=True), rtol=0.0, atol=1e-15)
    assert_allclose([rotation_log(R) for R in rotations], theirs.as_rotvec(), rtol=1e-14, atol=1e-16)
    assert quaternions_of(np.empty((0, 3, 3))).shape == (0, 4)


def test_quaternions_of_rough_matrices_are_those_of_the_nearest_rotations() -> None:
    rotations = Rotation.from_rotvec(some_vectors()).as_matrix() + 1e-3
    nearest = quaternions_of([nearest_rotation(R) for R in rotations])
    assert_allclose(quaternions_of(rotations), nearest, rtol=0.0, atol=1e-12)
    with pytest.raises(ValueError, match="no rotation"):
        quaternions_of([np.diag([1.0, 1.0, -1.0])])
