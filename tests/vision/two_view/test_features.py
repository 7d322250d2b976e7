"""Putative matches from images: one-to-one, right places, and a pose or homography from pictures to end."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, map_coordinates

from problm.vision.images.features import match_images
from problm.vision.two_view.homography import homography

pytest.importorskip("cv2")


def picture(seed=0, shape=(300, 400)):
    rng = np.random.default_rng(seed)
    image = sum(s * gaussian_filter(rng.normal(size=shape), s) for s in (1.5, 3.0, 6.0))
    return (image - image.min()) / np.ptp(image)


def warped(image, H):
    """The image as seen after x2 = H x1."""
    rows, columns = image.shape
    y, x = np.mgrid[:rows, :columns]
    back = np.c_[x.ravel(), y.ravel(), np.ones(x.size)] @ np.linalg.inv(H).T
    return map_coordinates(image, (back[:, :2] / back[:, 2:]).T[::-1], order=3).reshape(rows, columns)


H = np.array([[0.95, -0.06, 14.0], [0.05, 1.02, -9.0], [5e-5, -3e-5, 1.0]])


def test_homography_from_two_pictures():
    image = picture()
    found = match_images(image, warped(image, H))
    assert len(found.x1) > 100
    assert (np.diff(found.ratio) >= 0).all()
    assert len(np.unique(found.x1, axis=0)) > 0.9 * len(found.x1)
    fit = homography(found.x1, found.x2)
    assert fit.status == "ok"
    corners = np.array([[50.0, 50], [350, 50], [350, 250], [50, 250]])
    y = np.c_[corners, np.ones(4)] @ H.T
    assert np.abs(fit.transfer(corners) - y[:, :2] / y[:, 2:]).max() < 0.5


def test_colour_sixteen_bits_and_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    image = picture(1)
    other = warped(image, H)
    plain = match_images((255 * image).astype(np.uint8), (255 * other).astype(np.uint8), ratio=0.8)
    deep = match_images((65535 * image).astype(np.uint16), (65535 * np.clip(other, 0, 1)).astype(np.uint16), ratio=0.8)
    colour = match_images(np.repeat((255 * image).astype(np.uint8)[..., None], 3, axis=2), other, ratio=0.8)
    path = tmp_path / "a.png"
    pillow.fromarray((255 * image).astype(np.uint8)).save(path)
    file = match_images(path, (255 * other).astype(np.uint8), ratio=0.8)
    assert np.array_equal(file.x1, plain.x1)
    for found in (deep, colour):
        assert 0.7 < len(found.x1) / len(plain.x1) < 1.4


def test_nothing_to_see():
    ramp = np.tile(np.linspace(0.0, 1.0, 100), (100, 1))
    assert len(match_images(ramp, ramp).x1) == 0
    with pytest.raises(ValueError, match="image1 is constant"):
        match_images(np.full((100, 100), 0.5), ramp)


@pytest.mark.parametrize(("name", "value"), [("ratio", 0.0), ("ratio", 1.5), ("features", 0)])
def test_bad_settings(name, value):
    with pytest.raises(ValueError, match=name):
        match_images(picture(), picture(), **{name: value})
