r"""Track a template through the frames of a video.

The template is prepared once: its pyramid, and at each level the pixels with the strongest gradients, evenly spread
over tiles, because flat pixels say nothing. A frame is blurred and halved, and each level is one solve that starts at
the warp of the frame before. Every frame is compared with the template, never with the frame before, so errors do not
accumulate: there is no drift but that of the lighting and of what the model cannot express.

A frame is *lost* where the images do not agree at the end (`problm.vision.alignment.doubt`) or
little of the template is in sight. The next frame then starts at the last warp that was believed, and, unless
``recover=False``, the search of `problm.align` is made from there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import Loss
from ...solver.loop import solve
from ..images.image import Image, Source, read_image
from ..images.pyramid import blur as blurred
from ..images.pyramid import halve
from .align import DEFAULT_BLUR, align
from .doubt import reason_to_doubt
from .levels import Guess
from .problem import AlignmentProblem
from .warps import MODELS, as_matrix, transform

Array = NDArray[np.float64]
_LEVELS, _LEAST_SIDE = 3, 32
_TILES = 12
_LEAST_OVERLAP = 0.25
_FEWER = 2
"""Pixels of a level: so many times fewer than of the next finer one."""


@dataclass(frozen=True)
class Tracked:
    """The template in one frame.

    Examples
    --------
    >>> y, x = np.mgrid[0:120, 0:160]
    >>> frame = 0.5 + 0.2 * np.sin(x / 7) + 0.2 * np.cos(y / 9 + x / 30) + 0.1 * np.sin(x * y / 900)
    >>> found = Tracker(frame, "translation", roi=(40, 30, 80, 60)).update(frame)
    >>> found.ok, found.matrix[:2, 2].round(2) + 0.0
    (True, array([0., 0.]))
    """

    matrix: Array
    """(3, 3), maps pixels of the template to pixels of the frame; of a lost frame, where it was seen last."""
    ok: bool
    """Whether the template was found."""
    message: str
    """Why it was lost, or that it was found."""
    ncc: float
    """Correlation of template and frame at the pixels that are used."""
    gain: float
    bias: float
    overlap: float
    """Share of the template that is in sight."""
    iterations: int
    """Steps over all levels."""
    recovered: bool
    """Whether a full search was necessary."""
    seconds: float

    def map(self, points: ArrayLike) -> Array:
        """Points (k, 2) x, y of the template in the frame."""
        return transform(self.matrix, points)


class Tracker:
    """Follow a template through the frames of a video.

    Parameters
    ----------
    template : image that holds the template: an array, PIL image or path, as `problm.align` takes them.
    model : model of the warp, as for `problm.align`.
    roi : (x, y, width, height), region of the image that is the template; None: all of it. Matrices map pixels of the
        whole image.
    mask : (rows, columns), true where a pixel of the template is used.
    initial : (3, 3) warp of the first frame; None: the identity.
    photometric : whether gain and bias are estimated in each frame.
    loss : robust loss on a pixel's residual, for objects that pass in front.
    pixels : number of pixels that are used at the full resolution; fewer are faster, more are more accurate.
    blur : standard deviation, in pixels, of a Gaussian blur of template and frames.
    recover : search again with `problm.align` in a frame where the template was lost.
    threads : number of threads.

    Examples
    --------
    >>> y, x = np.mgrid[0:120, 0:160]
    >>> scene = lambda x, y: 0.5 + 0.2 * np.sin(x / 7) + 0.2 * np.cos(y / 9 + x / 30) + 0.1 * np.sin(x * y / 900)
    >>> tracker = Tracker(scene(x, y), "translation", roi=(40, 30, 80, 60))
    >>> for shift in (0.5, 1.0, 1.5):
    ...     found = tracker.update(scene(x - shift, y))
    >>> found.ok, found.matrix[:2, 2].round(1)
    (True, array([1.5, 0. ]))
    """

    def __init__(
        self,
        template: Source,
        model: str = "homography",
        *,
        roi: tuple[int, int, int, int] | None = None,
        mask: ArrayLike | None = None,
        initial: ArrayLike | None = None,
        photometric: bool = True,
        loss: str = "linear",
        f_scale: float = 0.1,
        pixels: int = 20_000,
        blur: float = DEFAULT_BLUR,
        recover: bool = True,
        threads: int = 1,
    ) -> None:
        if model not in MODELS:
            raise ValueError(f"model={model!r} is not known; choose one of {', '.join(MODELS)}")
        if int(pixels) != pixels or pixels < 200:
            raise ValueError(f"pixels must be a whole number from 200, got {pixels!r}")
        image = read_image(template, "template", mask)
        self._mask = _used(image, roi)
        self._template, self._blur, self._recover, self.model = image, blur, recover, model
        self._guess = Guess(np.eye(3) if initial is None else as_matrix(initial))
        self._options: dict[str, Any] = {
            "photometric": photometric, "loss": Loss.named(loss, f_scale), "threads": threads,
        }  # fmt: skip
        self._pixels, self._shape = int(pixels), (0, 0)
        self._problems: list[AlignmentProblem] = []
        self._outside = 0.0

    @property
    def matrix(self) -> Array:
        """(3, 3) the last warp that was believed."""
        return self._guess.matrix

    def update(self, frame: Source) -> Tracked:
        """Find the template in the next frame, which must be of the size of the first one.

        Parameters
        ----------
        frame : array (rows, columns) or (rows, columns, 3), PIL image or path.

        Returns
        -------
        Tracked. A lost template does not raise: ``ok`` and ``message`` say so.
        """
        began = time.perf_counter()
        image = read_image(frame, "frame")
        if self._shape not in (image.shape, (0, 0)):
            raise ValueError(f"frame must be of size {self._shape} as the first one, got {image.shape}")
        pyramid = [blurred(image, self._blur)]
        if not self._problems:
            self._prepare(pyramid[0])
        while len(pyramid) < len(self._problems):
            pyramid.append(halve(pyramid[-1]))
        guess, steps = self._follow(pyramid)
        found = self._judged(guess, steps, began)
        if not found.ok and self._recover:
            found = self._recovered(image, found, began)
        if found.ok:
            self._guess = Guess(found.matrix, found.gain, found.bias)
        return found

    def _prepare(self, frame: Image) -> None:
        """Problems of all levels, coarse ones last, for frames like this one."""
        first, second, mask = blurred(self._template, self._blur), frame, self._mask
        count, self._shape = self._pixels, frame.shape
        while not self._problems or (len(self._problems) < _LEVELS and _side(mask) >= 2 * _LEAST_SIDE):
            if self._problems:
                first, second = halve(first), halve(second)
                mask = mask[: 2 * first.shape[0] : 2, : 2 * first.shape[1] : 2]
                count //= _FEWER
            chosen = _strongest(first, mask, count)
            self._problems.append(
                AlignmentProblem(first, second, self.model, pixels=chosen, outside=0.1, rng=0, **self._options)
            )
        probe = self._problems[0]
        sample = probe.sample(probe.point(self._guess.matrix), 5000)
        if self._options["photometric"]:
            self._guess = Guess(self._guess.matrix, *sample.gain_and_bias())
        self._outside = max(sample.outside_level(Loss.named("linear")), 1e-3)

    def _follow(self, pyramid: list[Image]) -> tuple[Guess, int]:
        """Where the solves of the levels end, from the last warp that was believed, and the number of their steps."""
        coarsest = len(self._problems) - 1
        guess, steps = self._guess.coarser(coarsest), 0
        for level in range(coarsest, -1, -1):
            problem = self._problems[level]
            problem.look_at(pyramid[level], self._outside)
            tolerance = (0.5 if level == 0 else 2.0) / np.sqrt(problem.n)
            theta = problem.point(guess.matrix, guess.gain, guess.bias)
            result = solve(problem, theta, acceptance="full", gtol=tolerance, ftol=1e-4, max_iter=15)
            steps += result.nit
            guess = Guess(problem.matrix(result.x), float(result.x[9]), float(result.x[10]))
            guess = guess.finer() if level else guess
        return guess, steps

    def _judged(self, guess: Guess, steps: int, began: float, recovered: bool = False) -> Tracked:
        fine, coarse = self._problems[0], self._problems[-1]
        levels = len(self._problems) - 1
        sample = fine.sample(fine.point(guess.matrix, guess.gain, guess.bias), 2000)
        ncc, overlap = sample.correlation(), sample.overlap
        small = guess.coarser(levels)
        detail = coarse.detail(coarse.point(small.matrix, small.gain, small.bias), most=2000)
        message = reason_to_doubt(guess.matrix, self._template.shape, guess.gain, ncc, detail)
        if overlap < _LEAST_OVERLAP:
            message = f"only {100 * overlap:.0f} % of the template are in sight"
        ok = message is None
        if ok:
            self._outside = max(sample.outside_level(Loss.named("linear")), 1e-3)
        matrix = guess.matrix / guess.matrix[2, 2] if ok else self._guess.matrix
        seconds = time.perf_counter() - began
        told = "Found." if message is None else f"Lost: {message}."
        return Tracked(matrix, ok, told, ncc, guess.gain, guess.bias, overlap, steps, recovered, seconds)

    def _recovered(self, frame: Image, lost: Tracked, began: float) -> Tracked:
        """The frame searched as a pair of images, from the last warp that was believed."""
        try:
            found = align(
                self._template.values(), frame.values(), self.model, initial=self._guess.matrix, mask1=self._mask,
                mask2=frame.valid, blur=self._blur, threads=self._options["threads"],
                photometric=self._options["photometric"], loss=self._options["loss"].name,
            )  # fmt: skip
        except ValueError:  # nothing of the template is in sight
            return lost
        if not found.success:
            return lost
        return self._judged(Guess(found.matrix, found.gain, found.bias), lost.iterations, began, recovered=True)


def _used(image: Image, roi: tuple[int, int, int, int] | None) -> NDArray[np.bool_]:
    """(rows, columns), where a pixel belongs to the template."""
    used = np.ones(image.shape, dtype=np.bool_) if image.valid is None else image.valid.copy()
    if roi is not None:
        x, y, w, h = (int(v) for v in roi)
        if x < 0 or y < 0 or w < 8 or h < 8 or x + w > image.shape[1] or y + h > image.shape[0]:
            raise ValueError(
                f"roi must be (x, y, width, height) within the image of {image.shape[1]} x {image.shape[0]} pixels, at "
                f"least 8 pixels wide and high, got {roi!r}"
            )
        inside = np.zeros(image.shape, dtype=np.bool_)
        inside[y : y + h, x : x + w] = True
        used &= inside
    if used.sum() < 64:
        raise ValueError(f"template: only {int(used.sum())} pixels are used, and tracking needs 64; check mask and roi")
    return used


def _side(mask: NDArray[np.bool_]) -> int:
    """Shorter side of the box around the pixels that are used."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(min(rows[-1] - rows[0], columns[-1] - columns[0])) + 1 if len(rows) else 0


def _strongest(image: Image, mask: NDArray[np.bool_], count: int) -> NDArray[np.int32]:
    """Numbers of the used pixels with the strongest gradients, as many in each tile, in raster order."""
    values = image.values() if image.channels == 1 else image.values().mean(axis=2)
    gy, gx = np.gradient(values)
    pixels = np.flatnonzero(mask)
    y, x = np.divmod(pixels, image.shape[1])
    side = max(_side(mask) / _TILES, 1.0)
    tile = (y / side).astype(np.int64) * int(image.shape[1] / side + 1) + (x / side).astype(np.int64)
    strength = (gx**2 + gy**2).ravel()[pixels]
    order = np.lexsort((-strength, tile))
    begins = np.flatnonzero(np.diff(tile[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    share = min(1.0, count / len(order))
    sizes = np.repeat(np.diff(begins, append=len(order)), np.diff(begins, append=len(order)))
    return np.sort(pixels[order[rank < np.maximum(share * sizes, 1.0)]]).astype(np.int32)
