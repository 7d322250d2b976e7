r"""From a start to the minimum over all pixels, coarse to fine.

The coarse levels are solved from the given start and from the best of many turns (`problm.vision.rgbd.start`), and the
better end goes on. Every level is a few calls of the solver. Before each, the standard deviations of light and depth
are estimated from the residuals inside view 2, outliers left out, and the scale of the loss follows them: wide at the
start, where everything is off, narrow at the end. A pixel that leaves view 2 costs what the average pixel inside costs
at the start of the solve, as in `problm.vision.alignment.problem`. The full resolution is solved until the noise stays.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import RULES, Loss
from ...solver.loop import solve
from ...solver.result import Result, Status
from ..alignment.sample import Sample
from ..registration.stages import noise_of
from .problem import RgbdProblem
from .start import ROWS, best_turn, score
from .views import Views

Array = NDArray[np.float64]
_ROUNDS = 2, 4
"""Solves of a coarse level, and of the full resolution, at most."""
_STILL = 0.02
"""Relative change of the noise at which they end."""
_LEAST_NOISE = 1e-3
"""Smallest noise, as a share of the contrast of image 1 and of the depth: that of rounding."""
_COARSE: dict[str, Any] = {"ftol": 1e-4, "max_iter": 60}
_FINE: dict[str, Any] = {"ftol": 1e-8, "xtol": 1e-8, "max_iter": 200}
ENDS = {Status.STOPPED, Status.INTERRUPTED, Status.TIME}


@dataclass(frozen=True)
class Setup:
    """Checked settings."""

    loss: str
    lit: bool
    """Whether gain and bias of image 2 are estimated."""
    threads: int | None
    rng: np.random.Generator | int | None
    options: dict[str, Any]
    began: float

    def probe(self, views: Views) -> RgbdProblem:
        """A problem that is only looked at."""
        return RgbdProblem(views, (1.0, 1.0), lit=self.lit)

    def problem(self, views: Views, theta: Array) -> RgbdProblem:
        """The problem with noise, loss and cost outside as they are at a point."""
        probe = self.probe(views)
        noise = noise_at(probe, theta)
        width = 1.0 if self.loss == "linear" else RULES[self.loss].width * math.sqrt(probe.components)
        return RgbdProblem(
            views, noise, loss=Loss.named(self.loss, width), outside=_outside(probe, theta, noise, width),
            lit=self.lit, threads=self.threads, rng=self.rng,
        )  # fmt: skip

    def settings(self, n: int, fine: bool) -> dict[str, Any]:
        """The solver's options: the user's at the full resolution, loose ones before."""
        chosen: dict[str, Any] = {"acceptance": "full", "gtol": (0.5 if fine else 1.0) / math.sqrt(n)}
        chosen |= {**_FINE, **self.options} if fine else _COARSE
        if "max_time" in self.options:
            left = self.options["max_time"] - (time.perf_counter() - self.began)
            chosen["max_time"] = max(left, 1e-4)
        return chosen


def noise_at(probe: RgbdProblem, theta: Array) -> list[float]:
    """Standard deviations of light and depth at a point, of residuals inside view 2 without outliers."""
    views, (values, weights, places) = probe.views, probe.look_up(theta)
    pairs = [(views.values, float(views.values.std())), (places[2], float(np.median(views.points[:, 2])))]
    noise = []
    for c, (expected, size) in enumerate(pairs[: probe.components]):
        inside = weights[c] > 0.5
        residuals = values[c, inside].astype(np.float64) - expected[inside]
        noise.append(max(noise_of(residuals[:, None]), _LEAST_NOISE * size, 1e-12))
    return noise


def _outside(probe: RgbdProblem, theta: Array, noise: list[float], width: float) -> list[float]:
    """Root mean square of the residuals of each component inside, in standard deviations, outliers cut to ``width``."""
    views, (values, weights, places) = probe.views, probe.look_up(theta)
    levels = []
    for c, expected in enumerate((views.values, places[2])[: probe.components]):
        inside = weights[c] > 0.5
        z = np.abs(values[c, inside] - expected[inside]) / noise[c]
        levels.append(math.sqrt(float(np.mean(np.minimum(z, max(width, 3.0)) ** 2))) if len(z) else 0.0)
    return levels


def start_light(probe: RgbdProblem, theta: Array) -> Array:
    """The point with gain and bias that give image 2 the mean and contrast of image 1."""
    values, weights, _ = probe.look_up(theta)
    sample = Sample(probe.views.values[:, None], np.ascontiguousarray(values[0][:, None]), weights[0])
    gain, bias = sample.gain_and_bias()
    return np.concatenate([theta[:12], [gain, bias]])


def descend(levels: list[Views], theta: Array, setup: Setup) -> tuple[Result, RgbdProblem]:
    """Solve from the coarsest level to the finest; the result is that of the last solve."""
    coarse = next((k for k, views in enumerate(levels) if len(views.rows) <= ROWS), len(levels))
    if 0 < coarse < len(levels):
        # The better end of the given start and of the turn that correlates best, on a coarse level.
        ends = [_go(levels, len(levels) - 1, coarse, theta, setup)[0].x]
        turned = best_turn(levels[coarse], theta)
        if turned is not theta:
            ends.append(_go(levels, coarse, coarse, turned, setup)[0].x)
        probe = setup.probe(levels[coarse])
        return _go(levels, coarse - 1, 0, max(ends, key=lambda end: score(probe, end)), setup)
    return _go(levels, len(levels) - 1, 0, theta, setup)


def _go(levels: list[Views], first: int, last: int, theta: Array, setup: Setup) -> tuple[Result, RgbdProblem]:
    """Solve the levels from a coarse to a fine one."""
    if setup.lit and len(theta) == 12:
        theta = start_light(setup.probe(levels[first]), theta)
    for number in range(first, last - 1, -1):
        before = math.inf
        for _ in range(_ROUNDS[number == 0]):
            problem = setup.problem(levels[number], theta)
            now = problem.noise[0]
            if abs(now - before) <= _STILL * before < math.inf:
                break
            before = now
            result: Result = solve(problem, theta, **setup.settings(problem.n, number == 0))
            theta, solved = result.x, problem
            if result.status in ENDS:
                if result.status == Status.INTERRUPTED and number > 0:
                    raise KeyboardInterrupt
                break
    return result, solved
