r"""Levels of the pyramid: images, guesses and the solve of one level.

The residual k of a pixel outside image 2 (`problm.vision.alignment.problem`) and, unless given, the scale of a robust
loss (from the median residual) are fixed before each solve, so that every method minimises the same function. They
follow the fit from level to level: the scale is large at first, which amounts to graduated non-convexity.

**No batches after a coarser level.** Its end is a better start than the minimum of a batch: on nine photographs with
parallax the minimum over half of the pixels was 0.4 to 4 pixels (corners) from that over all, no nearer than the start,
and all pixels took as many passes from there. So a level is solved on all of its pixels. Two more ways were tried on
ten photographs and counted in passes. A sample whose gradient is corrected by that of all pixels (as in SVRG) has the
right minimum to first order, but is so rough that steps on it creep: with a sixteenth or an eighth of the pixels the
finest level took 1.4 and 1.6 times as many passes (medians; 0.6 to 8 times). The curvature that a coarser level
learned, whole or halved, made a search 1.07 and 1.03 times as long (0.5 to 1.9 times).

**Samples at the full resolution.** Without a coarser level, and where the images do not fit yet, a sixteenth of the
pixels and then a quarter of them go a part of the way: each is a solve of its own, by Levenberg-Marquardt, until what
is left is noise of the sample, and hands its end and the curvature that it learned to the next. Measured on eight
photographs, two starts each: 1.3 times as fast as plain LM to the end, 1.7 times to 1 % above LM's end (medians). At
full size (six photographs of 0.16 to 1.5 million pixels, two starts each): 2.0 times to the end, 0.5 to 4.0, which is
another minimum than LM's on most of them (costs of 8 % below to 40 % above). Other shares were slower or no better.

**Samples to compare.** A search that begins again solves from many starts, and most of these solves are thrown away.
They need not be near their minimum, only well enough to be told from better ones: see `problm.vision.alignment.search`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import RULES, Loss
from ...problems.secant import SecantProblem
from ...sampling.order import as_generator
from ...solver.loop import solve
from ...solver.result import Result, Status
from ..images.image import Image
from ..images.pyramid import halve
from .pixel_order import draw_stratified
from .problem import AlignmentProblem
from .result import Level
from .sample import Sample
from .warps import plausible

Array = NDArray[np.float64]

GOOD = 0.9
"""Correlation from which on a coarse fit is accepted."""
_SHARES, _LEAST_SAMPLE = (16, 4), 4000
"""Samples at the full resolution: every so many pixels, and pixels of the first at least."""
_EXPLORED = 10_000
"""Pixels on which starts are compared, at most."""
_JUDGED = 33_000
"""Pixels of the level on which an alignment is judged, at most."""
_REMAINING = 0.5
"""Step that may remain at the end, in standard errors of the parameters."""
_NOISE = 4.0
"""The same at the end of a sample: with eight parameters, half of such a step is noise of the sample."""
_ROUGH = {"ftol": 1e-8, "xtol": 1e-8, "max_iter": 500}
"""Used on interpolated images, which are rough: there only the change of the cost by a step is meaningful,
and images that do not belong together can keep a solve busy for thousands of steps."""
_COARSE = {"ftol": 1e-4, "max_iter": 60}
_UP = np.array([[2.0, 0.0, 0.5], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]])
_DOWN = np.linalg.inv(_UP)


@dataclass(frozen=True)
class Guess:
    """A warp in pixels of a level, with gain and bias."""

    matrix: Array
    gain: float = 1.0
    bias: float = 0.0

    def finer(self) -> Guess:
        return replace(self, matrix=_UP @ self.matrix @ _DOWN)

    def coarser(self, levels: int) -> Guess:
        matrix = self.matrix
        for _ in range(levels):
            matrix = _DOWN @ matrix @ _UP
        return replace(self, matrix=matrix)


@dataclass
class Levels:
    """The pyramid of one pair of images; see `problm.vision.alignment.align.align` for the settings."""

    image1: Image
    image2: Image
    model: str
    loss: Loss
    scaled: bool
    """Whether the scale of the loss was given."""
    linearization: str
    secant: bool
    outside: float | None
    threads: int | None
    rng: np.random.Generator | int | None
    options: dict[str, Any]
    began: float
    _pyramid: list[tuple[Image, Image]] = field(default_factory=list)
    _probes: dict[int, AlignmentProblem] = field(default_factory=dict)
    _samples: dict[tuple[int, bytes, float, float], Sample] = field(default_factory=dict)
    _pace: float = 2e-8
    """Seconds that a pixel takes in a pass, by the latest solve."""

    @property
    def seconds_left(self) -> float:
        """Seconds of ``max_time`` that are left."""
        return float(self.options.get("max_time", np.inf)) - (time.perf_counter() - self.began)

    def late(self, n: int) -> bool:
        """Whether a pass over n pixels and one more step would not end within ``max_time``."""
        return self.seconds_left < 2.0 * n * self._pace

    def on_samples(self, guess: Guess, model: str, fit: bool) -> tuple[Guess, list[Level], Array | None]:
        """Where growing samples of the full resolution lead without a coarser level, their solves, and the curvature
        that they taught; the guess itself where samples would not pay."""
        done: list[Level] = []
        learned = None
        for pixels in self.samples(guess):
            guess, solved, learned = self.solve_once(guess, 0, model, fit, learned, pixels)
            done.append(solved)
        return guess, done, learned

    def samples(self, guess: Guess) -> Iterator[NDArray[np.int32]]:
        """Growing samples of the pixels, where they pay: if all of them are many and the images do not fit yet."""
        pixels = self.probe(0).data.columns[0]
        few = len(pixels) // _SHARES[0] < _LEAST_SAMPLE
        if few or "acceptance" in self.options or self.sample(guess, 0).correlation() >= GOOD:
            return
        rng = as_generator(self.rng)
        for share in _SHARES:
            yield _drawn(pixels, len(pixels) // share, rng)

    def to_explore(self, level: int) -> NDArray[np.int32] | None:
        """The pixels of a level on which starts are compared; None: all of them."""
        pixels = self.probe(level).data.columns[0]
        if "acceptance" in self.options or len(pixels) < 2 * _EXPLORED:
            return None
        return _drawn(pixels, _EXPLORED, as_generator(self.rng))

    def solve_once(
        self, guess: Guess, level: int, model: str, fit: bool, learned: Array | None = None,
        pixels: NDArray[np.int32] | None = None,
    ) -> tuple[Guess, Level, Array | None]:  # fmt: skip
        """One solve, on some pixels or all: the guess at its end, its record, and the curvature that it learned."""
        sample = self.sample(guess, level)
        loss = self.level_loss(sample)
        image1, image2 = self.images(level)
        problem = AlignmentProblem(
            image1,
            image2,
            model,
            photometric=fit,
            loss=loss,
            linearization=self.linearization,
            outside=self.level_outside(sample, loss),
            threads=self.threads,
            rng=self.rng,
            pixels=pixels,
        )
        # A simpler model only corrects the guess; the requested model brings it into its own form.
        theta = (problem if model == self.model else self.probe(level)).point(guess.matrix, guess.gain, guess.bias)
        corrected = SecantProblem(problem, learned=learned) if self.secant else problem
        settings = self.settings(problem.n, level, sampled=pixels is not None)
        late = self.late(problem.n)
        result: Result = solve(corrected, theta, **{**settings, "max_iter": 0} if late else settings)
        if late:
            result = replace(result, status=Status.TIME, message=Status.TIME.message)
        if problem.n > _JUDGED:
            self._pace = result.seconds / (max(result.jacobian_passes, 1.0) * problem.n)
        plain = corrected.gauss_newton(result.x) if isinstance(corrected, SecantProblem) else None
        result = replace(result, problem=problem, hessian=result.hessian if plain is None else plain)
        if result.status == Status.INTERRUPTED and (level > 0 or pixels is not None):
            raise KeyboardInterrupt
        found = Guess(problem.matrix(result.x), float(result.x[9]), float(result.x[10]))
        full = found
        for _ in range(level):
            full = full.finer()
        learned = corrected.learned if isinstance(corrected, SecantProblem) else None
        return found, Level(level, image1.shape, model, result, full.matrix), learned

    def settings(self, n: int, level: int, *, sampled: bool = False) -> dict[str, Any]:
        """The solver's options: the user's for all pixels of the full resolution, loose ones before."""
        user = self.options
        chosen: dict[str, Any] = {"acceptance": user.get("acceptance", "full")}
        if level == 0 and not sampled:
            chosen |= {"gtol": _REMAINING / np.sqrt(n), **_ROUGH, **user}
        else:
            chosen |= {"gtol": (_NOISE if sampled else 1.0) / np.sqrt(n), **_COARSE}
        if "max_time" in user:
            chosen["max_time"] = max(self.seconds_left, 1e-3)
        return chosen

    def level_loss(self, sample: Sample) -> Loss:
        if self.loss.is_linear or self.scaled:
            return self.loss
        return Loss.named(self.loss.name, RULES[self.loss.name].width * max(sample.spread(), 1e-6))

    def level_outside(self, sample: Sample, loss: Loss) -> float:
        return sample.outside_level(loss) if self.outside is None else self.outside

    def score(self, guess: Guess, level: int) -> float:
        """Correlation times the root of the overlap; the cost alone would prefer a poor fit with a large overlap."""
        if not plausible(guess.matrix, self.images(level)[0].shape) or not guess.gain > 0.0:
            return -1.0
        sample = self.sample(guess, level)
        return sample.correlation() * float(np.sqrt(sample.overlap))

    def detail(self, guess: Guess) -> float:
        """Correlation of what is small, at the full resolution's guess: on a level on which noise is small, too."""
        level = 0
        while np.prod(self.images(level)[0].shape) > _JUDGED:
            level += 1
        probe, coarse = self.probe(level), guess.coarser(level)
        return probe.detail(probe.point(coarse.matrix, coarse.gain, coarse.bias))

    def sample(self, guess: Guess, level: int) -> Sample:
        """Both images at some 5000 pixels: enough to compare guesses, at a tenth of a millisecond."""
        key = (level, guess.matrix.tobytes(), guess.gain, guess.bias)
        if key not in self._samples:
            probe = self.probe(level)
            self._samples[key] = probe.sample(probe.point(guess.matrix, guess.gain, guess.bias), 5000)
        return self._samples[key]

    def probe(self, level: int) -> AlignmentProblem:
        """A problem that is only evaluated, never solved."""
        if level not in self._probes:
            self._probes[level] = AlignmentProblem(*self.images(level), "homography", threads=1, rng=0)
        return self._probes[level]

    def images(self, level: int) -> tuple[Image, Image]:
        if not self._pyramid:
            self._pyramid.append((self.image1, self.image2))
        while len(self._pyramid) <= level:
            first, second = self._pyramid[-1]
            self._pyramid.append((halve(first), halve(second)))
        return self._pyramid[level]


def _drawn(pixels: NDArray[Any], count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """So many of these pixels, evenly spread and in their order."""
    return np.ascontiguousarray(pixels[draw_stratified(rng, len(pixels), count)])
