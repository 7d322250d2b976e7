"""The free parameters of the cameras: their numbers in the tangent space, their blocks, and the gauge freedoms."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .camera_models import DISTORTIONS, GROUPS, MODELS, Intrinsics
from .priors import PositionPriors
from .projection import COLUMNS
from .reconstruction import Reconstruction

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class CameraColumns:
    """Tables that compiled code reads, made by `_parameters` from a model and its observations ``image``.

    For every image: ``_local`` (COLUMNS,) the place of each possible column among its own, ``_tangent`` (COLUMNS,)
    their numbers in the tangent space, ``_width`` how many are free, and the blocks ``_node`` (2,) of the columns
    before and from ``_split`` on. ``_offset``: the first number of each block.
    """

    image: Index
    dim: int
    priors: PositionPriors | None = None

    def _parameters(self, model: Reconstruction, free: set[str], fixed: set[int], known: set[int]) -> None:
        """Number the free columns: by image its pose and the intrinsics that it alone has, then shared intrinsics.

        ``fixed`` are images and ``known`` cameras that stay as they are.
        """
        images = len(model.rotations)
        self._camera = np.ascontiguousarray(model.camera, dtype=np.int64)
        self._distortion = np.array([DISTORTIONS.index(MODELS[c.model].distortion) for c in model.intrinsics])
        self._local = np.full((images, COLUMNS), -1, dtype=np.int64)
        self._tangent = np.full((images, COLUMNS), -1, dtype=np.int64)
        self._width = np.zeros(images, dtype=np.int64)
        used = np.flatnonzero(np.bincount(self.image, minlength=images))
        self.free_images = np.setdiff1d(used, list(fixed))
        self._gauge_size = 7 if len(self.free_images) == len(used) else 1 if len(fixed & set(used.tolist())) == 1 else 0
        self._anchor = min(fixed & set(used.tolist()), default=-1)
        self._node, self._split = np.full((images, 2), -1, dtype=np.int64), np.zeros(images, dtype=np.int64)
        places = {p for group in free for p in GROUPS[group]}
        sharing = np.bincount(self._camera[used], minlength=len(model.intrinsics))
        offset = [0]

        def end_node(d: int, mine: Index, part: int) -> None:
            if d > offset[-1]:
                self._node[mine, part] = len(offset) - 1
                offset.append(d)

        d = 0
        for i in used:
            if i not in fixed:
                self._local[i, :6] = np.arange(6)
                self._tangent[i, :6] = np.arange(d, d + 6)
                self._width[i] = 6
                d += 6
            if sharing[self._camera[i]] == 1 and self._camera[i] not in known:
                d = self._number(model.intrinsics[self._camera[i]], np.array([i]), places, d)
            self._split[i] = self._width[i]
            end_node(d, np.array([i]), 0)
        for k in np.setdiff1d(np.flatnonzero(sharing > 1), list(known)):
            mine = used[self._camera[used] == k]
            d = self._number(model.intrinsics[k], mine, places, d)
            end_node(d, mine, 1)
        if d == 0:
            raise ValueError(
                "fixed_images, fixed_cameras, intrinsics: there is nothing to estimate; free an image or intrinsics"
            )
        self.dim, self._offset = d, np.array(offset)

    def _number(self, camera: Intrinsics, mine: Index, places: set[int], d: int) -> int:
        """Number the free intrinsics of a camera that the images ``mine`` have, from d on; return the next number."""
        numbers: dict[int, int] = {}
        for place, q in enumerate(MODELS[camera.model].places):
            if q < 0 or place not in places:
                continue
            if q not in numbers:
                numbers[q] = d
                self._tangent[mine, self._width[mine]] = d
                self._width[mine] += 1
                d += 1
            # One focal length fills two places: both get its column.
            self._local[mine, 6 + place] = np.argmax(self._tangent[mine] == numbers[q], axis=1)
        return d

    @property
    def images(self) -> int:
        """Number of images."""
        return len(self._local)

    @cached_property
    def owner(self) -> Index:
        """(d,) the image of each parameter, -1 for intrinsics that images share."""
        owner = np.full(self.dim, -1, dtype=np.int64)
        for i in np.flatnonzero(self._node[:, 0] >= 0):
            owner[self._tangent[i, : self._split[i]]] = i
        return owner

    def columns(self, image: int) -> Index:
        """Numbers of an image's parameters in the tangent space, those of its pose first."""
        return self._tangent[image, : self._width[image]]

    def node(self, image: int) -> int:
        """The block of an image's pose in the matrix."""
        return int(self._node[image, 0])

    def by_image(self, values: Array) -> Array:
        """Sums (images,) of values of the parameters (d,)."""
        own = self.owner >= 0
        return np.asarray(np.bincount(self.owner[own], values[own], self.images), dtype=np.float64)

    def gauge(self, theta: Array) -> Array:
        """Tangent vectors (d, 7), (d, 1) or (d, 0) along which the world moves and no residual changes.

        X -> (1 + s)(X + q cross X) + c is undone by w = -R q and v = s t - R c - w cross t of each camera.
        """
        G = np.zeros((self.dim, self._gauge_size))
        if not self._gauge_size:
            return G
        poses = theta[: 12 * len(self._local)].reshape(-1, 12)[self.free_images]
        R, t = poses[:, :9].reshape(-1, 3, 3), poses[:, 9:]
        turn = self._tangent[self.free_images, 0][:, None] + np.arange(3)
        if self._gauge_size == 7:
            G[turn, :3] = -R
            u, v = [1, 2, 0], [2, 0, 1]
            G[turn + 3, :3] = R[:, u] * t[:, v, None] - R[:, v] * t[:, u, None]  # the cross product of each column
            G[turn + 3, 3:6] = -R
            G[turn + 3, 6] = t
        else:
            anchor = theta[12 * self._anchor : 12 * self._anchor + 12]
            centre = -anchor[:9].reshape(3, 3).T @ anchor[9:]
            G[turn + 3, 0] = t + R @ centre
        if self.priors is not None:
            everyone = theta[: 12 * len(self._local)].reshape(-1, 12)
            G = G @ self.priors.free(everyone, G[self._tangent[self.priors.images, 3:6]])
        return G
