r"""Camera models of COLMAP: a pinhole and a distortion.

With the point ``(x, y, z)`` in the camera's frame, ``u = x / z`` and ``v = y / z``, the distortion takes (u, v) to (u',
v'), and the pixel is ``(fx u' + cx, fy v' + cy)``. All models use the same places, ``fx fy cx cy`` and the coefficients
of the distortion; a model maps its parameters to places (one focal length may fill two).

A distortion is written once, for arrays here and for the numbers of compiled code (`problm.vision.bundle.projection`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class Distortion(NamedTuple):
    """Functions of u, v and the coefficients k, in arithmetic and NumPy's functions that take arrays and numbers."""

    names: tuple[str, ...]
    """Names of the coefficients."""
    apply: Callable[..., tuple[tuple[Any, Any], tuple[Any, Any, Any, Any]]]
    """(u', v'), and the derivatives of u' and of v' with respect to u and v."""
    by_coefficients: Callable[..., tuple[tuple[Any, Any], ...]]
    """Derivatives of (fx u', fy v') with respect to each coefficient, from u, v, k, fx and fy."""


def _brown(u: Any, v: Any, k: Sequence[Any]) -> tuple[tuple[Any, Any], tuple[Any, Any, Any, Any]]:
    k1, k2, p1, p2 = k[0], k[1], k[2], k[3]
    q = u * u + v * v
    radial = 1.0 + q * (k1 + q * k2)
    slope = k1 + 2.0 * q * k2
    a = u * radial + 2.0 * p1 * u * v + p2 * (q + 2.0 * u * u)
    b = v * radial + 2.0 * p2 * u * v + p1 * (q + 2.0 * v * v)
    cross = 2.0 * (u * v * slope + p1 * u + p2 * v)
    au = radial + 2.0 * u * u * slope + 2.0 * p1 * v + 6.0 * p2 * u
    bv = radial + 2.0 * v * v * slope + 2.0 * p2 * u + 6.0 * p1 * v
    return (a, b), (au, cross, cross, bv)


def _brown_by_coefficients(u: Any, v: Any, k: Sequence[Any], fx: Any, fy: Any) -> tuple[tuple[Any, Any], ...]:
    q = u * u + v * v
    return (
        (fx * u * q, fy * v * q),
        (fx * u * q * q, fy * v * q * q),
        (fx * 2.0 * u * v, fy * (q + 2.0 * v * v)),
        (fx * (q + 2.0 * u * u), fy * 2.0 * u * v),
    )


BROWN = Distortion(("k1", "k2", "p1", "p2"), _brown, _brown_by_coefficients)
"""Radial and tangential: ``u' = u (1 + k1 q + k2 q^2) + 2 p1 u v + p2 (q + 2 u^2)``, ``q = u^2 + v^2``, likewise v'."""


def _rational(u: Any, v: Any, k: Sequence[Any]) -> tuple[tuple[Any, Any], tuple[Any, Any, Any, Any]]:
    p1, p2 = k[2], k[3]
    q = u * u + v * v
    below = 1.0 + q * (k[5] + q * (k[6] + q * k[7]))
    radial = (1.0 + q * (k[0] + q * (k[1] + q * k[4]))) / below
    slope = (k[0] + q * (2.0 * k[1] + q * 3.0 * k[4]) - radial * (k[5] + q * (2.0 * k[6] + q * 3.0 * k[7]))) / below
    a = u * radial + 2.0 * p1 * u * v + p2 * (q + 2.0 * u * u)
    b = v * radial + 2.0 * p2 * u * v + p1 * (q + 2.0 * v * v)
    cross = 2.0 * (u * v * slope + p1 * u + p2 * v)
    au = radial + 2.0 * u * u * slope + 2.0 * p1 * v + 6.0 * p2 * u
    bv = radial + 2.0 * v * v * slope + 2.0 * p2 * u + 6.0 * p1 * v
    return (a, b), (au, cross, cross, bv)


def _rational_by_coefficients(u: Any, v: Any, k: Sequence[Any], fx: Any, fy: Any) -> tuple[tuple[Any, Any], ...]:
    q = u * u + v * v
    below = 1.0 + q * (k[5] + q * (k[6] + q * k[7]))
    radial = (1.0 + q * (k[0] + q * (k[1] + q * k[4]))) / below
    a, b = fx * u * q / below, fy * v * q / below
    return (
        (a, b),
        (a * q, b * q),
        (fx * 2.0 * u * v, fy * (q + 2.0 * v * v)),
        (fx * (q + 2.0 * u * u), fy * 2.0 * u * v),
        (a * q * q, b * q * q),
        (-a * radial, -b * radial),
        (-a * q * radial, -b * q * radial),
        (-a * q * q * radial, -b * q * q * radial),
    )


RATIONAL = Distortion(("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"), _rational, _rational_by_coefficients)
"""OpenCV's eight: `BROWN` with the radial factor ``(1 + k1 q + k2 q^2 + k3 q^3) / (1 + k4 q + k5 q^2 + k6 q^3)``."""

_TINY = 1e-300  # under a root: no division by zero at the centre, and no other number changed


def _fisheye(u: Any, v: Any, k: Sequence[Any]) -> tuple[tuple[Any, Any], tuple[Any, Any, Any, Any]]:
    r2 = u * u + v * v + _TINY
    r = np.sqrt(r2)
    angle = np.arctan(r)
    q = angle * angle
    scale = angle * (1.0 + q * (k[0] + q * (k[1] + q * (k[2] + q * k[3])))) / r
    slope = (1.0 + q * (3.0 * k[0] + q * (5.0 * k[1] + q * (7.0 * k[2] + q * 9.0 * k[3])))) / (1.0 + r2)
    bend = (slope - scale) / r2
    return (u * scale, v * scale), (scale + u * u * bend, u * v * bend, u * v * bend, scale + v * v * bend)


def _fisheye_by_coefficients(u: Any, v: Any, k: Sequence[Any], fx: Any, fy: Any) -> tuple[tuple[Any, Any], ...]:
    r = np.sqrt(u * u + v * v + _TINY)
    angle = np.arctan(r)
    q = angle * angle
    a, b = fx * u * q * angle / r, fy * v * q * angle / r
    return (a, b), (a * q, b * q), (a * q * q, b * q * q), (a * q * q * q, b * q * q * q)


FISHEYE = Distortion(("k1", "k2", "k3", "k4"), _fisheye, _fisheye_by_coefficients)
"""By the angle t to the axis, ``tan t = r``: ``(u', v') = (u, v) / r t (1 + k1 t^2 + k2 t^4 + k3 t^6 + k4 t^8)``."""


class CameraModel:
    """The parameters of a model in COLMAP's order, and its distortion.

    Parameters
    ----------
    parameters
        Names, separated by blanks: ``f``, or ``fx`` and ``fy``; ``cx``, ``cy``; coefficients of the distortion.
    distortion
        Coefficients that are not named are zero.
    """

    def __init__(self, parameters: str, distortion: Distortion = BROWN) -> None:
        self.parameters, self.distortion = tuple(parameters.split()), distortion
        at = {name: k for k, name in enumerate(self.parameters)}
        at |= {name: at["f"] for name in ("fx", "fy") if "f" in at}
        self.places = tuple(at.get(name, -1) for name in ("fx", "fy", "cx", "cy", *distortion.names))
        """For each place the number of the parameter, -1 for a constant zero."""


MODELS = {
    "SIMPLE_PINHOLE": CameraModel("f cx cy"),
    "PINHOLE": CameraModel("fx fy cx cy"),
    "SIMPLE_RADIAL": CameraModel("f cx cy k1"),
    "RADIAL": CameraModel("f cx cy k1 k2"),
    "OPENCV": CameraModel("fx fy cx cy k1 k2 p1 p2"),
    "OPENCV5": CameraModel("fx fy cx cy k1 k2 p1 p2 k3", RATIONAL),
    "FULL_OPENCV": CameraModel("fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6", RATIONAL),
    "SIMPLE_RADIAL_FISHEYE": CameraModel("f cx cy k1", FISHEYE),
    "RADIAL_FISHEYE": CameraModel("f cx cy k1 k2", FISHEYE),
    "OPENCV_FISHEYE": CameraModel("fx fy cx cy k1 k2 k3 k4", FISHEYE),
}
DISTORTIONS = tuple(dict.fromkeys(model.distortion for model in MODELS.values()))
"""Every distortion in use; the place is its number in compiled code."""
PLACES = 4 + max(len(distortion.names) for distortion in DISTORTIONS)
"""Numbers of a camera: ``fx fy cx cy`` and as many coefficients as any distortion has."""
GROUPS = {"focal": (0, 1), "principal_point": (2, 3), "distortion": tuple(range(4, PLACES))}
"""Groups of intrinsics that can be estimated, and their places."""


@dataclass(frozen=True)
class Intrinsics:
    """One physical camera: a model of COLMAP's and its parameters, in pixels.

    Examples
    --------
    >>> camera = Intrinsics("SIMPLE_RADIAL", (800.0, 320.0, 240.0, -0.1))
    >>> camera.places
    array([ 8.0e+02,  8.0e+02,  3.2e+02,  2.4e+02, -1.0e-01,  0.0e+00,
            0.0e+00,  0.0e+00,  0.0e+00,  0.0e+00,  0.0e+00,  0.0e+00])
    >>> camera.project([[0.5, 0.0, 1.0]])
    array([[710., 240.]])
    """

    model: str
    params: tuple[float, ...]
    width: int = 0
    """Pixels of the image; 0 if not known."""
    height: int = 0
    id: int = 1

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(
                f"camera model {self.model!r} is not supported; choose one of {', '.join(MODELS)} "
                "(undistort the images, or refit the camera with one of these)"
            )
        params = tuple(float(p) for p in self.params)
        count = len(MODELS[self.model].parameters)
        if len(params) != count:
            raise ValueError(f"camera model {self.model} has {count} parameters, got {len(params)}")
        if not np.isfinite(params).all():
            raise ValueError(f"camera {self.id}: parameters must be finite, got {params}")
        object.__setattr__(self, "params", params)
        if not (self.places[:2] > 0).all():
            raise ValueError(f"camera {self.id}: focal lengths must be positive, got {params}")

    @property
    def places(self) -> Array:
        """``fx fy cx cy`` and the coefficients of the distortion, zeros to the end, shape (PLACES,)."""
        values = np.zeros(PLACES)
        for place, k in enumerate(MODELS[self.model].places):
            if k >= 0:
                values[place] = self.params[k]
        return values

    def with_places(self, places: ArrayLike) -> Intrinsics:
        """The same model with the numbers of `places` given."""
        params = list(self.params)
        for value, k in zip(np.asarray(places, dtype=np.float64).tolist(), MODELS[self.model].places, strict=False):
            if k >= 0:
                params[k] = value
        return replace(self, params=tuple(params))

    def project(self, x: ArrayLike) -> Array:
        """Pixels (k, 2) of points in the camera's frame, (k, 3); no check that they lie in front."""
        return project(MODELS[self.model].distortion, self.places, np.asarray(x, dtype=np.float64))

    def normalise(self, pixels: ArrayLike, iterations: int = 50) -> Array:
        """Undistorted image coordinates ``x/z, y/z``, shape (k, 2), of pixels (k, 2).

        Inverts the distortion by Newton's method from the centre outwards. A row is NaN where that fails: outside the
        field in which the distortion is one-to-one.
        """
        fx, fy, cx, cy = self.places[:4]
        target = (np.asarray(pixels, dtype=np.float64) - (cx, cy)) / (fx, fy)
        u = target.copy()
        distortion, k = MODELS[self.model].distortion, self.places[4:]
        with np.errstate(all="ignore"):
            far = np.abs(target).max(axis=-1, initial=0.0) > 1.0
            u[far] /= np.linalg.norm(u[far], axis=-1, keepdims=True)  # where Newton's method does not leap
            for _ in range(iterations):
                (a, b), (au, av, bu, bv) = distortion.apply(u[:, 0], u[:, 1], k)
                e, f = a - target[:, 0], b - target[:, 1]
                det = au * bv - av * bu
                step = np.stack([bv * e - av * f, au * f - bu * e], axis=-1) / det[:, None]
                # At most doubled in a step: the fisheye's tangent has a pole.
                length, most = np.linalg.norm(step, axis=-1), 1.0 + np.linalg.norm(u, axis=-1)
                step *= np.minimum(1.0, most / np.maximum(length, 1e-300))[:, None]
                u -= step
                if not (length > 1e-14 * most).any():
                    break
            (a, b), (au, av, bu, bv) = distortion.apply(u[:, 0], u[:, 1], k)
            off = np.hypot(a - target[:, 0], b - target[:, 1]) < 1e-9 * (1.0 + np.abs(target).max(axis=-1, initial=0.0))
            # Beyond the turning point of the radius, or mirrored at the centre, is another solution.
            proper = (au * bv > av * bu) & ((u * target).sum(axis=-1) >= 0.0)
        u[~(off & proper)] = np.nan
        return u


def project(distortion: Distortion, places: Array, x: Array) -> Array:
    """Pixels (k, 2) of points in the camera's frame, (k, 3), for ``places`` (PLACES,) or (PLACES, k)."""
    fx, fy, cx, cy = places[:4]
    (a, b), _ = distortion.apply(x[..., 0] / x[..., 2], x[..., 1] / x[..., 2], places[4:])
    return np.stack([fx * a + cx, fy * b + cy], axis=-1)
