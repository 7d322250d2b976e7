r"""The three models of two views in one description: E (5 parameters), F (7) and H (8).

A `Model` says how a point of the model's manifold becomes residuals; a `Frame` holds the two coordinate changes
between the matches (pixels) and the model's own coordinates (rays of calibrated cameras, or coordinates of unit
size):

    x_model = A x_pixels;  F_pixels = A2' E A1 (B2 = A2');  H_pixels = A2^-1 G A1 (B2 = A2^-1)

`two_view_problem` puts a model, matches and a loss together for the solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Kernel
from ...losses import Loss
from ...manifolds import fundamental_from_point, fundamental_point, move_essential, move_fundamental, skew, walk_sphere
from ...problems.compiled import CompiledProblem
from .kernels import (
    add_angles,
    encode_angles,
    encode_essential,
    encode_fundamental,
    encode_homography,
    homography_sampson_evaluator,
    inverse,
    pose_from_angles,
    sampson_evaluator,
    transfer_evaluator,
    transform_matches,
)
from .minimal import five_point, four_point, seven_point
from .pose import pose_of_essential
from .sampson.bend import bend_essential, bend_fundamental
from .sampson.second_order import SampsonSecondOrder

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """Coordinate changes of the two images, (3, 3) each."""

    A1: Array
    A2: Array
    maps: bool = False
    """Whether the model maps image 1 to image 2 (H) instead of relating them (E, F)."""

    @cached_property
    def B2(self) -> Array:
        """Left factor of the model's matrix: A2' or, for maps, the inverse of A2."""
        return self.back if self.maps else self.A2.T.copy()

    @cached_property
    def back(self) -> Array:
        """From the model's coordinates of image 2 to the matches': the inverse of A2."""
        X: Array = inverse(self.A2)
        return X

    def to_pixels(self, X: Array) -> Array:
        """A matrix of the model in the coordinates of the matches, with unit norm (H: last entry 1 if possible)."""
        F: Array = self.B2 @ X @ self.A1
        if self.maps and abs(F[2, 2]) > 1e-12 * np.abs(F).max():
            return F / F[2, 2]
        return F / np.linalg.norm(F)

    def from_pixels(self, F: Array) -> Array:
        """The inverse of `to_pixels`, with unit norm."""
        X: Array = np.linalg.inv(self.B2) @ F @ np.linalg.inv(self.A1)
        return X / np.linalg.norm(X)

    def transform(self, x: Array) -> Array:
        """Matches (n, 4) in the model's coordinates."""
        rays: Array = transform_matches(np.ascontiguousarray(x, dtype=np.float64), self.A1, self.A2)
        return rays


@dataclass(frozen=True)
class Model:
    """Description of a model: how it is solved, encoded and moved."""

    name: str
    solver: Any
    """Compiled solver of a minimal sample (`minimal`)."""
    sample: int
    """Number of matches in a minimal sample."""
    dim: int
    evaluator: Any
    components: int
    """Number of residuals per match."""
    encode: Callable[[Array, Array, Array], Array]
    retract: Callable[[Array, Array], Array]
    point: Callable[[Array], Array]
    """Converts a matrix in the model's coordinates (an essential one must be so to rounding) to a point of the
    manifold."""
    matrix: Callable[[Array], Array]
    """Converts a point to a (3, 3) matrix."""
    second: str = "A2"
    """Matrix of the frame that the encoder takes for image 2."""
    bend: Callable[[Array, Array, Array], Array] | None = None
    """Second derivatives of the matrix along the retraction, if they are known, for Sampson errors."""

    @property
    def freedom(self) -> int:
        """Independent components of a match's error. The backward transfer repeats the forward one."""
        return min(self.components, 2)

    def encoder(self, frame: Frame) -> Callable[[Array], Array]:
        """``theta -> what the evaluator reads`` for matches in this frame."""
        encode, (A1, last) = self.encode, self.changes(frame)
        return lambda theta: encode(theta, A1, last)

    def changes(self, frame: Frame) -> tuple[Array, Array]:
        """The two matrices of the frame that the encoder takes."""
        return np.ascontiguousarray(frame.A1), np.ascontiguousarray(getattr(frame, self.second))


def _essential_matrix_of(theta: Array) -> Array:
    E: Array = skew(theta[9:12]) @ theta[:9].reshape(3, 3)
    return E


def _unit(X: Array) -> Array:
    flat = np.asarray(X, dtype=np.float64).ravel()
    return flat / np.linalg.norm(flat)


ESSENTIAL = Model(
    "essential matrix", five_point, 5, 5, sampson_evaluator, 1, encode_essential, move_essential,
    pose_of_essential, _essential_matrix_of, bend=bend_essential,
)  # fmt: skip
FUNDAMENTAL = Model(
    "fundamental matrix", seven_point, 7, 7, sampson_evaluator, 1, encode_fundamental, move_fundamental,
    fundamental_point, fundamental_from_point, bend=bend_fundamental,
)  # fmt: skip
HOMOGRAPHY = Model(
    "homography", four_point, 4, 8, transfer_evaluator, 4, encode_homography, walk_sphere,
    _unit, lambda theta: theta.reshape(3, 3), "B2",
)  # fmt: skip
HOMOGRAPHY_SAMPSON = Model(
    "homography", four_point, 4, 8, homography_sampson_evaluator, 2, encode_homography, walk_sphere,
    _unit, lambda theta: theta.reshape(3, 3), "B2",
)  # fmt: skip


def _angles_of(E: Array) -> Array:
    pose = pose_of_essential(E)
    return angles_from_pose(pose[:9].reshape(3, 3), pose[9:])


def angles_from_pose(R: Array, t: Array) -> Array:
    """The paper's five angles (`pose_from_angles`) of a rotation and a unit vector."""
    b = np.arcsin(np.clip(R[0, 2], -1.0, 1.0))
    return np.array(
        [np.arctan2(-R[1, 2], R[2, 2]), b, np.arctan2(-R[0, 1], R[0, 0]),
         np.arccos(np.clip(t[2], -1.0, 1.0)), np.arctan2(t[1], t[0])]
    )  # fmt: skip


ESSENTIAL_ANGLES = Model(
    "essential matrix", five_point, 5, 5, sampson_evaluator, 1, encode_angles, add_angles,
    _angles_of, lambda theta: _essential_matrix_of(pose_from_angles(theta)),
)  # fmt: skip


def pose_of(model: Model, theta: Array) -> Array:
    """Rotation, row by row, and unit translation, (12,), of a point of either form of the essential matrix."""
    pose: Array = pose_from_angles(theta) if model is ESSENTIAL_ANGLES else theta
    return pose


def two_view_problem(
    model: Model,
    columns: list[NDArray[Any]],
    frame: Frame,
    loss: Loss,
    *,
    threads: int | None = 1,
    rng: np.random.Generator | int | None = 0,
) -> CompiledProblem:
    """The problem of fitting ``model`` to matches, given as four columns x1 y1 x2 y2."""
    kernel = Kernel(model.evaluator, model.dim, model.components, loss=loss, threads=threads)
    changes, second = model.changes(frame), None
    if model.bend is not None:
        second = SampsonSecondOrder.of(model.dim, model.encode, model.retract, model.bend, changes)
    moves = (model.encode, model.retract, *changes)
    return CompiledProblem(
        kernel, columns, retract=model.retract, encode=model.encoder(frame), moves=moves, second=second, fused=True,
        rng=rng,
    )  # fmt: skip
