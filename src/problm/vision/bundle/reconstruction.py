"""A sparse reconstruction in memory: images with poses, points, and observations.

Observations are kept point by point (compressed rows): those of point j are ``start[j] : start[j + 1]``. That is
the order in which bundle adjustment by variable projection reads them, because a point's whole track is one
residual block; a random sample of points then reads short contiguous runs.

Poses map the world to the camera, ``x = R X + t``; the camera looks along +z, x goes right and y goes down in the
image, as in COLMAP and OpenCV. `problm.vision.bundle.bal` and
`problm.vision.bundle.colmap` read and write files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .camera_models import DISTORTIONS, MODELS, Intrinsics, project
from .file_values import whole_numbers

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Images, points and observations. Build one with `from_arrays`, `read_bal` or `read_colmap`.

    Examples
    --------
    >>> R = np.stack([np.eye(3), np.eye(3)])
    >>> t = np.array([[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    >>> camera = Intrinsics("SIMPLE_PINHOLE", (500.0, 320.0, 240.0))
    >>> seen = np.array([[0, 0, 320.0, 240.0], [1, 0, 220.0, 240.0]])  # image, point, x, y
    >>> model = Reconstruction.from_arrays(R, t, camera, [[0.0, 0.0, 5.0]], seen)
    >>> model
    Reconstruction(2 images, 1 points, 2 observations, 1 cameras)
    >>> model.residuals()
    array([[0., 0.],
           [0., 0.]])
    """

    intrinsics: tuple[Intrinsics, ...]
    rotations: Array
    """(C, 3, 3), world to camera."""
    translations: Array
    """(C, 3)."""
    camera: Index
    """(C,) number of each image's entry in ``intrinsics``."""
    points: Array
    """(P, 3), world."""
    start: Index
    """(P + 1,) index of the first observation of each point."""
    image: Index
    """(M,) image of each observation."""
    xy: Array
    """(M, 2) pixels."""
    names: tuple[str, ...]
    """(C,) names of the image files."""
    image_ids: Index
    """(C,) identifiers in the file."""
    point_ids: Index
    """(P,)."""
    colors: NDArray[np.uint8]
    """(P, 3) red, green, blue."""
    keypoints: tuple[Array, ...] | None = None
    """All features of each image, (K, 2), also those that belong to no point; None if the source has none."""
    feature: Index | None = None
    """(M,) number of the observation's feature among its image's keypoints."""

    @classmethod
    def from_arrays(
        cls,
        rotations: ArrayLike,
        translations: ArrayLike,
        intrinsics: Intrinsics | Sequence[Intrinsics],
        points: ArrayLike,
        observations: ArrayLike,
        *,
        camera: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> Reconstruction:
        """Make a reconstruction from arrays.

        Parameters
        ----------
        rotations, translations
            (C, 3, 3) and (C, 3): world to camera.
        intrinsics
            One camera for all images, or a sequence.
        points
            (P, 3).
        observations
            Either (C, P, 2) pixels, NaN where a point is not seen; or (M, 4) with rows image, point, x, y.
        camera
            (C,) index of each image's intrinsics. Default: the only one, or one per image.
        names
            (C,) names of the images.
        """
        R, t = _real("rotations", rotations), _real("translations", translations)
        X, seen = _real("points", points), _real("observations", observations)
        if R.ndim != 3 or R.shape[1:] != (3, 3):
            raise ValueError(f"rotations must have the shape (C, 3, 3), got {R.shape}")
        if t.shape != (len(R), 3):
            raise ValueError(f"translations must have the shape ({len(R)}, 3), got {t.shape}")
        if X.ndim != 2 or X.shape[1] != 3:
            raise ValueError(f"points must have the shape (P, 3), got {X.shape}")
        if not (np.isfinite(R).all() and np.isfinite(t).all() and np.isfinite(X).all()):
            raise ValueError("rotations, translations and points must be finite")
        if not np.allclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-4) or (np.linalg.det(R) < 0).any():
            raise ValueError("rotations must be rotation matrices: R R' = I, det R = 1")
        if seen.ndim == 3 and seen.shape == (len(R), len(X), 2):
            point, image = np.nonzero(~np.isnan(seen).any(axis=2).T)
            xy = seen[image, point]
        elif seen.ndim == 2 and seen.shape[1] == 4:
            numbers = whole_numbers(seen[:, :2])
            if numbers is None:
                raise ValueError("observations: columns 0 and 1 must be whole numbers (image, point)")
            image, point, xy = numbers[:, 0], numbers[:, 1], seen[:, 2:]
        else:
            raise ValueError(
                f"observations must be ({len(R)}, {len(X)}, 2) pixels with NaN where a point is not seen, "
                f"or (M, 4) rows of image, point, x, y; got {seen.shape}"
            )
        cameras = (intrinsics,) if isinstance(intrinsics, Intrinsics) else tuple(intrinsics)
        for one in cameras:
            if not isinstance(one, Intrinsics):
                raise TypeError(
                    f"intrinsics must be a problm.Intrinsics, or a sequence of them; got {one!r}, "
                    "which is not: Intrinsics('SIMPLE_RADIAL', (f, cx, cy, k)) makes one"
                )
        if camera is None:
            if len(cameras) not in (1, len(R)):
                raise ValueError(f"intrinsics: {len(cameras)} cameras for {len(R)} images; assign them with camera=")
            which = np.zeros(len(R), dtype=np.int64) if len(cameras) == 1 else np.arange(len(R))
        else:
            which = np.asarray(camera, dtype=np.int64)
            if which.shape != (len(R),) or (which < 0).any() or (which >= len(cameras)).any():
                raise ValueError(f"camera must hold {len(R)} numbers from 0 to {len(cameras) - 1}")
        start, order = tracks_of(image, point, xy, len(R), len(X))
        return cls(
            cameras,
            R,
            t,
            which,
            X,
            start,
            np.ascontiguousarray(image[order], dtype=np.int64),
            np.ascontiguousarray(xy[order]),
            tuple(names) if names is not None else tuple(f"image{i}" for i in range(len(R))),
            np.arange(1, len(R) + 1),
            np.arange(1, len(X) + 1),
            np.zeros((len(X), 3), dtype=np.uint8),
        )

    @property
    def track_lengths(self) -> Index:
        """Number of observations of each point, (P,)."""
        return np.diff(self.start)

    def residuals(self) -> Array:
        """Projection minus observation of every observation in pixels, (M, 2)."""
        out = np.empty_like(self.xy)
        places = np.array([camera.places for camera in self.intrinsics])
        kind = np.array([DISTORTIONS.index(MODELS[camera.model].distortion) for camera in self.intrinsics])
        for part, x in self._in_cameras():
            camera = self.camera[self.image[part]]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                for number in np.unique(kind[camera]):
                    mine = kind[camera] == number
                    pixels = project(DISTORTIONS[number], places[camera[mine]].T, x[mine])
                    out[part][mine] = pixels - self.xy[part][mine]
        return out

    def depths(self) -> Array:
        """Depth ``z`` of every observation's point in its image, (M,); negative behind the camera."""
        out = np.empty(len(self.xy))
        for part, x in self._in_cameras():
            out[part] = x[:, 2]
        return out

    def _in_cameras(self, size: int = 65536) -> Iterator[tuple[slice, Array]]:
        """Points in the frames of the images that see them, some observations at a time to limit memory."""
        for a in range(0, len(self.xy), size):
            part = slice(a, min(a + size, len(self.xy)))
            image = self.image[part]
            point = np.searchsorted(self.start, np.arange(part.start, part.stop), side="right") - 1
            x = np.einsum("mij,mj->mi", self.rotations[image], self.points[point])
            yield part, x + self.translations[image]

    def common(self, images: Sequence[int]) -> tuple[Array, Index]:
        """Observations (len(images), Q, 2) in pixels of the Q points seen in all ``images``, and their numbers.

        If a track contains an image twice, the last observation counts.
        """
        at = np.full((len(images), len(self.points)), -1, dtype=np.int64)
        point = np.repeat(np.arange(len(self.points)), self.track_lengths)
        for row, i in enumerate(images):
            mine = np.flatnonzero(self.image == i)
            at[row, point[mine]] = mine
        both = np.flatnonzero((at >= 0).all(axis=0))
        return self.xy[at[:, both]], both

    def select(self, images: Sequence[int], *, min_views: int = 2) -> Reconstruction:
        """The part that ``images`` see: points with at least ``min_views`` observations in them."""
        number = np.full(len(self.rotations), -1, dtype=np.int64)
        number[list(images)] = np.arange(len(images))
        point = np.repeat(np.arange(len(self.points)), self.track_lengths)
        mine = number[self.image] >= 0
        count = np.bincount(point[mine], minlength=len(self.points))
        chosen = np.flatnonzero(count >= min_views)
        mine &= count[point] >= min_views
        rows = np.array(images, dtype=np.int64)
        return Reconstruction(
            self.intrinsics,
            self.rotations[rows],
            self.translations[rows],
            self.camera[rows],
            self.points[chosen],
            np.concatenate([[0], np.cumsum(count[chosen])]).astype(np.int64),
            number[self.image[mine]],
            self.xy[mine],
            tuple(self.names[i] for i in images),
            self.image_ids[rows],
            self.point_ids[chosen],
            self.colors[chosen],
            None if self.keypoints is None else tuple(self.keypoints[i] for i in images),
            None if self.feature is None else self.feature[mine],
        )

    def __repr__(self) -> str:
        return (
            f"Reconstruction({len(self.rotations)} images, {len(self.points)} points, "
            f"{len(self.xy)} observations, {len(self.intrinsics)} cameras)"
        )


def _real(name: str, values: ArrayLike) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers ({error})") from None


def tracks_of(
    image: NDArray[Any], point: NDArray[Any], xy: Array, images: int, points: int
) -> tuple[Index, NDArray[np.intp]]:
    """Compressed rows of observations in any order: ``start`` (points + 1,), and the sorting order."""
    for name, values, count in (("image", image, images), ("point", point, points)):
        if len(values) and not (values.min() >= 0 and values.max() < count):
            raise ValueError(
                f"observations: {name} numbers must lie between 0 and {count - 1}, got {values.min()} to {values.max()}"
            )
    if not np.isfinite(xy).all():
        raise ValueError("observations: pixels must be finite")
    order = np.argsort(point, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(point, minlength=points))]).astype(np.int64)
    return start, order
