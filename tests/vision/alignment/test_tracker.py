"""`Tracker`: follows a template, says when it is lost and finds it again."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

import problm
from problm import Tracker
from problm.vision.alignment.tracker import _strongest, _used
from problm.vision.alignment.warps import corner_error, transform
from problm.vision.images.image import Image

Array = NDArray[np.float64]
SHAPE = (160, 220)


@lru_cache
def world() -> Array:
    rng = np.random.default_rng(7)
    total = sum(s * gaussian_filter(rng.normal(size=(300, 360)), s) for s in (1.5, 4, 12))
    return np.clip(0.5 + 0.2 * total / total.std(), 0.0, 1.0)


def frame(matrix: Array, gain: float = 1.0, noise: float = 0.01, seed: int = 0) -> Array:
    """What the camera sees: pixel ``matrix @ x`` shows what pixel x of the template does."""
    y, x = np.mgrid[0 : SHAPE[0], 0 : SHAPE[1]]
    at = transform(np.linalg.inv(matrix), np.column_stack([x.ravel(), y.ravel()])) + 70.0
    image = map_coordinates(world(), at[:, ::-1].T, order=3, mode="mirror").reshape(SHAPE)
    return gain * image + noise * np.random.default_rng(seed).normal(size=SHAPE)


def path(t: float) -> Array:
    return np.array(
        [[1.0 + 0.004 * t, -0.006 * t, 1.8 * t], [0.006 * t, 1.0 - 0.003 * t, -1.1 * t], [1e-5 * t, -1e-5 * t, 1.0]]
    )


def test_a_homography_is_followed_without_drift() -> None:
    tracker = Tracker(frame(path(0)))
    errors = []
    for t in [*range(1, 13), *range(11, -1, -1)]:
        found = tracker.update(frame(path(t), gain=1.0 + 0.02 * t, seed=100 + t))
        assert found.ok, found.message
        assert not found.recovered
        errors.append(corner_error(found.matrix, path(t), SHAPE))
        assert found.gain == pytest.approx(1.0 / (1.0 + 0.02 * t), rel=0.03)
    assert max(errors) < 0.15
    assert np.mean(errors[-6:]) < np.mean(errors[:6]) + 0.05  # there and back: nothing has added up
    np.testing.assert_array_equal(tracker.matrix, found.matrix)


def test_the_template_is_prepared_once() -> None:
    tracker = Tracker(frame(path(0)))
    tracker.update(frame(path(1)))
    problems = [(id(p), p.data.columns[0].ctypes.data) for p in tracker._problems]
    tracker.update(frame(path(2)))
    assert [(id(p), p.data.columns[0].ctypes.data) for p in tracker._problems] == problems
    assert len(problems) == 3


def test_a_hidden_template_is_lost_and_found_again() -> None:
    tracker = Tracker(frame(path(0)), "affine", recover=False)
    seen = tracker.update(frame(path(1)))
    rng = np.random.default_rng(0)
    for other in (rng.random(SHAPE), 1.0 - frame(path(1)), frame(path(1))[:, ::-1].copy()):
        lost = tracker.update(other)
        assert not lost.ok
        assert lost.message.startswith("Lost: ")
        np.testing.assert_array_equal(lost.matrix, seen.matrix)
    assert tracker.update(frame(path(2))).ok


def test_a_jump_is_recovered_by_a_search() -> None:
    jump = path(1) @ np.array([[1.0, 0.0, 45.0], [0.0, 1.0, -30.0], [0.0, 0.0, 1.0]])
    stubborn, searching = Tracker(frame(path(0)), "affine", recover=False), Tracker(frame(path(0)), "affine")
    assert not stubborn.update(frame(jump)).ok
    found = searching.update(frame(jump))
    assert found.ok
    assert found.recovered
    assert corner_error(found.matrix, jump, SHAPE) < 0.5


def test_region_and_mask_leave_out_what_moves_otherwise() -> None:
    region, mask = (50, 40, 110, 80), np.ones(SHAPE, dtype=bool)
    mask[60:90, 80:120] = False
    tracker = Tracker(frame(path(0)), "translation", roi=region, mask=mask)
    shift = np.array([[1.0, 0.0, 3.0], [0.0, 1.0, -2.0], [0.0, 0.0, 1.0]])
    second = frame(shift)
    second[:32] = second[-32:] = 0.0  # outside of the region
    second[58:88, 83:123] = 1.0  # what the mask leaves out, moved along
    found = tracker.update(second)
    assert found.ok
    np.testing.assert_allclose(found.matrix[:2, 2], [3.0, -2.0], atol=0.05)
    for problem in tracker._problems[:1]:
        y, x = np.divmod(problem.data.columns[0], SHAPE[1])
        assert mask[y, x].all()
        assert (x.min(), y.min()) >= (50, 40)
        assert x.max() < 160
        assert y.max() < 120


def test_strong_pixels_are_spread_over_the_template() -> None:
    values = np.zeros((96, 96), dtype=np.float32)
    values[::4] = 1.0
    values[:, :48] *= 0.1  # weak on the left
    image = Image(values, 1.0)
    chosen = _strongest(image, np.ones((96, 96), dtype=bool), 2000)
    assert 1500 < len(chosen) <= 2400
    assert np.all(np.diff(chosen) > 0)
    assert 0.4 < (chosen % 96 < 48).mean() < 0.6
    assert len(_strongest(image, np.ones((96, 96), dtype=bool), 10**6)) == 96 * 96


def test_missing_pixels_of_a_frame_are_ignored() -> None:
    tracker = Tracker(frame(path(0)), "affine")
    second = frame(path(1))
    second[30:60, 40:90] = np.nan
    found = tracker.update(second)
    assert found.ok
    assert corner_error(found.matrix, path(1), SHAPE) < 0.15
    assert tracker.update(frame(path(2))).ok


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "afine"}, "model"), ({"pixels": 10}, "pixels"), ({"roi": (200, 0, 50, 50)}, "roi"),
        ({"mask": np.zeros(SHAPE, dtype=bool)}, "no usable pixel"), ({"initial": np.zeros((3, 3))}, "initial"),
    ],
)  # fmt: skip
def test_bad_arguments(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Tracker(frame(path(0)), **options)  # type: ignore[arg-type]


def test_frames_must_keep_their_size() -> None:
    tracker = Tracker(frame(path(0)))
    tracker.update(frame(path(0)))
    with pytest.raises(ValueError, match="frame must be of size"):
        tracker.update(frame(path(0))[:100])


def test_public_names_and_used_pixels() -> None:
    assert problm.Tracker is Tracker
    assert _used(Image(np.zeros((20, 30), dtype=np.float32), 1.0), (2, 3, 10, 12)).sum() == 120
