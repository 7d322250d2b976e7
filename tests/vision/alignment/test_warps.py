"""Warp models: coordinates, retractions, projections."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from problm.vision.alignment.warps import (
    DIMENSIONS,
    MODELS,
    Frame,
    Retraction,
    as_matrix,
    corner_error,
    exponential,
    generators,
    nearest,
    transform,
)

FRAME = Frame.of((480, 640), (300, 500))
HOMOGRAPHY = np.array([[1.1, 0.1, 5.0], [-0.1, 0.9, 8.0], [1e-4, 2e-4, 1.0]])


def point(model: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    start = np.concatenate([nearest(FRAME.normalised(HOMOGRAPHY), model).ravel(), [1.1, 0.1]])
    return Retraction(model, True)(start, 0.2 * rng.normal(size=DIMENSIONS[model] + 2))


def belongs(matrix: np.ndarray, model: str) -> bool:
    a, last = matrix[:2, :2], matrix[2]
    affine = np.allclose(last, [0, 0, 1])
    return {
        "translation": affine and np.allclose(a, np.eye(2)),
        "euclidean": affine and np.allclose(a @ a.T, np.eye(2)) and np.linalg.det(a) > 0,
        "similarity": affine and np.allclose(a @ a.T, abs(np.linalg.det(a)) * np.eye(2)) and np.linalg.det(a) > 0,
        "affine": affine,
        "homography": np.isclose(last[2], 1.0),
        "sl3": np.isclose(np.linalg.det(matrix), 1.0) and last[2] > 0,
    }[model]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=9, max_size=9))
def test_exponential(entries: list[float]) -> None:
    matrix = np.array(entries).reshape(3, 3)
    np.testing.assert_allclose(exponential(matrix), scipy.linalg.expm(matrix), rtol=1e-9, atol=1e-9)


def test_exponential_of_nonsense_is_not_a_number() -> None:
    assert np.isnan(exponential(np.full((3, 3), 1e9))).all()
    assert np.isnan(exponential(np.full((3, 3), np.nan))).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_steps_stay_in_the_model(model: str, seed: int) -> None:
    theta = point(model, seed)
    matrix = theta[:9].reshape(3, 3)
    assert belongs(matrix, model)
    np.testing.assert_allclose(nearest(matrix, model), matrix, atol=1e-12)
    assert np.array_equal(Retraction(model, True)(theta, np.zeros(DIMENSIONS[model] + 2)), theta) or model == "sl3"


@pytest.mark.parametrize("model", MODELS)
def test_derivative_of_a_step(model: str) -> None:
    theta = point(model, 7)
    move = Retraction(model, True)
    matrix = theta[:9].reshape(3, 3)
    for j, basis in enumerate(generators(model)):
        step = np.zeros(move.dim)
        step[j] = 1e-6
        ahead, behind = (move(theta, s * step)[:9].reshape(3, 3) for s in (1, -1))
        numeric = (ahead - behind) / 2e-6
        expected = basis if model == "homography" else matrix @ basis
        if model == "sl3":
            expected = matrix @ (basis - np.trace(basis) / 3 * np.eye(3))
        np.testing.assert_allclose(numeric, expected, atol=1e-8)
    step = np.zeros(move.dim)
    step[-2:] = 0.5, -0.25
    np.testing.assert_allclose(move(theta, step)[9:], theta[9:] + np.array([0.5, -0.25]))


def test_frame_there_and_back() -> None:
    np.testing.assert_allclose(FRAME.pixels(FRAME.normalised(HOMOGRAPHY)), HOMOGRAPHY, atol=1e-12)
    corner = np.array([[0.0, 0.0], [639.0, 479.0]])
    unit = (corner - FRAME.centre1) / FRAME.scale
    mapped = transform(FRAME.normalised(HOMOGRAPHY), unit) * FRAME.scale + FRAME.centre2
    np.testing.assert_allclose(mapped, transform(HOMOGRAPHY, corner), atol=1e-9)


def test_rotations_in_pixels_are_rotations_in_the_frame() -> None:
    c, s = np.cos(0.3), np.sin(0.3)
    matrix = FRAME.normalised(np.array([[c, -s, 20.0], [s, c, -7.0], [0, 0, 1.0]]))
    np.testing.assert_allclose(matrix[:2, :2], [[c, -s], [s, c]], atol=1e-12)


@pytest.mark.parametrize(
    ("initial", "words"),
    [
        (np.zeros((3, 3)), "singular"),
        (np.ones((3, 3)), "singular"),
        (np.eye(4), "shape"),
        (np.full((3, 3), np.nan), "finite"),
        ("north", "3x3 matrix of numbers"),
    ],
)
def test_bad_matrices(initial: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_matrix(initial)  # type: ignore[arg-type]


def test_affine_matrices_get_their_last_row() -> None:
    np.testing.assert_array_equal(as_matrix([[1, 0, 2], [0, 1, 3]])[2], [0, 0, 1])


def test_corner_error_is_a_mean_distance() -> None:
    assert corner_error([[1, 0, 3], [0, 1, 4], [0, 0, 1]], np.eye(3), (10, 20)) == pytest.approx(5.0)
