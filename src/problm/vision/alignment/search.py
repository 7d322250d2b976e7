r"""The search for the warp, from coarse to fine.

**Depth.** Halving stops at about 24 pixels, and earlier if the images already correlate well at the start: coarse
levels find large motions, which a good start does not need.

**The coarsest level** decides whether the search ends in the right minimum, and its solves cost a millisecond or two
each. If the images correlate poorly after the first solve (below 0.9), shifts of the start by up to a third of the
image are compared without solving anything. The level is solved again from the best few of them, by way of simpler
models (affine, then the requested model), and last from the start itself, translation first. This ends once a fit is
good, or fair (0.7) and found a second time: photographs with parallax never correlate well.

**Finer levels** start where the coarser one ended, unless the start of that one fits the finer images better, so a
level that failed does no harm. Only the finest is solved to convergence (`problm.vision.alignment.levels`).

**Again.** An end at which the images do not correlate is not believed (`problm.vision.alignment.doubt`), and an end
that fits worse than the start is none. Then the search is repeated: with ``"auto"`` from features and from phase
correlation, and from the start itself with fewer levels, down to the full resolution alone. The end whose fine
structure fits best is returned.

Such a search solves for long and throws most of it away, so it compares on samples of the pixels: the starts of a large
coarsest level are solved on 10,000 of them. The full resolution is solved only where the coarser levels promise a
better end, and first on samples (`problm.vision.alignment.levels`); all pixels follow for an end that is believed, and
for the best one after the last attempt. Measured on 16 pairs of photographs on which no end is believed (ten of them
show two different places): 1.3 to 3.1 times as fast as with all pixels everywhere, median 1.7, with the same verdicts
and a fine structure that correlates by 0.04 less to 0.01 more.

The residual of pixels outside and the scale of a robust loss, which follow the fit from level to level, are checked
again at the end of the finest level; if the fit has improved so much that k is off by a quarter, the level is solved
again from there, which takes a few passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .doubt import reason_to_doubt
from .levels import GOOD, Guess, Levels
from .result import Alignment, Level
from .start import feature_homography, phase_translation
from .warps import corner_error, plausible

Array = NDArray[np.float64]

COARSEST_SIDE = 24
_LEAST_PIXELS = 64
_AGREED = 0.7
"""Correlation from which on a coarse fit that two starts led to is accepted."""
_DEEP_ENOUGH = 0.95
_FEATURE_PASSES = 100
"""Passes over the pixels that take as long as their features."""
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
class Attempt:
    """A search from one start: its solves, and how well the images fit at the end."""

    levels: list[Level]
    fit: bool
    """Whether gain and bias were estimated."""
    text: str
    """The start, for the report."""
    detail: float
    """Correlation of the fine structure."""
    score: float
    """To compare attempts: the same, weighted down for small overlaps."""
    good: bool
    guess: Guess
    """The end, at the full resolution."""
    learned: Array | None = None
    """Curvature that samples of the full resolution taught."""
    finished: bool = False
    """Whether the full resolution was solved on all of its pixels."""


class Search:
    """The search for one pair of images.

    Parameters
    ----------
    levels : the pyramid.
    photometric : the user's choice.
    """

    def __init__(self, levels: Levels, photometric: bool | str) -> None:
        self.levels, self.photometric, self.model = levels, photometric, levels.model

    def run(self, initial: Array | str | None, depth: int, shallow: bool) -> Alignment:
        """Search from a matrix or by a method, over ``depth`` levels or as few as suffice if ``shallow``."""
        named = isinstance(initial, str)
        start = Guess(np.eye(3) if named or initial is None else np.asarray(initial))
        text = "the identity" if named or initial is None else "a given matrix"
        if initial in ("phase", "features") if named else False:
            start, text = self.elsewhere(str(initial), start)
        self.check_overlap(start)
        first = self.attempt(start, self.depth(start, depth) if shallow else depth, text)
        assert first is not None
        tries = [first]
        at_start = self.judged(self.lit(start, 0, first.fit), [], first.fit, text).score
        others = self.others(start, text, depth, shallow, auto=named and initial == "auto")
        while True:
            best = max(tries, key=lambda t: t.score)
            settled = best.good and best.score >= at_start
            following = None if settled or self.levels.seconds_left <= 0.0 else next(others, None)
            if following is not None:
                again = self.attempt(*following, beat=best.score)
                tries += [] if again is None else [again]
            elif best.finished:
                return self.alignment(best)
            else:
                tries[tries.index(best)] = self.finished(best)

    def attempt(self, start: Guess, depth: int, text: str, beat: float | None = None) -> Attempt | None:
        """Search from one start, over so many levels.

        ``beat``: the best score so far, if this is not the first attempt. The full resolution is then not solved where
        the coarser levels do not beat it (None), and on samples only where they lead to no end that is believed.
        """
        done: list[Level] = []
        learned = None
        coarsest = depth - 1
        guess = start.coarser(coarsest)
        fit = self.fits_photometric(guess, coarsest)
        guess = self.lit(guess, coarsest, fit)
        before = guess
        if coarsest > 0:
            guess, done = self.explore(guess, coarsest, fit)
        for level in range(coarsest - 1, -1, -1):
            guess, before = self.better(guess.finer(), before.finer(), level), guess.finer()
            if level > 0 and not self.levels.late(self.levels.probe(level).n):
                guess, solved, _ = self.levels.solve_once(guess, level, self.model, fit)
                done.append(solved)
        reached = self.judged(guess, done, fit, text)
        if coarsest > 0 and beat is not None and reached.score <= beat:
            return None
        if coarsest == 0 or (beat is not None and not reached.good):
            guess, sampled, learned = self.levels.on_samples(guess, self.model, fit)
            if sampled:
                reached = self.judged(guess, [*done, *sampled], fit, text, learned)
                if beat is not None and not reached.good:
                    return reached
        return self.finished(reached)

    def finished(self, attempt: Attempt) -> Attempt:
        """The attempt with the full resolution solved on all of its pixels."""
        fit, done = attempt.fit, list(attempt.levels)
        guess, solved, _ = self.levels.solve_once(attempt.guess, 0, self.model, fit, attempt.learned)
        done.append(solved)
        done += self.refreshed(guess, solved, fit)
        return replace(self.judged(guess, done, fit, attempt.text), finished=True)

    def judged(self, guess: Guess, done: list[Level], fit: bool, text: str, learned: Array | None = None) -> Attempt:
        """How well a warp of the full resolution fits."""
        sample, detail = self.levels.sample(guess, 0), self.levels.detail(guess)
        shape = self.levels.images(0)[0].shape
        possible = plausible(guess.matrix, shape) and guess.gain > 0.0
        score = detail * float(np.sqrt(sample.overlap)) if possible else -1.0
        good = reason_to_doubt(guess.matrix, shape, guess.gain, sample.correlation(), detail) is None
        return Attempt(done, fit, text, detail, score, good, guess, learned)

    # -- where to start, how deep ---------------------------------------------------------------------------------

    def others(
        self, start: Guess, text: str, depth: int, shallow: bool, auto: bool
    ) -> Iterator[tuple[Guess, int, str]]:
        """Other starts, their levels and names, for when the first fails."""
        for how in ("features", "phase") if auto else ():
            if self.levels.late(_FEATURE_PASSES * self.levels.probe(0).n):
                return
            try:
                found, told = self.elsewhere(how, start)
            except ImportError:
                continue
            if found is not start and self.levels.sample(found, 0).overlap > 0.0:
                yield found, self.depth(found, depth) if shallow else depth, told
        if shallow:
            for levels in sorted({1, 2, depth - 2, depth - 1} & set(range(1, depth)), reverse=True):
                yield start, levels, f"{text}, levels: {levels}"

    def elsewhere(self, how: str, start: Guess) -> tuple[Guess, str]:
        """The start found by phase correlation or features, or the given one if they find none."""
        image1, image2 = self.levels.images(0)
        if how == "phase":
            matrix, text = phase_translation(image1, image2)
            return Guess(matrix), text
        found, text = feature_homography(image1, image2)
        return (start, f"the identity ({text})") if found is None else (Guess(found), text)

    def check_overlap(self, start: Guess) -> None:
        probe = self.levels.probe(0)
        used, reached = probe.n, self.levels.sample(start, 0).overlap
        if used < _LEAST_PIXELS:
            raise ValueError(
                f"image1: only {used} pixels are used, and alignment needs {_LEAST_PIXELS}; check mask1, and the image "
                "for NaN and transparency"
            )
        if probe.nothing_to_see:
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
            if self.levels.sample(start.coarser(level), level).correlation() >= _DEEP_ENOUGH:
                return level + 1
        return most

    def fits_photometric(self, guess: Guess, level: int) -> bool:
        """The user's choice, or whether contrast differs by a tenth or brightness by a tenth of the contrast."""
        if self.photometric != "auto":
            return bool(self.photometric)
        sample = self.levels.sample(replace(guess, gain=1.0, bias=0.0), level)
        gain, _ = sample.gain_and_bias()
        return bool(abs(np.log(gain)) > 0.1 or abs(sample.brightness()) > 0.1)

    def lit(self, guess: Guess, level: int, fit: bool) -> Guess:
        """The guess with gain and bias from the moments of the images, if they are estimated."""
        if not fit:
            return guess
        gain, bias = self.levels.sample(replace(guess, gain=1.0, bias=0.0), level).gain_and_bias()
        return replace(guess, gain=gain, bias=bias)

    # -- the coarsest level ---------------------------------------------------------------------------------------

    def explore(self, start: Guess, level: int, fit: bool) -> tuple[Guess, list[Level]]:
        """The best fit of the coarsest level from the start and, if that is poor, from shifts of it."""
        best: tuple[Guess, list[Level]] = (start, [])
        highest = self.levels.score(start, level)
        some: NDArray[np.int32] | None = None

        def consider(guess: Guess, models: tuple[str, ...]) -> bool:
            """Whether the solve by way of these models ends where the best one does, or is a better one."""
            nonlocal best, highest
            for model in models:
                guess, solved, _ = self.levels.solve_once(guess, level, model, fit and model == self.model, pixels=some)
            before, score = best[0], self.levels.score(guess, level)
            if score > highest:
                best, highest = (guess, [solved]), score
            return corner_error(before.matrix, guess.matrix, self.levels.images(level)[0].shape) < 1.0

        def correlation() -> float:
            return self.levels.sample(best[0], level).correlation()

        ladder = _LADDERS[self.model]
        consider(start, (self.model,))
        first = best[0]
        if correlation() < GOOD:
            some = self.levels.to_explore(level)
            for guess in self.shifted(start, level):
                again = consider(guess, ladder[1:] or ladder)
                if correlation() >= (_AGREED if again else GOOD):
                    break
            else:
                consider(start, ladder)
        if some is not None and best[0] is not first:
            guess, solved, _ = self.levels.solve_once(best[0], level, self.model, fit)
            return guess, [solved]
        return best

    def shifted(self, start: Guess, level: int) -> list[Guess]:
        """The starts shifted by up to a third of the image that fit best, among their neighbours and of all."""
        h, w = self.levels.images(level)[0].shape
        probe = self.levels.probe(level)
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

    # -- finer levels ---------------------------------------------------------------------------------------------

    def better(self, guess: Guess, before: Guess, level: int) -> Guess:
        """The guess that fits the images of this level better: the first, unless it failed."""
        levels = self.levels
        if not plausible(guess.matrix, levels.images(level)[0].shape):
            return before
        sample = levels.sample(guess, level)
        loss = levels.level_loss(sample)
        k = levels.level_outside(sample, loss)
        return before if levels.sample(before, level).cost(loss, k) < sample.cost(loss, k) else guess

    def refreshed(self, guess: Guess, last: Level, fit: bool) -> list[Level]:
        """The finest level solved again, if its fixed quantities no longer fit the result."""
        if self.levels.outside is not None or not last.result.success:
            return []
        problem = last.result.problem
        sample = self.levels.sample(guess, 0)
        k = self.levels.level_outside(sample, problem.kernel.loss)
        if sample.overlap < 0.999 and abs(k - problem.outside) > 0.25 * problem.outside:
            return [self.levels.solve_once(guess, 0, self.model, fit)[1]]
        return []

    def alignment(self, best: Attempt) -> Alignment:
        last = best.levels[-1]
        problem, theta = last.result.problem, last.result.x
        sample = problem.sample(theta)
        return Alignment(
            matrix=last.matrix,
            model=self.model,
            gain=float(theta[9]),
            bias=float(theta[10]),
            photometric=best.fit,
            ncc=sample.correlation(),
            detail=best.detail,
            levels=tuple(best.levels),
            start=best.text,
            seconds=time.perf_counter() - self.levels.began,
            problem=problem,
            theta=theta,
        )
