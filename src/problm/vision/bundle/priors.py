r"""Known positions of cameras, such as those of a satellite receiver: ``|(c_i - p_i) / sigma_i|^2 / 2`` is added to the
cost, with the centre ``c = -R't`` of image i.

A pose moves in its own frame, ``t -> exp([w]) t + v``, ``R -> exp([w]) R``, so ``dc = -R' v``: rotations do not enter.
Every block of the problem carries an equal share, so batches see them too.

Residuals do not change when the world moves, so a solve starts where the world fits the known positions best
(Umeyama 1991). Otherwise the cameras with known positions would first be torn out of theirs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .reconstruction import Reconstruction

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_FREE = 1e-9
"""Motion of the centres, relative to the largest, below which a motion of the world counts as free."""


class PositionPriors:
    """Positions of some images.

    Parameters
    ----------
    positions
        (C, 3), NaN where nothing is known.
    sigma
        Standard errors: one number, (C,) or (C, 3), in the units of the world.
    """

    def __init__(self, positions: ArrayLike, sigma: ArrayLike, images: int) -> None:
        given = np.asarray(positions, dtype=np.float64)
        if given.shape != (images, 3):
            raise ValueError(f"positions must have shape ({images}, 3), NaN where nothing is known, got {given.shape}")
        errors = np.asarray(sigma, dtype=np.float64)
        errors = errors[:, None] if errors.ndim == 1 else errors
        try:
            errors = np.broadcast_to(errors, given.shape)
        except ValueError:
            raise ValueError(
                f"position_sigma must be a number or have shape ({images},) or ({images}, 3), got {np.shape(sigma)}"
            ) from None
        self.images = np.flatnonzero(np.isfinite(given).all(axis=1))
        if not len(self.images):
            raise ValueError("positions: no image has a known position; leave the argument out")
        self.positions, self.sigma = given[self.images], errors[self.images]
        if not (self.sigma > 0.0).all():
            raise ValueError("position_sigma must be positive")

    def without(self, images: Index) -> PositionPriors | None:
        """Only the priors of these images; None if there are none."""
        kept = np.isin(self.images, images)
        if not kept.any():
            return None
        part = object.__new__(PositionPriors)
        part.images, part.positions, part.sigma = self.images[kept], self.positions[kept], self.sigma[kept]
        return part

    def aligned(self, model: Reconstruction) -> Reconstruction:
        """The model, moved by the similarity that leads its images to their known positions."""
        R, t = model.rotations, model.translations
        centres = -np.einsum("kji,kj->ki", R, t)[self.images]
        weight = 1.0 / (self.sigma**2).mean(axis=1)
        weight /= weight.sum()
        here, there = weight @ centres, weight @ self.positions
        spread = float(weight @ ((centres - here) ** 2).sum(axis=1))
        left, sizes, right = np.linalg.svd(((self.positions - there) * weight[:, None]).T @ (centres - here))
        signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
        turn, scale = (left * signs) @ right, 1.0
        if spread > 0.0 and sizes[0] > 0.0:
            scale = float(sizes @ signs) / spread
        else:
            turn = np.eye(3)
        shift = there - scale * turn @ here
        rotations = R @ turn.T
        return replace(
            model,
            rotations=rotations,
            translations=scale * t - rotations @ shift,
            points=scale * model.points @ turn.T + shift,
        )

    def terms(self, poses: Array) -> tuple[float, Array, Array]:
        """Cost, gradient (k, 3) and matrix (k, 3, 3) with respect to v, from the poses (C, 12) of all images."""
        R, t = poses[self.images, :9].reshape(-1, 3, 3), poses[self.images, 9:]
        away = (-np.einsum("kji,kj->ki", R, t) - self.positions) / self.sigma
        J = -R.transpose(0, 2, 1) / self.sigma[:, :, None]
        return 0.5 * float((away**2).sum()), np.einsum("kij,ki->kj", J, away), np.einsum("kia,kib->kab", J, J)

    def free(self, poses: Array, shifts: Array) -> Array:
        """Combinations (g, f) of g motions of the world that move no known centre; ``shifts`` (k, 3, g) are their v."""
        R = poses[self.images, :9].reshape(-1, 3, 3)
        moved = np.einsum("kji,kjg->kig", R, shifts).reshape(-1, shifts.shape[2])
        _, values, right = np.linalg.svd(moved, full_matrices=True)
        size = np.zeros(len(right))
        size[: len(values)] = values
        return right[size <= _FREE * size.max(initial=0.0)].T
