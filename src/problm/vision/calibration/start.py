r"""Start of a calibration: a focal length by Zhang's closed form or from a list, poses of the views by homographies.

A board in a plane is related to its image by a homography ``H = K [r_1 r_2 t]`` (Zhang 2000). With the principal point
in the middle of the image, ``r_1.r_2 = 0`` and ``|r_1| = |r_2|`` are two linear equations per view in ``1 / f^2``.
For a fisheye it does not hold, and without tilted views it has no solution: then several focal lengths are tried, the
pixels freed of the distortion that the model has without coefficients, and those with the least error are refined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...manifolds import nearest_rotation
from ..absolute_pose.estimate import absolute_pose
from ..bundle.camera_models import FISHEYE, MODELS, Intrinsics

Array = NDArray[np.float64]
_FOCALS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)  # of the longer side of the image
_FLAT = 1e-6


def plane_of(X: Array) -> tuple[Array, Array] | None:
    """Middle (3,) and axes (3, 3), rows, of points in a plane; None if they are in none."""
    middle = X.mean(axis=0)
    squares, vectors = np.linalg.eigh((X - middle).T @ (X - middle))
    axes = vectors.T[::-1].copy()
    if squares[0] > _FLAT**2 * squares[2]:
        return None
    axes[2] *= np.linalg.det(axes)
    return middle, axes


def homography_of(a: Array, b: Array) -> Array:
    """(3, 3) homography b ~ H a of points (m, 2), by the normalised linear method."""

    def unit(x: Array) -> tuple[Array, Array]:
        middle = x.mean(axis=0)
        scale = np.sqrt(2.0) / max(float(np.linalg.norm(x - middle, axis=1).mean()), 1e-300)
        T = np.array([[scale, 0.0, -scale * middle[0]], [0.0, scale, -scale * middle[1]], [0.0, 0.0, 1.0]])
        return (x - middle) * scale, T

    (p, S), (q, T) = unit(a), unit(b)
    one, zero = np.ones(len(p)), np.zeros((len(p), 3))
    rows = np.column_stack([p, one])
    A = np.vstack([np.hstack([rows, zero, -q[:, :1] * rows]), np.hstack([zero, rows, -q[:, 1:] * rows])])
    H: Array = np.linalg.inv(T) @ np.linalg.eigh(A.T @ A)[1][:, 0].reshape(3, 3) @ S
    return H


def zhang_focal(objects: Sequence[Array], images: Sequence[Array], size: tuple[int, int]) -> float | None:
    """Focal length in pixels, of square pixels with the principal point in the middle; None without one."""
    a, b = [], []
    for X, x in zip(objects, images, strict=True):
        plane = plane_of(X)
        if plane is None:
            continue
        middle, axes = plane
        H = homography_of((X - middle) @ axes[:2].T, x - 0.5 * (np.array(size) - 1.0))
        H = H / np.linalg.norm(H[:, :2])
        (u, v) = H[:, 0], H[:, 1]
        a += [u[0] * v[0] + u[1] * v[1], u[0] ** 2 + u[1] ** 2 - v[0] ** 2 - v[1] ** 2]
        b += [-u[2] * v[2], v[2] ** 2 - u[2] ** 2]
    A, B = np.array(a), np.array(b)
    if not len(A) or not A @ A > 0.0:
        return None
    inverse = float(A @ B / (A @ A))
    return inverse**-0.5 if inverse > 0.0 else None


def pose_of(X: Array, rays: Array) -> tuple[Array, Array] | None:
    """R and t of one view from calibrated coordinates (m, 2), or None."""
    good = np.isfinite(rays).all(axis=1)
    if good.sum() < 4:
        return None
    X, rays = X[good], rays[good]
    plane = plane_of(X)
    if plane is None:
        found = absolute_pose(rays, X, robust=False)
        return (found.R, found.t) if np.isfinite(found.R).all() else None
    middle, axes = plane
    H = homography_of((X - middle) @ axes[:2].T, rays)
    H = H / (0.5 * (np.linalg.norm(H[:, 0]) + np.linalg.norm(H[:, 1])))
    H = H if H[2, 2] > 0.0 else -H
    R = nearest_rotation(np.column_stack([H[:, 0], H[:, 1], np.cross(H[:, 0], H[:, 1])])) @ axes
    return R, H[:, 2] - R @ middle


def starts(
    model: str, objects: Sequence[Array], images: Sequence[Array], size: tuple[int, int]
) -> Iterator[tuple[Intrinsics, list[tuple[Array, Array]]]]:
    """Cameras to start from, with the poses of all views."""
    found = None if MODELS[model].distortion is FISHEYE else zhang_focal(objects, images, size)
    for f in [share * max(size) for share in _FOCALS] if found is None else [found]:
        yield from with_poses(plain_camera(model, f, size), objects, images)


def plain_camera(model: str, f: float, size: tuple[int, int]) -> Intrinsics:
    """A camera without coefficients, its principal point in the middle."""
    known = {"f": f, "fx": f, "fy": f, "cx": 0.5 * (size[0] - 1), "cy": 0.5 * (size[1] - 1)}
    return Intrinsics(model, tuple(known.get(name, 0.0) for name in MODELS[model].parameters), *size)


def with_poses(
    camera: Intrinsics, objects: Sequence[Array], images: Sequence[Array]
) -> Iterator[tuple[Intrinsics, list[tuple[Array, Array]]]]:
    """The camera with the poses of all views, if each has one."""
    poses = [pose_of(X, camera.normalise(x)) for X, x in zip(objects, images, strict=True)]
    if all(pose is not None for pose in poses):
        yield camera, [pose for pose in poses if pose is not None]
