"""Pairs of images with a known warp, for `bench.studies.alignment`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import stand_ins

Array = NDArray[np.float64]
Picture = NDArray[np.uint8]
OXFORD = (("bikes", 2), ("bikes", 3), ("leuven", 2), ("leuven", 3), ("ubc", 2), ("graf", 2), ("boat", 2))
WARPED = ("barrsmithA.png", "elderhallaA.png", "oldclassicswingB.png", "hartleyA.png")


def corners(shape: tuple[int, ...]) -> Array:
    h, w = shape[:2]
    return np.array([[0.0, 0.0], [w - 1.0, 0.0], [w - 1.0, h - 1.0], [0.0, h - 1.0]])


def mapped(matrix: Array, points: Array) -> Array:
    image = points @ matrix[:, :2].T + matrix[:, 2]
    return np.asarray(image[:, :2] / image[:, 2:])


def corner_error(matrix: Array, truth: Array, shape: tuple[int, ...]) -> float:
    at = corners(shape)
    error = np.linalg.norm(mapped(matrix, at) - mapped(truth, at), axis=1).mean()
    return float(error) if np.isfinite(error) else float("inf")


def moved(matrix: Array, shape: tuple[int, ...], sigma: float, rng: np.random.Generator) -> Array:
    """The matrix with the corners of image 1 displaced by ``sigma`` pixels (standard deviation) each way."""
    at = corners(shape)
    return stand_ins.homography_between(at, mapped(matrix, at) + rng.normal(0.0, sigma, (4, 2)))


def grey(path: str | Path) -> Picture:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture.convert("L"))


def halved(picture: Picture) -> Picture:
    """Halve an image by means of 2 x 2 pixels: pixel x is centred at 2x + 1/2."""
    h, w = (n // 2 * 2 for n in picture.shape)
    blocks = picture[:h, :w].reshape(h // 2, 2, w // 2, 2).astype(float)
    return np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)


HALF = np.array([[2.0, 0.0, 0.5], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]])


def oxford_matrix(path: Path) -> Array:
    """OpenCV's XML: nine numbers inside <data>."""
    text = path.read_text()
    numbers = text[text.index("<data>") + 6 : text.index("</data>")].split()
    matrix = np.array([float(v) for v in numbers]).reshape(3, 3)
    return matrix / matrix[2, 2]


def warped(picture: Picture, sigma: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """The picture under a random homography, by cubic interpolation, as floats 0..255; and the homography."""
    from scipy.ndimage import map_coordinates

    matrix = moved(np.eye(3), picture.shape, sigma, rng)
    y, x = np.mgrid[0 : picture.shape[0], 0 : picture.shape[1]]
    at = mapped(np.linalg.inv(matrix), np.column_stack([x.ravel(), y.ravel()]))
    image = map_coordinates(picture.astype(float), at[:, ::-1].T, order=3, mode="mirror").reshape(picture.shape)
    return image, matrix


def noisy(values: Array, noise: float, rng: np.random.Generator) -> Picture:
    return np.clip(np.rint(values + rng.normal(0.0, noise, values.shape)), 0, 255).astype(np.uint8)


def pictures(data: str | None, count: int) -> list[Picture]:
    if data is None:
        return [halved(stand_ins.image_pair(k, 480, 640).image1) for k in range(count)]
    return [halved(grey(Path(data, "adelaidemrf", name))) for name in WARPED[:count]]


def known_pairs(data: str | None, quick: bool) -> list[tuple[str, Picture, Picture, Array]]:
    """Pairs whose warp is known, at half resolution: photographs warped, and with ``--data`` real ones."""
    rng = np.random.default_rng(5)
    pairs = []
    for k, picture in enumerate(pictures(data, 1 if quick else len(WARPED))):
        second, matrix = warped(picture, 5.0, rng)
        pairs.append((f"warped {k}", noisy(picture.astype(float), 5.0, rng), noisy(second, 5.0, rng), matrix))
    for name, k in () if data is None or quick else OXFORD:
        folder = Path(data or "", "oxford_affine", name)
        matrix = np.linalg.inv(HALF) @ oxford_matrix(folder / f"H1to{k}p.xml") @ HALF
        pairs.append((f"{name} 1-{k}", halved(grey(folder / "img1.png")), halved(grey(folder / f"img{k}.png")), matrix))
    return pairs
