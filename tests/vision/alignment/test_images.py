"""Images: what is read, how, and what is refused; pyramid, blur and the order of the pixels."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from problm.sampling.order import count_free
from problm.vision.alignment.pixel_order import PixelOrder, draw_stratified
from problm.vision.images import image as images
from problm.vision.images.image import Image, read_image
from problm.vision.images.pyramid import blur, deepest, halve
from problm.vision.images.resampling import resample

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (40, 50)).astype(np.uint8)
COLOUR = RNG.integers(0, 256, (40, 50, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("source", "dtype", "unit"),
    [
        (GREY, np.uint8, 1 / 255),
        (GREY.astype(np.uint16) * 257, np.uint16, 1 / 65535),
        (GREY.astype(">u2"), np.uint16, 1 / 65535),
        (GREY / 255.0, np.float32, 1.0),
        (GREY.astype(np.float16), np.float32, 1.0),
        (GREY.astype(np.int32), np.float32, 1.0),
        (GREY > 100, np.uint8, 1 / 255),
        (COLOUR, np.float32, 1 / 255),
        (GREY[:, :, None], np.uint8, 1 / 255),
        (GREY[::-1, ::2], np.uint8, 1 / 255),
    ],
)
def test_types(source: np.ndarray, dtype: type, unit: float) -> None:
    image = read_image(source, "image1")
    assert image.pixels.dtype == dtype
    assert image.unit == pytest.approx(unit)
    assert image.channels == 1
    assert image.valid is None
    assert image.pixels.flags.c_contiguous


def test_grey_uint8_is_not_copied() -> None:
    assert read_image(GREY, "image1").pixels is GREY


def test_luma() -> None:
    expected = COLOUR @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(read_image(COLOUR, "image1").pixels, expected, atol=1e-3)
    assert read_image(COLOUR, "image1", color=True).pixels.shape == COLOUR.shape


def test_ignored_pixels() -> None:
    broken = GREY / 255.0
    broken[3, 4], broken[5, 6] = np.nan, np.inf
    valid = read_image(broken, "image1").valid
    assert valid is not None
    assert (~valid).sum() == 2
    assert not valid[3, 4]
    masked = np.ma.masked_array(GREY, mask=GREY < 20)
    assert np.array_equal(read_image(masked, "image1").valid, GREY >= 20)
    alpha = np.dstack([COLOUR, np.where(GREY < 20, 0, 255).astype(np.uint8)])
    assert np.array_equal(read_image(alpha, "image1").valid, GREY >= 20)
    mask = GREY >= 40
    both = read_image(masked, "image1", mask).valid
    assert np.array_equal(both, mask)


@pytest.mark.parametrize(
    ("source", "mask", "error", "words"),
    [
        (np.zeros((40, 50)), None, ValueError, "image1 is constant"),
        (np.full((40, 50), 1e9), None, ValueError, "image1 is constant"),
        (GREY[:10], None, ValueError, "too small: 50 x 10.*at least 16 x 16"),
        (np.full((40, 50), np.nan), None, ValueError, "no usable pixel"),
        (GREY, np.ones((3, 3)), ValueError, r"mask1 must have the shape \(40, 50\)"),
        (GREY, np.zeros((40, 50)), ValueError, "mask1 leaves no usable pixel"),
        (np.zeros((4, 5, 6, 7)), None, ValueError, "shape"),
        (np.zeros((3, 40, 50)), None, ValueError, "move the channels to the last axis"),
        (np.zeros((40, 50), dtype=complex), None, TypeError, "real numbers"),
        (np.array([["a"]]), None, TypeError, "real numbers"),
        (object(), None, TypeError, "image1 must hold real numbers"),
    ],
)
def test_bad_images(source: object, mask: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_image(source, "image1", mask)  # type: ignore[arg-type]


def test_absurd_sizes_are_refused_before_memory_is_touched() -> None:
    huge = np.broadcast_to(np.uint8(0), (1 << 20, 1 << 20))
    with pytest.raises(ValueError, match=f"exceed the limit of {images.MAX_PIXELS}"):
        read_image(huge, "image2")


def test_files(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    for name, array in (("a.png", GREY), ("b.png", COLOUR), ("c.png", GREY.astype(np.uint16) * 250), ("d.bmp", COLOUR)):
        pil.fromarray(array).save(tmp_path / name)
        image = read_image(tmp_path / name, "image1", color=True)
        np.testing.assert_array_equal(image.pixels, array)
        np.testing.assert_array_equal(read_image(pil.open(tmp_path / name), "image1", color=True).pixels, array)
    pil.fromarray(COLOUR).convert("P").save(tmp_path / "e.png")
    pil.fromarray(COLOUR).convert("CMYK").save(tmp_path / "f.jpg")
    pil.fromarray(GREY > 99).save(tmp_path / "g.png")
    for name in ("e.png", "f.jpg", "g.png"):
        assert read_image(str(tmp_path / name), "image1").shape == GREY.shape


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    exif = pil.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees to show
    pil.fromarray(COLOUR).save(tmp_path / "a.png", exif=exif)
    assert read_image(tmp_path / "a.png", "image1").shape == (50, 40)


def test_bad_files(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    with pytest.raises(FileNotFoundError, match="image1: there is no file"):
        read_image(tmp_path / "none.png", "image1")
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(ValueError, match=r"image2: the file .*text\.png.* cannot be read as an image"):
        read_image(tmp_path / "text.png", "image2")
    with pytest.raises(ValueError, match="is a folder"):
        read_image(tmp_path, "image2")


def test_truncated_file(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    pil.fromarray(COLOUR).save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:2000])
    with pytest.raises(ValueError, match="cannot be read"):
        read_image(tmp_path / "half.png", "image1")


@pytest.mark.parametrize("shape", [(40, 50), (41, 51), (40, 50, 3), (17, 33, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_halving(shape: tuple[int, ...], dtype: type) -> None:
    plane = RNG.integers(0, 255, shape).astype(dtype)
    coarse = halve(Image(plane, 1.0)).pixels
    assert coarse.shape == (shape[0] // 2, shape[1] // 2, *shape[2:])
    taps = np.array([1, 3, 3, 1]) / 8
    padded = np.pad(plane.astype(float), [(1, 1), (1, 1), *[(0, 0)] * (len(shape) - 2)], mode="edge")
    expected = sum(t * padded[i : i + 2 * coarse.shape[0] : 2] for i, t in enumerate(taps))
    expected = sum(t * expected[:, i : i + 2 * coarse.shape[1] : 2] for i, t in enumerate(taps))
    np.testing.assert_allclose(coarse, expected, rtol=1e-5, atol=1e-4)


def test_a_ramp_stays_where_it_is() -> None:
    """Pixel x of the coarse image is centred at 2x + 1/2 of the fine one."""
    ramp = np.tile(np.arange(64, dtype=np.float32), (64, 1))
    coarse = halve(Image(ramp, 1.0)).pixels
    np.testing.assert_allclose(coarse[:, 1:-1], np.tile(2 * np.arange(32) + 0.5, (32, 1))[:, 1:-1], atol=1e-5)


def test_masked_pixels_do_not_bleed() -> None:
    plane = np.ones((40, 50), dtype=np.float32)
    valid = np.ones((40, 50), dtype=bool)
    plane[10:20, 10:20], valid[10:20, 10:20] = 1e6, False
    for image in (
        halve(Image(plane, 1.0, valid)),
        blur(Image(plane, 1.0, valid), 2.0),
        blur(Image(plane, 1.0, valid), 0.6),
    ):
        assert image.valid is not None
        assert not image.valid.all()
        np.testing.assert_allclose(image.pixels[image.valid], 1.0, rtol=1e-4)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 2.5])
@pytest.mark.parametrize("shape", [(40, 50), (40, 50, 3)])
def test_blur(sigma: float, shape: tuple[int, ...]) -> None:
    plane = RNG.normal(size=shape).astype(np.float32)
    blurred = blur(Image(plane, 1.0), sigma).pixels
    if sigma > 0.71:
        axes = (sigma, sigma, 0)[: len(shape)]
        np.testing.assert_allclose(
            blurred, gaussian_filter(plane.astype(float), axes, mode="nearest", truncate=3.0), atol=0.01
        )
    impulse = np.zeros((61, 61), dtype=np.float32)
    impulse[30, 30] = 1.0
    spread = blur(Image(impulse, 1.0), sigma).pixels.sum(axis=0)
    assert spread.sum() == pytest.approx(1.0, abs=1e-4)
    assert (spread * (np.arange(61) - 30.0) ** 2).sum() == pytest.approx(sigma**2, rel=0.04)


def test_pyramid_depth() -> None:
    assert deepest((480, 640), (1000, 2000), 16) == 5
    assert deepest((16, 20), (20, 20), 16) == 1


def test_resampling_types() -> None:
    shift = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for array in (GREY, COLOUR, GREY.astype(np.float64), GREY > 99, GREY.astype(np.int16)):
        moved, inside = resample(array, shift, (40, 50))
        assert moved.dtype == array.dtype
        assert moved.shape == array.shape
        assert inside.sum() == 40 * 49
    # The same matrix up to a negative factor is the same warp.
    again, _ = resample(GREY, -2.0 * shift, (40, 50))
    assert np.array_equal(again, resample(GREY, shift, (40, 50))[0])


@pytest.mark.parametrize("n", [5, 64, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_order_is_a_permutation(n: int, seed: int) -> None:
    cuts = [0, *sorted({int(c) for c in np.random.default_rng(seed).integers(1, n, 3)}), n]
    order = PixelOrder(n, seed)
    parts = [order.indices(a, b) for a, b in pairwise(cuts)]
    assert all((np.diff(p) > 0).all() for p in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    again = PixelOrder(n, seed)
    assert np.array_equal(again.indices(cuts[0], cuts[1]), parts[0])


def test_every_free_row_is_equally_likely() -> None:
    taken = np.array([3, 4, 5, 20, 39])
    counts = np.zeros(40)
    rng = np.random.default_rng(0)
    runs = 20_000
    for _ in range(runs):
        rows = draw_stratified(rng, 40 - len(taken), 9)
        count_free(rows, taken, np.empty(0, dtype=np.int64))
        counts[rows] += 1
    assert not counts[taken].any()
    expected = runs * 9 / 35
    free = np.delete(counts, taken)
    # Six standard deviations; the rare second choice on the edge of two strata moves by less.
    assert np.abs(free - expected).max() < 6 * np.sqrt(expected)


@pytest.mark.parametrize("values", ["ramp", "waves", "noise", "picture"])
@pytest.mark.parametrize("size", [200, 2000])
def test_means_over_a_batch_are_fair_and_vary_no_more_than_a_random_samples(values: str, size: int) -> None:
    n = 40_000
    rng = np.random.default_rng(1)
    population = {
        "ramp": np.arange(n) / n,
        "waves": np.sin(2 * np.pi * np.arange(n) / (n / size)),
        "noise": rng.normal(size=n),
        "picture": gaussian_filter(rng.normal(size=(200, 200)), 4).ravel(),
    }[values]
    batch, held_out = np.empty(300), np.empty(300)
    for seed in range(300):
        order = PixelOrder(n, seed)
        batch[seed] = population[order.indices(0, size)].mean()
        held_out[seed] = population[order.indices(size, 2 * size)].mean()
    random = population.std() * np.sqrt((1 - size / n) / size)
    for means in (batch, held_out):
        assert abs(means.mean() - population.mean()) < 4 * random / np.sqrt(300)
        assert means.std() < 1.2 * random
    if values == "picture" and size == 2000:
        assert batch.std() < 0.8 * random
