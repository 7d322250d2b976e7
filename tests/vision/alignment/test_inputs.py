"""What users pass to `align` that is not two ordinary photographs: what comes of it, or what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from problm import align
from problm.vision.alignment.warps import corner_error, transform

Array = NDArray[np.float64]
SHIFT = (-3.25, 2.5)


def scene(dx: float, dy: float, rows: int = 120, columns: int = 160) -> Array:
    """A part of one texture with values from 0 to 1, moved by (dx, dy)."""
    field = gaussian_filter(np.random.default_rng(3).random((300, 340)), 3.0)
    field = (field - field.min()) / np.ptp(field)
    y, x = np.mgrid[0:rows, 0:columns]
    return np.asarray(map_coordinates(field, [y + 80 + dy, x + 80 + dx], order=3))


FIRST, SECOND = scene(0.0, 0.0), scene(3.25, -2.5)


def as_type(values: Array, kind: str) -> NDArray[Any]:
    if kind == "RGBA":
        grey = np.rint(255 * values.clip(0, 1)).astype(np.uint8)
        return np.dstack([grey, grey, grey, np.full_like(grey, 255)])
    if kind.startswith("times "):
        return values * float(kind[6:])
    dtype = np.dtype(kind)
    most = 1.0 if dtype.kind == "f" else min(float(np.iinfo(dtype).max), 1e9)
    return (most * values.clip(0, 1)).astype(dtype)


@pytest.mark.parametrize(
    "kind", ["u1", ">u2", "u2", "u4", "i2", "i4", "f2", "RGBA", "times 1e30", "times 1e-30", "times -5"]
)
def test_types_and_units_of_values_do_not_matter(kind: str) -> None:
    found = align(as_type(FIRST, kind), as_type(SECOND, kind), model="translation", threads=1)
    assert found.success
    np.testing.assert_allclose(found.matrix[:2, 2], SHIFT, atol=0.02)


def test_images_of_different_types_differ_by_gain_only() -> None:
    found = align(as_type(FIRST, "u1"), 255.0 * SECOND, model="translation", threads=1)
    assert found.success
    assert found.photometric
    np.testing.assert_allclose(found.matrix[:2, 2], SHIFT, atol=0.02)


def test_overlap_of_identical_images_is_everything() -> None:
    for rows, columns in ((120, 160), (16, 16)):
        image = scene(0.0, 0.0, rows, columns)
        found = align(image, image, model="translation", threads=1)
        assert found.success
        assert found.overlap > 0.87  # a shift by rounding may take a row and a column away
        np.testing.assert_allclose(found.matrix, np.eye(3), atol=1e-6)
    half = align(FIRST, scene(80.0, 0.0), initial=[[1, 0, -79], [0, 1, 0]], model="translation", threads=1)
    assert half.overlap == pytest.approx(0.5, abs=0.02)
    assert half.overlap == pytest.approx(half.inside.mean())


def test_overlap_leaves_out_what_masks_hide() -> None:
    mask1, mask2 = np.ones(FIRST.shape, dtype=bool), np.ones(FIRST.shape, dtype=bool)
    mask1[:, :40], mask2[:60] = False, False
    found = align(FIRST, FIRST, mask1=mask1, mask2=mask2, model="translation", threads=1)
    assert found.overlap == pytest.approx(0.5, abs=0.02)
    assert not found.inside[:, :40].any()
    assert not found.inside[:59].any()


def test_warp_is_that_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    matrix = np.array([[0.98, 0.05, 4.2], [-0.04, 1.03, -3.1], [1e-4, -5e-5, 1.0]])
    y, x = np.mgrid[0:120, 0:160]
    at = transform(matrix, np.column_stack([x.ravel(), y.ravel()]))
    first = map_coordinates(SECOND, at[:, ::-1].T, order=3, mode="mirror").reshape(FIRST.shape)
    found = align(first, SECOND, threads=1)
    assert corner_error(found.matrix, matrix, FIRST.shape) < 0.05
    picture = SECOND.astype(np.float32)
    ours = found.warp(picture, fill=0.0)
    # OpenCV's matrix maps the source to the result, unless told that it is the other way round.
    linear = cv2.INTER_LINEAR
    theirs = cv2.warpPerspective(picture, found.matrix, FIRST.shape[::-1], flags=linear | cv2.WARP_INVERSE_MAP)
    well_inside = cv2.erode(found.inside.astype(np.uint8), np.ones((3, 3))) > 0
    assert np.abs(ours - theirs)[well_inside].max() < 0.01  # OpenCV may round positions to 1/32 of a pixel
    picture = first.astype(np.float32)
    ours = found.warp(picture, inverse=True, fill=0.0)
    theirs = cv2.warpPerspective(picture, found.matrix, SECOND.shape[::-1], flags=cv2.INTER_LINEAR)
    assert np.abs(ours - theirs)[12:-12, 12:-12].max() < 0.01


@pytest.mark.parametrize(
    "initial", [[[1, 0, -3], [0, 1, 2], [0, 0, 1]], ((2, 0, -6), (0, 2, 4), (0, 0, 2)), [[1, 0, -3], [0, 1, 2]]]
)
def test_starts_are_nested_lists_of_any_scale(initial: Any) -> None:
    found = align(FIRST, SECOND, model="translation", initial=initial, threads=1)
    np.testing.assert_allclose(found.matrix[:2, 2], SHIFT, atol=0.02)


def _only(rows: slice, columns: slice) -> NDArray[np.bool_]:
    mask = np.zeros(FIRST.shape, dtype=bool)
    mask[rows, columns] = True
    return mask


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        ((FIRST[:8, :8], SECOND), {}, ValueError, "too small: 8 x 8"),
        ((1e300 * FIRST, SECOND), {}, ValueError, "image1 holds numbers beyond 3e38"),
        ((None, SECOND), {}, TypeError, "image1 must be an array, .* got None"),
        ((FIRST, b"second.png"), {}, TypeError, "image2 must be .* as text, got bytes"),
        ((FIRST, SECOND), {"mask1": _only(slice(5, 12), slice(5, 12))}, ValueError, "only 49 pixels.*mask1"),
        ((FIRST, SECOND), {"mask2": _only(slice(0, None, 2), slice(None))}, ValueError, "image2: every pixel.*mask2"),
        ((FIRST, SECOND), {"mask2": np.zeros(FIRST.shape)}, ValueError, "mask2 leaves no usable pixel"),
        ((FIRST, SECOND), {"levels": 0}, ValueError, "levels must be a whole number from 1"),
        ((FIRST, SECOND), {"levels": None}, ValueError, "levels must be a whole number from 1, .* got None"),
        ((FIRST, SECOND), {"blur": "a"}, ValueError, "blur must be a standard deviation .* got 'a'"),
        ((FIRST, SECOND), {"outside": "a"}, ValueError, "outside must be a residual .* got 'a'"),
        ((FIRST, SECOND), {"threads": 0}, ValueError, "threads must be a whole number from 1.* got 0"),
        ((FIRST, SECOND), {"threads": 1.5}, ValueError, "threads must be a whole number from 1.* got 1.5"),
        ((FIRST, SECOND), {"rng": "a"}, TypeError, "expects int"),
        ((FIRST, SECOND), {"initial": [1, 0, 0, 0, 1, 0]}, ValueError, r"initial must be a 3x3 .*\(6,\)"),
    ],
)
def test_messages_name_the_argument(arguments: Any, options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"(?s){said}"):
        align(*arguments, **options)


def test_files_with_spaces_folders_and_pictures(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    folder = tmp_path / "two words ü"
    folder.mkdir()
    paths = [folder / "first one.png", folder / "second one.png"]
    for path, values in zip(paths, (FIRST, SECOND), strict=True):
        pil.fromarray(as_type(values, "u1")).save(path)
    found = align(str(paths[0]), pil.open(paths[1]), model="translation", threads=1)
    np.testing.assert_allclose(found.matrix[:2, 2], SHIFT, atol=0.02)
    with pytest.raises(ValueError, match=r"image1: .*two words.* is a folder"):
        align(folder, SECOND)
