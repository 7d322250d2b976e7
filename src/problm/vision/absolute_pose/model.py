r"""Matches of pixels and points, the camera, and the problem that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...kernels.kernel import Kernel
from ...losses import Loss
from ...problems.compiled import CompiledProblem
from ..bundle.camera_models import DISTORTIONS, MODELS, PLACES, Intrinsics
from ..two_view.matches import check_intrinsics, keypoint_pixels
from ..two_view.result import norms
from .kernels import FRAME, distorted_evaluator, encode_pose, move_pose, pinhole_evaluator

Array = NDArray[np.float64]
Points = NDArray[Any]
_NOTHING = np.zeros((1, 1))
_ENOUGH = 10_000  # points that tell where the middle is, and how large the scene
_OPENCV = {4: "OPENCV", 5: "OPENCV5", 8: "FULL_OPENCV"}


def check_camera(K: Any, distortion: Any = None) -> Intrinsics:
    """A camera from a matrix (3, 3), (fx, fy, cx, cy), `Intrinsics`, or a mapping of its ``model`` and ``params``."""
    if isinstance(K, Mapping):
        if "model" not in K or "params" not in K:
            raise ValueError(f"K: a mapping needs the keys model and params, got {sorted(K)}")
        K = Intrinsics(str(K["model"]), tuple(K["params"]), int(K.get("width", 0)), int(K.get("height", 0)))
    if isinstance(K, Intrinsics):
        if distortion is not None:
            raise ValueError("distortion: the camera has its own; leave distortion out")
        return K
    matrix = check_intrinsics(K, "K")
    if abs(matrix[0, 1]) > 1e-9 * matrix[0, 0]:
        raise ValueError(f"K: skew is not supported, got {matrix[0, 1]}; set K[0, 1] to 0 or rectify the image")
    plain = matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]
    if distortion is None:
        return Intrinsics("PINHOLE", plain)
    try:
        given = np.asarray(distortion, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise ValueError(f"distortion must be numbers (k1 k2 p1 p2 k3 k4 k5 k6), got {distortion!r}") from error
    if not 1 <= len(given) <= 8 or not np.isfinite(given).all():
        raise ValueError(f"distortion must be 1 to 8 finite numbers (k1 k2 p1 p2 k3 k4 k5 k6), got {distortion!r}")
    count = next(k for k in _OPENCV if k >= len(given))
    return Intrinsics(_OPENCV[count], (*plain, *given, *np.zeros(count - len(given))))


def check_points(points2d: ArrayLike, points3d: ArrayLike, least: int) -> tuple[Points, Points]:
    """Matches as arrays (N, 2) and (N, 3) of floats; (N, 1, 2) and (N, 1, 3) are OpenCV's and accepted."""
    found: list[Points] = []
    shapes = [np.shape(keypoint_pixels(points2d))[-1:], np.shape(points3d)[-1:]]
    for name, x, width in (("points2d", points2d, 2), ("points3d", points3d, 3)):
        array = np.asarray(keypoint_pixels(x))
        if array.dtype.kind not in "fiu" or np.ma.is_masked(x):
            raise ValueError(f"{name} must hold numbers, none of them masked, got dtype {array.dtype}")
        if array.ndim == 3 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 2 or array.shape[1] != width:
            hint = ""
            if shapes == [(3,), (2,)]:
                hint = "; pixels come first, then points"
            elif array.ndim == 2 and array.shape[0] == width:
                hint = f"; transpose it ({name}.T)"
            elif array.ndim == 2 and array.shape[1] == width + 1:
                hint = "; divide homogeneous points by their last coordinate and drop it"
            raise ValueError(f"{name} must have the shape (N, {width}), one point per row, got {array.shape}{hint}")
        found.append(array if array.dtype.char in "df" and array.dtype.isnative else array.astype(np.float64))
    a, b = found
    if len(a) != len(b):
        raise ValueError(f"points2d and points3d must have one row per match, but have {len(a)} and {len(b)} rows")
    if len(a) < least:
        raise ValueError(f"absolute_pose: at least {least} matches are needed, got {len(a)}")
    for name, array in (("points2d", a), ("points3d", b)):
        bad = np.flatnonzero(~(np.abs(array) < 1e70).all(axis=1))
        if len(bad):
            raise ValueError(
                f"{name} row {bad[0]} is {array[bad[0]].tolist()}: remove matches that are not finite ({len(bad)} rows)"
            )
    few = _some(b)
    apart = few - few.mean(axis=0)
    spread = np.linalg.eigvalsh(apart.T @ apart)
    if not spread[2] > (1e-12 * np.abs(few).max()) ** 2 * len(few):
        raise ValueError("points3d: all points coincide, which does not determine the pose")
    if not spread[1] > 1e-14 * spread[2]:
        raise ValueError("points3d: all points lie on one line, which does not determine the pose")
    return a, b


def check_weights(weights: ArrayLike | None, n: int) -> Array | None:
    """Roots (N, 1) of the weights of the squared errors."""
    if weights is None:
        return None
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n,):
        raise ValueError(f"weights must have the shape ({n},), one per match, got {w.shape}")
    if not (np.isfinite(w) & (w > 0.0)).all():
        raise ValueError("weights must be positive and finite: remove matches of weight zero")
    return np.sqrt(w)[:, None]


def _some(x: Points) -> Array:
    return np.asarray(x[:: max(1, len(x) // _ENOUGH)], dtype=np.float64)


@dataclass(frozen=True)
class Scene:
    """Matches and camera of an estimate."""

    x: Points
    """(N, 2) pixels."""
    X: Points
    """(N, 3) points."""
    roots: Array | None
    """(N, 1) roots of the weights."""
    camera: Intrinsics
    focal: bool
    """Whether the focal length is unknown; that of the camera is nominal."""
    middle: Array
    size: float

    @classmethod
    def of(cls, x: Points, X: Points, roots: Array | None, camera: Intrinsics, focal: bool) -> Scene:
        """A scene in the coordinates of its middle half."""
        few = _some(X)
        middle = np.median(few, axis=0)
        away = np.sqrt(((few - middle) ** 2).sum(axis=1))
        size = float(np.median(away)) or float(away.max())
        return cls(x, X, roots, camera, focal, middle, size)

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        return 7 if self.focal else 6

    @cached_property
    def frame(self) -> Array:
        """(1, FRAME) what the encoder reads."""
        frame = np.zeros((1, FRAME))
        frame[0, :3], frame[0, 3], frame[0, 4] = self.middle, self.size, float(self.focal)
        frame[0, 5 : 5 + PLACES] = self.camera.places
        frame[0, 5 + PLACES] = DISTORTIONS.index(MODELS[self.camera.model].distortion)
        return frame

    @cached_property
    def pinhole(self) -> bool:
        """Whether there is no distortion."""
        return not self.camera.places[4:].any() and MODELS[self.camera.model].distortion is DISTORTIONS[0]

    def rows(self, which: Any) -> Scene:
        """Some of the matches, in the same coordinates."""
        roots = None if self.roots is None else self.roots[which]
        return Scene(self.x[which], self.X[which], roots, self.camera, self.focal, self.middle, self.size)

    def problem(self, loss: Loss, threads: int | None = 1, rng: Any = 0) -> CompiledProblem:
        """The problem of fitting the pose to all matches."""
        kernel = Kernel(
            pinhole_evaluator if self.pinhole else distorted_evaluator, self.dim, 2, loss=loss, threads=threads
        )
        columns = [self.x, self.X] if self.roots is None else [self.x, self.X, self.roots]
        return CompiledProblem(
            kernel, columns, retract=move_pose, encode=lambda theta: encode_pose(theta, self.frame, _NOTHING),
            moves=(encode_pose, move_pose, self.frame, _NOTHING), fused=True, rng=rng,
        )  # fmt: skip

    @cached_property
    def squares(self) -> CompiledProblem:
        return self.problem(Loss.named("linear"))

    def errors(self, theta: Array) -> Array:
        """(N,) weighted errors, in pixels where weights are one; infinite behind the camera."""
        errors = norms(self.squares.residuals(theta))
        errors[self.depths(theta) <= 0.0] = np.inf
        return errors

    def depths(self, theta: Array) -> Array:
        """(N,) depths of the points."""
        R, t = self.pose(theta)
        depths: Array = self.X @ R[2] + t[2]
        return depths

    def pose(self, theta: Array) -> tuple[Array, Array]:
        """R (3, 3) and t (3,) of a point of the manifold."""
        R = theta[:9].reshape(3, 3)
        return R, self.size * theta[9:12] - R @ self.middle

    def point(self, R: Array, t: Array, scale: float = 1.0) -> Array:
        """The point of the manifold of a pose, and of a focal length relative to the nominal one."""
        s = (t + R @ self.middle) / self.size
        return np.concatenate([R.ravel(), s, [np.log(scale)] if self.focal else []])

    def seen(self, theta: Array) -> Intrinsics:
        """The camera with the focal length of a point of the manifold."""
        if not self.focal:
            return self.camera
        places = self.camera.places
        places[:2] *= np.exp(theta[12])
        return self.camera.with_places(places)

    def ideal(self) -> tuple[Array, Array]:
        """Coordinates (N, 2) without distortion, and the factors (N,) from their distances to weighted pixels."""
        f = self.camera.places[:2]
        u = np.asarray((self.x - self.camera.places[2:4]) / f, dtype=np.float64)
        factor = np.full(self.n, float(np.sqrt(f[0] * f[1])))
        if not self.pinhole:
            u = self.camera.normalise(np.asarray(self.x, dtype=np.float64))
            k = self.camera.places[4:]
            with np.errstate(invalid="ignore"):
                _, (au, av, bu, bv) = MODELS[self.camera.model].distortion.apply(u[:, 0], u[:, 1], k)
                factor *= np.sqrt(np.abs(au * bv - av * bu))
        if self.roots is not None:
            factor *= self.roots[:, 0]
        return np.ascontiguousarray(u), factor
