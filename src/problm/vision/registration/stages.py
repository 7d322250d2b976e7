r"""From a start to the minimum over all source points.

1. *A sample* of the source approaches the target, by Levenberg-Marquardt, with a gate that is halved until only noise
   and the distances between target points are left. Before each solve the noise is estimated from the residuals within
   the gate, and the scale of the loss follows it: graduated non-convexity, with widths from the data.
2. *Batches* of the whole source continue, with the last gate and loss: the library's own loop, up to an eighth of the
   points. Neighbours are searched for the points of the batch only.
3. *All points*: neighbours of every source point are found and held, the smooth problem that this leaves is solved over
   all points, and the neighbours are updated, until that moves the pose by less than a tenth of its standard error. The
   neighbours are held because the cost with nearest neighbours has small jumps wherever a neighbour changes, which hide
   the last steps.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import RULES, Loss
from ...problems.compiled import CompiledProblem
from ...solver.loop import solve
from ...solver.result import Result, Status
from .problem import RegistrationProblem
from .target import Target

Array = NDArray[np.float64]
SAMPLE = 4000
"""Source points in the first stage."""
_BATCHES = 8
"""Share of the source up to which batches are used."""
_ROUNDS = 12
"""Updates of all neighbours at most; three are usual."""
_SIDE = 1.2
"""Distance of a match along its plane at the end, at most, in distances between target points: of 0.7 to 2, the least
errors at 60 % overlap; points beyond the border of the target would be compared with the plane that continues it."""
_STILL = 0.01
"""Squared standard errors that an update moves the pose by, at which they end."""
_ROUGH: dict[str, Any] = {"ftol": 1e-3, "xtol": 1e-6, "max_iter": 20, "acceptance": "full"}
_CUT = 2.5
_MIDDLE = {1: 0.6640, 3: 1.5381}
"""Median of the norm of a Gaussian vector of so many components that is shorter than `_CUT` times the root of their
number."""


@dataclass(frozen=True)
class Setup:
    """Checked settings of a registration."""

    plane: bool
    similar: bool
    loss: str
    f_scale: float | None
    """Scale of the loss; None: from the data."""
    max_distance: float | None
    """Final gate; None: from the data."""
    threads: int
    rng: np.random.Generator | int | None
    options: dict[str, Any]
    began: float

    def problem(
        self, source: Array, target: Target, gate: float, scale: float, side: float = math.inf
    ) -> RegistrationProblem:
        """The problem with this gate and scale of the loss."""
        loss = Loss.named(self.loss, 1.0 if self.loss == "linear" else scale)
        return RegistrationProblem(
            source, target, plane=self.plane, similar=self.similar, loss=loss, gate=gate, side=side,
            threads=self.threads, rng=self.rng,
        )  # fmt: skip

    def scale(self, noise: float) -> float:
        """Scale of the loss for this noise."""
        return self.f_scale or max(RULES[self.loss].width * noise, 1e-12)

    def limits(self) -> dict[str, Any]:
        """Options for one of several solves: what is left of the time, and the callback."""
        options = {k: v for k, v in self.options.items() if k in ("callback", "max_time")}
        if "max_time" in options:
            options["max_time"] = max(options["max_time"] - (time.perf_counter() - self.began), 1e-4)
        return options


@dataclass(frozen=True)
class Stage:
    """A pose with the gate and noise that belong to it."""

    theta: Array
    gate: float
    noise: float
    """Standard deviation of a component of the residuals of inliers."""
    cost: float
    """Mean cost of the sample, in units of the squared scale of the loss."""


def noise_of(residuals: Array) -> float:
    """Standard deviation of a component of residuals (k, p), of which up to half may be outliers."""
    if len(residuals) == 0:
        return 0.0
    p = residuals.shape[1]
    sizes = np.abs(residuals[:, 0]) if p == 1 else np.linalg.norm(residuals, axis=1)
    noise = float(np.median(sizes)) / (0.6745 if p == 1 else 1.5382)
    for _ in range(30):
        near = sizes[sizes <= _CUT * math.sqrt(p) * noise]
        last, noise = noise, float(np.median(near)) / _MIDDLE[p] if len(near) else 0.0
        if abs(noise - last) <= 1e-3 * last:
            break
    return noise


def approach(sample: Array, target: Target, theta: Array, gate: float, setup: Setup) -> Stage:
    """Stage 1 (module docstring), from a gate that the start asks for."""
    noise = _noise_at(sample, target, theta, gate, setup)
    while True:
        scale = setup.scale(noise)
        result = solve(setup.problem(sample, target, gate, scale), theta, **{**_ROUGH, **setup.limits()})
        theta = result.x
        noise = _noise_at(sample, target, theta, gate, setup)
        least = setup.max_distance or 2.0 * target.spacing + 4.0 * noise
        if gate <= 1.1 * least or int(result.status) in _ENDS:
            return Stage(theta, gate, noise, result.cost / max(result.n, 1) / scale**2)
        gate = max(0.5 * gate, least)


def _noise_at(sample: Array, target: Target, theta: Array, gate: float, setup: Setup) -> float:
    problem = setup.problem(sample, target, gate, 1.0)
    return noise_of(problem.residuals(theta)[problem.matched(theta)])


_ENDS = {Status.STOPPED, Status.INTERRUPTED, Status.TIME}


def finish(source: Array, target: Target, stage: Stage, setup: Setup) -> tuple[Result, RegistrationProblem]:
    """Stages 2 and 3 (module docstring); the result is that of the last solve."""
    problem = setup.problem(source, target, stage.gate, setup.scale(stage.noise), _SIDE * target.spacing)
    theta, n = stage.theta, problem.n
    options = {"ftol": 1e-9, "xtol": 1e-9, **setup.options}
    if "acceptance" not in setup.options and n > problem.few:
        theta = solve(problem, theta, max_batch=max(n // _BATCHES, 1), ftol=1e-6, max_iter=200, **setup.limits()).x
    result = None
    for _ in range(_ROUNDS):
        held = hold(problem, theta)
        if result is not None:
            normal = held.linearize(theta, 0, n, outer=False, costs=None)
            left = float(normal.gradient @ np.linalg.lstsq(normal.hessian, normal.gradient, rcond=1e-12)[0])
            if left <= _STILL * 2.0 * normal.cost / max(n * problem.components - problem.dim, 1):
                break
        result = solve(held, theta, **{**options, **setup.limits()})
        theta = result.x
        if int(result.status) in _ENDS:
            break
    assert result is not None
    return result, problem


def hold(problem: RegistrationProblem, theta: Array) -> CompiledProblem:
    """The problem with the neighbours of all rows held as they are at this pose."""
    columns = problem.rows(theta, 0, problem.n)
    return CompiledProblem(problem.kernel, columns, retract=problem.move, fused=True)
