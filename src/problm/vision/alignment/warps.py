r"""Warps of the plane: models, coordinates and how a step moves them.

A warp is a 3x3 matrix that maps pixels of image 1 to pixels of image 2, pixel centres at integers. The solver sees
it in normalised coordinates: both images are shifted to their centres and divided by one common length s, half the
longer side of image 1. Then all parameters are of order one, and what is a rotation, a similarity or an affine map
in pixels is one in normalised coordinates as well, because the scale is common.

A *point* of the search is an array of eleven numbers: the normalised matrix by rows, the gain and the bias.

================  ==========  =================================================================
model             parameters  a step moves H to
================  ==========  =================================================================
``translation``   2           ``H exp(A)``, A = [[0, 0, a], [0, 0, b], [0, 0, 0]]
``euclidean``     3           ... and rotation c: [[0, -c, a], [c, 0, b], [0, 0, 0]]
``similarity``    4           ... and scale e: [[e, -c, a], [c, e, b], [0, 0, 0]]
``affine``        6           A = [[a, b, c], [d, e, f], [0, 0, 0]]
``homography``    8           ``H + [[a, b, c], [d, e, f], [g, h, 0]]``: h33 stays 1
``sl3``           8           ``H exp(A)`` with the trace of A removed: the determinant stays 1
================  ==========  =================================================================

Steps are composed on the right, in the frame of image 1, so that the matrices stay in the model's group. The two
homographies span the same warps; ``homography`` is the paper's parametrisation and cannot express a warp that
sends the centre of image 1 to infinity, which no pair of images needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

DIMENSIONS = {"translation": 2, "euclidean": 3, "similarity": 4, "affine": 6, "homography": 8, "sl3": 8}
MODELS = tuple(DIMENSIONS)

_BASES: dict[str, tuple[tuple[tuple[int, int, float], ...], ...]] = {
    "translation": (((0, 2, 1.0),), ((1, 2, 1.0),)),
    "euclidean": (((0, 2, 1.0),), ((1, 2, 1.0),), ((1, 0, 1.0), (0, 1, -1.0))),
    "similarity": (
        ((0, 2, 1.0),),
        ((1, 2, 1.0),),
        ((1, 0, 1.0), (0, 1, -1.0)),
        ((0, 0, 1.0), (1, 1, 1.0)),
    ),
    "affine": tuple(((i, j, 1.0),) for i in range(2) for j in range(3)),
    "sl3": tuple(((i, j, 1.0),) for i in range(3) for j in range(3) if (i, j) != (2, 2)),
}


def generators(model: str) -> Array:
    """Basis of the tangent space, shape (parameters, 3, 3), of ``H + A`` for ``homography`` and of exp(A) otherwise."""
    basis = np.zeros((DIMENSIONS[model], 3, 3))
    for k, entries in enumerate(_BASES["sl3" if model == "homography" else model]):
        for i, j, value in entries:
            basis[k, i, j] = value
    return basis


def exponential(matrix: Array) -> Array:
    """Exponential of a small square matrix by scaling and squaring of a Taylor polynomial, to rounding."""
    norm = float(np.abs(matrix).sum(axis=1).max(initial=0.0))
    if not math.isfinite(norm) or norm > 700.0:
        return np.full_like(matrix, np.nan)
    squarings = max(0, math.ceil(math.log2(norm / 0.25))) if norm > 0.25 else 0
    small = matrix / 2.0**squarings
    identity = np.eye(len(matrix))
    result = identity
    for k in range(10, 0, -1):  # 0.25^11 / 11! < 1e-14
        result = identity + small @ result / k
    for _ in range(squarings):
        result = result @ result
    return result


@dataclass(frozen=True)
class Frame:
    """Normalised coordinates of a pair of images."""

    scale: float
    """Pixels per unit: half the longer side of image 1."""
    centre1: tuple[float, float]
    centre2: tuple[float, float]

    @classmethod
    def of(cls, shape1: tuple[int, ...], shape2: tuple[int, ...]) -> Frame:
        """For images of these shapes (rows, columns, ...)."""
        h1, w1, h2, w2 = shape1[0], shape1[1], shape2[0], shape2[1]
        return cls(max(h1, w1) / 2.0, ((w1 - 1) / 2.0, (h1 - 1) / 2.0), ((w2 - 1) / 2.0, (h2 - 1) / 2.0))

    def normalised(self, matrix: Array) -> Array:
        """The matrix (3, 3) in normalised coordinates, with a last entry of 1 where that is possible."""
        inverse2 = np.array([[1.0, 0.0, -self.centre2[0]], [0.0, 1.0, -self.centre2[1]], [0.0, 0.0, self.scale]])
        to1 = np.array([[self.scale, 0.0, self.centre1[0]], [0.0, self.scale, self.centre1[1]], [0.0, 0.0, 1.0]])
        return _unit_corner(inverse2 @ matrix @ to1)

    def pixels(self, matrix: Array) -> Array:
        """The matrix (3, 3) in pixels, with a last entry of 1 where that is possible."""
        to2 = np.array([[self.scale, 0.0, self.centre2[0]], [0.0, self.scale, self.centre2[1]], [0.0, 0.0, 1.0]])
        inverse1 = np.array([[1.0, 0.0, -self.centre1[0]], [0.0, 1.0, -self.centre1[1]], [0.0, 0.0, self.scale]])
        return _unit_corner(to2 @ matrix @ inverse1)


def _unit_corner(matrix: Array) -> Array:
    largest = float(np.abs(matrix).max())
    if abs(matrix[2, 2]) > 1e-12 * largest:
        return matrix / matrix[2, 2]
    return matrix / largest


class Retraction:
    """How a tangent step moves a point (see the table above); the last two parameters are gain and bias."""

    def __init__(self, model: str, photometric: bool) -> None:
        self.model = model
        self.photometric = photometric
        self.dim = DIMENSIONS[model] + 2 * photometric
        self._warp_dim = DIMENSIONS[model]
        self._generators = generators(model).reshape(self._warp_dim, 9)

    def __call__(self, theta: Array, delta: Array) -> Array:
        moved = theta.copy()
        step = (delta[: self._warp_dim] @ self._generators).reshape(3, 3)
        matrix = theta[:9].reshape(3, 3)
        if self.model == "homography":
            matrix = matrix + step
        else:
            if self.model == "sl3":
                step = step - np.eye(3) * (np.trace(step) / 3.0)
            matrix = matrix @ exponential(step)
            if self.model == "sl3":
                matrix = unit_determinant(matrix)
        moved[:9] = matrix.reshape(9)
        if self.photometric:
            moved[9:] += delta[self._warp_dim :]
        return moved


def unit_determinant(matrix: Array) -> Array:
    """The same homography with determinant +1 or -1 and the centre of image 1 in front (last entry positive)."""
    size = np.cbrt(abs(np.linalg.det(matrix)))
    return matrix / (math.copysign(size, matrix[2, 2]) if size > 0.0 else 1.0)


def transform(matrix: ArrayLike, points: ArrayLike) -> Array:
    """Map points (k, 2) of x, y by a 3x3 matrix; points at infinity are not finite.

    Examples
    --------
    >>> transform([[1, 0, 5], [0, 1, 0], [0, 0, 1]], [[1, 2]])
    array([[6., 2.]])
    """
    m, p = np.asarray(matrix, dtype=np.float64), np.asarray(points, dtype=np.float64)
    mapped = p @ m[:, :2].T + m[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return mapped[:, :2] / mapped[:, 2:]


def corners(shape: tuple[int, ...]) -> Array:
    """Centres of the four corner pixels, (4, 2), of an image of the given shape (rows, columns, ...)."""
    h, w = shape[:2]
    return np.array([[0.0, 0.0], [w - 1.0, 0.0], [w - 1.0, h - 1.0], [0.0, h - 1.0]])


def corner_error(matrix: ArrayLike, truth: ArrayLike, shape: tuple[int, ...]) -> float:
    """Mean distance in pixels between the corners of image 1 as mapped by two matrices.

    Examples
    --------
    >>> corner_error([[1, 0, 3], [0, 1, 4], [0, 0, 1]], np.eye(3), (480, 640))
    5.0
    """
    at = corners(shape)
    return float(np.linalg.norm(transform(matrix, at) - transform(truth, at), axis=1).mean())


def as_matrix(initial: ArrayLike, name: str = "initial") -> Array:
    """A checked 3x3 matrix; (2, 3), an affine map, gets its last row."""
    try:
        matrix = np.array(initial, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a 3x3 matrix of numbers, got {type(initial).__name__}") from error
    if matrix.shape == (2, 3):
        matrix = np.vstack([matrix, [0.0, 0.0, 1.0]])
    if matrix.shape != (3, 3):
        raise ValueError(
            f"{name} must be a 3x3 matrix (or 2x3, affine) that maps pixels of image 1 to image 2, "
            f"got shape {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must hold finite numbers only")
    # Rows of unit length: a shift of 10^5 pixels is large, not singular.
    lengths = np.linalg.norm(matrix, axis=1)
    if not lengths.all() or abs(np.linalg.det(matrix / lengths[:, None])) < 1e-12:
        raise ValueError(f"{name} is singular: it does not map the plane one to one; pass an invertible 3x3 matrix")
    return matrix


def plausible(matrix: Array, shape: tuple[int, ...]) -> bool:
    """Whether a warp is plausible for one scene: nothing is mirrored or behind the camera, and areas change by a factor
    of at most 25, at the corners and the centre of an image of this shape (rows, columns, ...)."""
    h, w = shape[:2]
    at = np.vstack([corners(shape), [[(w - 1) / 2.0, (h - 1) / 2.0]]])
    z = at @ matrix[2, :2] + matrix[2, 2]
    # The determinant of the warp's 2x2 Jacobian is det H / z^3.
    with np.errstate(all="ignore"):
        areas = np.linalg.det(matrix) / z**3
    return bool(np.all((z * z[-1] > 0.0) & (areas > 0.04) & (areas < 25.0)))


def nearest(matrix: Array, model: str) -> Array:
    """The warp of the model nearest to a normalised matrix, by least squares over a grid of image 1.

    Exact when the matrix is of the model. Closed forms: the translation of the centroid, Procrustes for euclidean
    and similarity, linear least squares for affine.
    """
    if model in ("homography", "sl3"):
        return unit_determinant(matrix) if model == "sl3" else _unit_corner(matrix)
    ticks = np.linspace(-1.0, 1.0, 9)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    image = transform(matrix, grid)
    seen = np.isfinite(image).all(axis=1) & (grid @ matrix[2, :2] + matrix[2, 2] > 0.0)
    grid, image = grid[seen], image[seen]
    result = np.eye(3)
    if len(grid) < 3:
        return result
    mean1, mean2 = grid.mean(axis=0), image.mean(axis=0)
    a, b = grid - mean1, image - mean2
    if model == "affine":
        linear = np.linalg.lstsq(a, b, rcond=None)[0].T
    elif model == "translation":
        linear = np.eye(2)
    else:
        # Rotation and scale as one complex number: sum conj(a) b / sum |a|^2.
        za, zb = a[:, 0] + 1j * a[:, 1], b[:, 0] + 1j * b[:, 1]
        z = complex(np.vdot(za, zb)) / float(np.vdot(za, za).real)
        if model == "euclidean":
            z = z / abs(z) if abs(z) > 0.0 else 1.0 + 0.0j
        linear = np.array([[z.real, -z.imag], [z.imag, z.real]])
    result[:2, :2] = linear
    result[:2, 2] = mean2 - linear @ mean1
    return result
