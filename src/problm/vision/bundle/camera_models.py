r"""Camera models of COLMAP as special cases of one.

Every supported model is a pinhole with radial and tangential distortion (COLMAP's OPENCV). With the point
``(x, y, z)`` in the camera's frame, ``u = x / z``, ``v = y / z`` and ``q = u^2 + v^2``,

    u' = u (1 + k1 q + k2 q^2) + 2 p1 u v + p2 (q + 2 u^2),      pixel x = fx u' + cx
    v' = v (1 + k1 q + k2 q^2) + 2 p2 u v + p1 (q + 2 v^2),      pixel y = fy v' + cy

so one compiled kernel with the eight numbers ``fx fy cx cy k1 k2 p1 p2`` serves all; a model says which of its
own parameters stands at each of the eight places (one focal length may stand at two).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

PLACES = ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")
# model: for each of the eight places the number of the model's parameter, -1 for a constant zero.
MODELS: dict[str, tuple[int, ...]] = {
    "SIMPLE_PINHOLE": (0, 0, 1, 2, -1, -1, -1, -1),
    "PINHOLE": (0, 1, 2, 3, -1, -1, -1, -1),
    "SIMPLE_RADIAL": (0, 0, 1, 2, 3, -1, -1, -1),
    "RADIAL": (0, 0, 1, 2, 3, 4, -1, -1),
    "OPENCV": (0, 1, 2, 3, 4, 5, 6, 7),
}
GROUPS = {"focal": (0, 1), "principal_point": (2, 3), "distortion": (4, 5, 6, 7)}
"""Names under which intrinsics are set free, and their places."""


@dataclass(frozen=True)
class Intrinsics:
    """One physical camera: a model of COLMAP's and its parameters, in pixels.

    Examples
    --------
    >>> camera = Intrinsics("SIMPLE_RADIAL", (800.0, 320.0, 240.0, -0.1))
    >>> camera.places
    array([ 8.0e+02,  8.0e+02,  3.2e+02,  2.4e+02, -1.0e-01,  0.0e+00,
            0.0e+00,  0.0e+00])
    >>> camera.project([[0.5, 0.0, 1.0]])
    array([[710., 240.]])
    """

    model: str
    params: tuple[float, ...]
    width: int = 0
    """Of the image in pixels; 0 if not known."""
    height: int = 0
    id: int = 1

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(
                f"camera model {self.model!r} is not supported; choose one of {', '.join(MODELS)} "
                "(undistort the images, or refit the camera with one of these)"
            )
        params = tuple(float(p) for p in self.params)
        count = max(MODELS[self.model]) + 1
        if len(params) != count:
            raise ValueError(f"camera model {self.model} has {count} parameters, got {len(params)}")
        if not np.isfinite(params).all():
            raise ValueError(f"camera {self.id}: parameters must be finite, got {params}")
        object.__setattr__(self, "params", params)
        if not (self.places[:2] > 0).all():
            raise ValueError(f"camera {self.id}: focal lengths must be positive, got {params}")

    @property
    def places(self) -> Array:
        """``fx fy cx cy k1 k2 p1 p2``, shape (8,)."""
        return np.array([0.0 if k < 0 else self.params[k] for k in MODELS[self.model]])

    def with_places(self, places: ArrayLike) -> Intrinsics:
        """The same model with the eight numbers given."""
        values = np.asarray(places, dtype=np.float64)
        params = list(self.params)
        for value, k in zip(values, MODELS[self.model], strict=True):
            if k >= 0:
                params[k] = float(value)
        return replace(self, params=tuple(params))

    def project(self, x: ArrayLike) -> Array:
        """Pixels (k, 2) of points in the camera's frame, (k, 3); no check that they lie in front."""
        return project(self.places, np.asarray(x, dtype=np.float64))

    def normalise(self, pixels: ArrayLike, iterations: int = 100) -> Array:
        """Undistorted image coordinates ``x/z, y/z``, shape (k, 2), of pixels (k, 2).

        Inverts the distortion by a fixed-point iteration, which converges where the distortion is mild (the
        usual case: inside the image); where it does not, the row is NaN.
        """
        fx, fy, cx, cy = self.places[:4]
        pixels = np.asarray(pixels, dtype=np.float64)
        target = (pixels - (cx, cy)) / (fx, fy)
        u = target.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(iterations):
                step = target - _distort(self.places, u)
                u += step
                if not (np.abs(step) > 1e-14).any():
                    break
            bad = ~(np.abs(target - _distort(self.places, u)) < 1e-9).all(axis=-1)
        u[bad] = np.nan
        return u


def project(places: Array, x: Array) -> Array:
    """Pixels (k, 2) of points in the camera's frame, (k, 3), for ``places`` (8,) or (8, k)."""
    fx, fy, cx, cy = places[:4]
    d = _distort(places, x[..., :2] / x[..., 2:])
    return np.stack([fx * d[..., 0] + cx, fy * d[..., 1] + cy], axis=-1)


def _distort(places: Array, uv: Array) -> Array:
    k1, k2, p1, p2 = places[4:]
    u, v = uv[..., 0], uv[..., 1]
    q = u * u + v * v
    radial = 1.0 + q * (k1 + q * k2)
    return np.stack(
        [
            u * radial + 2 * p1 * u * v + p2 * (q + 2 * u * u),
            v * radial + 2 * p2 * u * v + p1 * (q + 2 * v * v),
        ],
        axis=-1,
    )
