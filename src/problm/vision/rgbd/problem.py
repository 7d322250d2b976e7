"""Two views as a least-squares problem: one residual block per pixel of image 1 that has a depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Kernel, available_threads
from ...losses import Loss
from ...manifolds import ROTATION, euclidean, product
from ...problems.compiled import CompiledProblem
from ..alignment import kernels as ak
from ..alignment.problem import BAND
from . import kernels as rk
from .views import Plane, Views

Array = NDArray[np.float64]
RIGID = product(ROTATION, euclidean(3))
LIT = product(ROTATION, euclidean(5))


class RgbdProblem(CompiledProblem):
    """Pixels of image 1 against view 2 under a pose.

    Parameters
    ----------
    views : both views; depth map 2, if there, gives each row a second component.
    noise : standard deviations of light and, with depth map 2, of depth.
    loss : robust loss on the norm of a row's residual, in standard deviations.
    outside : residual of each component where view 2 is unknown, in standard deviations.
    lit : whether gain and bias of image 2 are parameters as well.
    threads : number of threads; None: as many as there are cores.
    rng : random seed or Generator for the order of the rows.
    """

    def __init__(
        self,
        views: Views,
        noise: Sequence[float],
        *,
        loss: Loss | None = None,
        outside: Sequence[float] = (0.0, 0.0),
        lit: bool = True,
        threads: int | None = 1,
        rng: np.random.Generator | int | None = 0,
    ) -> None:
        self.views, self.noise = views, tuple(noise[: len(views.planes)])
        space = LIT if lit else RIGID
        components = len(views.planes)
        constants = np.zeros(rk.CONSTANTS_SIZE)
        constants[ak.C_BAND] = BAND
        K = views.K
        constants[ak.C_X2], constants[ak.C_Y2] = K[0, 2], K[1, 2]
        constants[rk.C_FX], constants[rk.C_SKEW], constants[rk.C_FY] = K[0, 0], K[0, 1], K[1, 1]
        for c in range(components):
            constants[rk.C_PRECISION + c], constants[rk.C_APART + c] = 1.0 / noise[c], outside[c]
        program = np.concatenate([_program(*plane) for plane in views.planes])
        kernel = Kernel(
            rk.rgbd_evaluator, space.dim, components, program, constants, keep=(views.planes,),
            loss=loss or Loss.named("linear"), threads=available_threads() if threads is None else threads,
        )  # fmt: skip
        super().__init__(kernel, [views.points, views.values], retract=space.retract, fused=True, rng=rng)

    def look_up(self, theta: Array) -> tuple[Plane, Plane, Array]:
        """Values (p, n) of image 2, with gain and bias, and depth map 2; weights (p, n); u, v and depth (3, n)."""
        values = np.empty((self.components, self.n), dtype=np.float32)
        weights, places = np.empty_like(values), np.empty((3, self.n))
        rk.look_up(theta, self.views.points, self.kernel.program, self.kernel.constants, values, weights, places)
        if len(theta) > 12:
            values[0] = theta[12] * values[0] + theta[13]
        return values, weights, places


def _program(plane: Plane, weights: Plane | None) -> NDArray[np.int64]:
    program = np.zeros(ak.PROGRAM_SIZE, dtype=np.int64)
    program[ak.P_IMAGE2] = plane.ctypes.data
    program[ak.P_HEIGHT2], program[ak.P_WIDTH2] = plane.shape
    program[ak.P_WEIGHT2] = 0 if weights is None else weights.ctypes.data
    return program
