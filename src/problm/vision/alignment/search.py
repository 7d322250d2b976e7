r"""The search for the warp, from coarse to fine; every level is one solve.

**Depth.** Halving stops at about 24 pixels, and earlier if the images already correlate well at the start: coarse
levels find large motions, which a good start does not need.

**The coarsest level** decides whether the search ends in the right minimum, and its solves cost a millisecond or two
each. If the images correlate poorly after the first solve (below 0.9), shifts of the start by up to a third of the
image are compared without solving anything. The level is solved again from the best few of them, by way of simpler
models (affine, then the requested model), and last from the start itself, translation first. This ends once a fit is
good, or fair (0.7) and found a second time: photographs with parallax never correlate well.

**Finer levels** start where the coarser one ended, unless the start of that one fits the finer images better, so a
level that failed does no harm. Only the finest is solved to convergence.

The residual k of a pixel outside image 2 (`problm.vision.alignment.problem`) and, unless given, the scale of a robust
loss (from the median residual) are fixed before each solve, so that every method minimises the same function. They
follow the fit from level to level: the scale is large at first, which amounts to graduated non-convexity. They are
checked again at the end of the finest level; if the fit has improved so much that k is off by a quarter, the level is
solved again from there, which takes a few passes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ...losses import RULES, Loss
from ...problems.secant import SecantProblem
from ...solver.loop import solve
from ...solver.result import Result, Status
from ..images.image import Image
from ..images.pyramid import halve
from .problem import AlignmentProblem
from .result import Alignment, Level
from .sample import Sample
from .start import feature_homography, phase_translation
from .warps import corner_error, plausible

Array = NDArray[np.float64]

COARSEST_SIDE = 24
_FIRST_BATCH = 1000
_LEAST_PIXELS = 64
_GOOD = 0.9
"""Correlation from which on a coarse fit is accepted."""
_AGREED = 0.7
"""The same for a fit that two starts led to."""
_DEEP_ENOUGH = 0.95
_REMAINING = 0.5
"""Step that may remain at the end, in standard errors of the parameters."""
_ROUGH = {"ftol": 1e-8, "xtol": 1e-8}
"""Used on interpolated images, which are rough: there only the change of the cost by a step is meaningful."""
_COARSE = {"ftol": 1e-4, "max_iter": 60}
_UP = np.array([[2.0, 0.0, 0.5], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]])
_DOWN = np.linalg.inv(_UP)
_REACH, _STEPS, _FEW, _PROMISING = 1 / 3, 6, 600, 3
"""Shifts to try: largest share of the image, steps each way, pixels to compare, and how many to solve from."""
_LADDERS = {
    "translation": ("translation",),
    "euclidean": ("translation", "euclidean"),
    "similarity": ("translation", "similarity"),
    "affine": ("translation", "affine"),
    "homography": ("translation", "affine", "homography"),
    "sl3": ("translation", "affine", "sl3"),
}


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
class Search:
    """The search for one pair of images; see `problm.vision.alignment.align.align` for the settings."""

    image1: Image
    image2: Image
    model: str
    loss: Loss
    scaled: bool
    """Whether the scale of the loss was given."""
    photometric: bool | str
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
    _done: list[Level] = field(default_factory=list)

    def run(self, matrix: Array | None, how: str | None, depth: int, shallow: bool) -> Alignment:
        """Search from a matrix or by the method ``how``, over ``depth`` levels or as few as suffice if ``shallow``."""
        start, text = (
            Guess(np.eye(3) if matrix is None else matrix),
            "the identity" if matrix is None else "a given matrix",
        )
        if how in ("phase", "features"):
            start, text = self.elsewhere(how, start)
        self.check_overlap(start)
        if shallow:
            depth = self.depth(start, depth)
        coarsest = depth - 1
        guess = start.coarser(coarsest)
        fit = self.fits_photometric(guess, coarsest)
        if fit:
            guess = self.with_moments(guess, coarsest)
        before = guess
        if coarsest > 0:
            guess, text = self.explore(guess, coarsest, fit, how == "auto", text)
        for level in range(max(coarsest - 1, 0), -1, -1):
            if coarsest > 0:
                guess, before = self.better(guess.finer(), before.finer(), level), guess.finer()
            guess = self.take(self.solve(guess, level, self.model, fit, first=coarsest == 0))
        self.refresh(guess, fit)
        return self.alignment(fit, text)

    # -- where to start, how deep ---------------------------------------------------------------------------------

    def elsewhere(self, how: str, start: Guess) -> tuple[Guess, str]:
        """The start found by phase correlation or features, or the given one if they find none."""
        if how == "phase":
            matrix, text = phase_translation(self.image1, self.image2)
            return Guess(matrix), text
        found, text = feature_homography(self.image1, self.image2)
        return (start, f"the identity ({text})") if found is None else (Guess(found), text)

    def check_overlap(self, start: Guess) -> None:
        used, reached = self.probe(0).n, self.sample(start, 0).overlap
        if used < _LEAST_PIXELS:
            raise ValueError(
                f"image1: only {used} pixels are used, and alignment needs {_LEAST_PIXELS}; check mask1, and the image "
                "for NaN and transparency"
            )
        if self.probe(0).nothing_to_see:
            raise ValueError(
                "image2: every pixel is within two pixels of one that is not used, so there is nothing to compare; "
                "check mask2, and the image for NaN and transparency"
            )
        if reached * used < _LEAST_PIXELS:
            raise ValueError(
                "initial: under this start hardly any pixel of image1 falls into image2, so there is nothing to "
                'compare; pass a matrix that maps pixels of image 1 to pixels of image 2, or initial="auto"'
            )

    def depth(self, start: Guess, most: int) -> int:
        """Levels that the start needs: until the images correlate well."""
        for level in range(most - 1):
            if self.sample(start.coarser(level), level).correlation() >= _DEEP_ENOUGH:
                return level + 1
        return most

    def fits_photometric(self, guess: Guess, level: int) -> bool:
        """The user's choice, or whether contrast differs by a tenth or brightness by a tenth of the contrast."""
        if self.photometric != "auto":
            return bool(self.photometric)
        sample = self.sample(replace(guess, gain=1.0, bias=0.0), level)
        gain, _ = sample.gain_and_bias()
        return bool(abs(np.log(gain)) > 0.1 or abs(sample.brightness()) > 0.1)

    def with_moments(self, guess: Guess, level: int) -> Guess:
        gain, bias = self.sample(replace(guess, gain=1.0, bias=0.0), level).gain_and_bias()
        return replace(guess, gain=gain, bias=bias)

    # -- the coarsest level ---------------------------------------------------------------------------------------

    def explore(self, start: Guess, level: int, fit: bool, auto: bool, text: str) -> tuple[Guess, str]:
        """The best fit of the coarsest level from the start and, if that is poor, from others."""
        best: tuple[Guess, Level | None] = (start, None)
        highest = self.score(start, level)

        def consider(guess: Guess, models: tuple[str, ...]) -> bool:
            """Whether the solve by way of these models ends where the best one does, or is a better one."""
            nonlocal best, highest
            for model in models:
                found = self.solve(guess, level, model, fit and model == self.model, first=True)
                guess = found[0]
            before, score = best[0], self.score(guess, level)
            if score > highest:
                best, highest = found, score
            return corner_error(before.matrix, guess.matrix, self.images(level)[0].shape) < 1.0

        def correlation() -> float:
            return self.sample(best[0], level).correlation()

        ladder = _LADDERS[self.model]
        consider(start, (self.model,))
        if correlation() < _GOOD:
            for guess in self.shifted(start, level):
                again = consider(guess, ladder[1:] or ladder)
                if correlation() >= (_AGREED if again else _GOOD):
                    break
            else:
                consider(start, ladder)
        for how in ("phase", "features") if auto else ():
            if correlation() < _GOOD:
                try:
                    other, found = self.elsewhere(how, start)
                except ImportError:
                    continue
                other = other.coarser(level)
                other = self.with_moments(other, level) if fit else other
                before = highest
                consider(other, (self.model,))
                text = found if highest > before else text
        return self.take(best), text

    def shifted(self, start: Guess, level: int) -> list[Guess]:
        """The starts shifted by up to a third of the image that fit best, among their neighbours and of all."""
        h, w = self.images(level)[0].shape
        probe = self.probe(level)
        steps = np.linspace(-_REACH, _REACH, 2 * _STEPS + 1)
        y, x = (axis.ravel() for axis in np.meshgrid(steps * h, steps * w, indexing="ij"))
        shifts = np.tile(np.eye(3), (len(x), 1, 1))
        shifts[:, 0, 2], shifts[:, 1, 2] = x, y
        matrices = start.matrix @ shifts
        scores = probe.scores(probe.points(matrices), _FEW).reshape(len(steps), len(steps))
        padded = np.pad(scores, 1, constant_values=-1.0)
        around = sliding_window_view(padded, (3, 3)).max(axis=(2, 3))
        peaks = np.flatnonzero((scores >= around) & (scores > 0.0))
        best = peaks[np.argsort(-scores.ravel()[peaks])[:_PROMISING]]
        return [replace(start, matrix=matrices[k]) for k in best]

    def score(self, guess: Guess, level: int) -> float:
        """Correlation times the root of the overlap; the cost alone would prefer a poor fit with a large overlap."""
        if not plausible(guess.matrix, self.images(level)[0].shape):
            return -1.0
        sample = self.sample(guess, level)
        return sample.correlation() * float(np.sqrt(sample.overlap))

    def take(self, found: tuple[Guess, Level | None]) -> Guess:
        """Record a solve whose result is used."""
        if found[1] is not None:
            self._done.append(found[1])
        return found[0]

    # -- a level --------------------------------------------------------------------------------------------------

    def better(self, guess: Guess, before: Guess, level: int) -> Guess:
        """The guess that fits the images of this level better: the first, unless it failed."""
        if not plausible(guess.matrix, self.images(level)[0].shape):
            return before
        sample = self.sample(guess, level)
        loss = self.level_loss(sample)
        k = self.level_outside(sample, loss)
        return before if self.sample(before, level).cost(loss, k) < sample.cost(loss, k) else guess

    def solve(self, guess: Guess, level: int, model: str, fit: bool, *, first: bool = False) -> tuple[Guess, Level]:
        """One solve; ``first`` if there was no coarser level."""
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
        )
        # A simpler model only corrects the guess; the requested model brings it into its own form.
        theta = (problem if model == self.model else self.probe(level)).point(guess.matrix, guess.gain, guess.bias)
        corrected = SecantProblem(problem) if self.secant else problem
        easy = not first and sample.correlation() >= _GOOD
        result: Result = solve(corrected, theta, **self.settings(problem.n, level, first, easy))
        plain = corrected.gauss_newton(result.x) if isinstance(corrected, SecantProblem) else None
        result = replace(result, problem=problem, hessian=result.hessian if plain is None else plain)
        if result.status == Status.INTERRUPTED and level > 0:
            raise KeyboardInterrupt
        found = Guess(problem.matrix(result.x), float(result.x[9]), float(result.x[10]))
        full = found
        for _ in range(level):
            full = full.finer()
        return found, Level(level, image1.shape, model, result, full.matrix)

    def settings(self, n: int, level: int, first: bool, easy: bool) -> dict[str, Any]:
        """The solver's options: the user's at the full resolution, loose ones below.

        An easy, well-prepared level converges in two or three steps on all pixels, so batches save nothing.
        """
        user = self.options
        chosen: dict[str, Any] = (
            {"gtol": _REMAINING / np.sqrt(n), **_ROUGH} if level == 0 else {"gtol": 1.0 / np.sqrt(n), **_COARSE}
        )
        if level == 0:
            chosen.update(user)
        elif "acceptance" in user:
            chosen["acceptance"] = user["acceptance"]
        if "acceptance" not in user and (easy or n < 16 * _FIRST_BATCH):
            chosen["acceptance"] = "full"
        elif user.get("acceptance", "holdout") == "holdout":
            chosen.setdefault("initial_batch", _FIRST_BATCH if first else max(_FIRST_BATCH, n // 16))
        if "max_time" in user:
            chosen["max_time"] = max(user["max_time"] - (time.perf_counter() - self.began), 1e-3)
        return chosen

    def refresh(self, guess: Guess, fit: bool) -> None:
        """Solve the finest level again if its fixed quantities no longer fit the result."""
        if self.outside is not None or not self._done[-1].result.success:
            return
        problem = self._done[-1].result.problem
        sample = self.sample(guess, 0)
        k = self.level_outside(sample, problem.kernel.loss)
        if sample.overlap < 0.999 and abs(k - problem.outside) > 0.25 * problem.outside:
            self.take(self.solve(guess, 0, self.model, fit))

    def level_loss(self, sample: Sample) -> Loss:
        if self.loss.is_linear or self.scaled:
            return self.loss
        return Loss.named(self.loss.name, RULES[self.loss.name].width * max(sample.spread(), 1e-6))

    def level_outside(self, sample: Sample, loss: Loss) -> float:
        return sample.outside_level(loss) if self.outside is None else self.outside

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

    def alignment(self, fit: bool, text: str) -> Alignment:
        last = self._done[-1]
        problem, theta = last.result.problem, last.result.x
        sample = problem.sample(theta)
        return Alignment(
            matrix=last.matrix,
            model=self.model,
            gain=float(theta[9]),
            bias=float(theta[10]),
            photometric=fit,
            ncc=sample.correlation(),
            levels=tuple(self._done),
            start=text,
            seconds=time.perf_counter() - self.began,
            problem=problem,
            theta=theta,
        )
