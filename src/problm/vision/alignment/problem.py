r"""Two images as a least-squares problem: one residual block per pixel of image 1.

The residuals, their derivatives and what happens at the border are derived in `problm.vision.alignment.kernels`;
here images, masks and options become columns, a compiled kernel and a space of parameters.

Rows are pixels of image 1 in raster order: its number and its values, read in place. A batch is a stratified random
sample of them in ascending order, so that both images are read forwards (`problm.vision.alignment.pixel_order`).

The cost k^2 / 2 of a pixel outside image 2 is fixed before a solve, so that all methods minimise the same function
(`outside_level`): the average cost of the pixels inside, at the start. Leaving the image is then neutral on average,
and is penalised more and more as the fit inside improves: less overlap never improves the fit. Before the last level it
is fixed again, from a nearly converged warp, which keeps the pull of the border on the solution negligible: it is about
``k^2 / (2 w g^2)`` pixels for an image of width w and mean squared gradient g^2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Kernel, available_threads
from ...linalg.normal import Normal
from ...losses import Loss
from ...problems.compiled import CompiledProblem
from ...solver.problem import JUMP, Theta
from ..images.image import Image, Mask
from . import kernels as ak
from .pixel_order import PixelOrder
from .sample import Sample, look_up, score_warps
from .warps import Frame, Retraction, nearest

Array = NDArray[np.float64]
BAND = 2.0
"""Width in pixels of the band along the border of image 2 in which the weight of a pixel falls to zero."""

_LEAST_TILE = 6.0
_LINEARIZATIONS = ("forward", "esm", "esm-everywhere")


class AlignmentProblem(CompiledProblem):
    """Pixels of image 1 against image 2 under a warp.

    Parameters
    ----------
    image1, image2 : images with the same number of channels.
    model : one of `problm.vision.alignment.warps.MODELS`.
    photometric : whether gain and bias are parameters as well, after those of the warp.
    loss : robust loss on the norm of a pixel's residual, in units of the images' values.
    linearization : ``"forward"``, the exact gradient always; ``"esm"``, averaged gradients on batches and the exact
        one for all pixels, so that convergence, which is only declared there, is convergence of the cost; or
        ``"esm-everywhere"``, averaged gradients for all pixels, too. That is the paper's setting, for reproduction
        only: averaged gradients do not vanish at the minimum, so solves end above it.
    outside : k, the residual of a pixel outside image 2.
    threads : number of threads; None: as many as there are cores.
    rng : random seed or Generator for the order of the pixels.
    pixels : (k,) numbers of the pixels of image 1 that are used, in raster order; None: all valid ones.
    """

    in_place = False

    def __init__(
        self,
        image1: Image,
        image2: Image,
        model: str = "homography",
        *,
        photometric: bool = False,
        loss: Loss | None = None,
        linearization: str = "forward",
        outside: float = 0.0,
        threads: int | None = None,
        rng: np.random.Generator | int | None = 0,
        pixels: NDArray[np.int32] | None = None,
    ) -> None:
        if linearization not in _LINEARIZATIONS:
            raise ValueError(
                f"linearization={linearization!r} is not known; choose one of {', '.join(_LINEARIZATIONS)}"
            )
        self.image1, self.image2, self.model = image1, image2, model
        self.frame = Frame.of(image1.shape, image2.shape)
        self.outside = outside
        move = Retraction(model, photometric)
        h1, w1 = image1.shape
        values = image1.pixels.reshape(h1 * w1, -1)
        if pixels is None and image1.valid is not None:
            pixels = np.flatnonzero(image1.valid).astype(np.int32)
        if pixels is None:
            pixels = np.arange(h1 * w1, dtype=np.int32)
        else:
            values = values[pixels]
        self._weights = weights = None if image2.valid is None else soft_mask(image2.valid)
        self.nothing_to_see = weights is not None and not weights.any()
        """Whether image 2 has no pixel with valid ones around it."""
        program = _program(image1, image2, model, photometric, weights)
        program[ak.P_ESM] = linearization == "esm-everywhere"
        constants = _constants(image1, image2, self.frame, outside)
        kernel = Kernel(
            ak.warp_evaluator,
            move.dim,
            image1.channels,
            program,
            constants,
            keep=(image1, image2, weights),
            loss=loss or Loss.named("linear"),
            threads=available_threads() if threads is None else threads,
        )
        # Derivatives cost little more than residuals (15 against 9 ns per pixel), and most steps are accepted.
        super().__init__(
            kernel, [pixels, values[:, 0] if image1.channels == 1 else values], retract=move, fused=True, rng=rng
        )
        self.few, self.jump = 0, JUMP  # a gathered pixel costs little more than one in place
        self.data.order = PixelOrder(self.n, rng)
        self._batch_kernel = kernel
        if linearization == "esm":
            averaged = program.copy()
            averaged[ak.P_ESM] = 1
            self._batch_kernel = Kernel(
                ak.warp_evaluator,
                move.dim,
                image1.channels,
                averaged,
                constants,
                kernel.keep,
                kernel.loss,
                kernel.threads,
            )

    def look_at(self, image2: Image, outside: float) -> None:
        """Compare with another image 2 from now on, of the same size, type of pixels and number of channels."""
        if image2.pixels.shape != self.image2.pixels.shape or image2.pixels.dtype != self.image2.pixels.dtype:
            raise ValueError(f"image2 must stay of shape {self.image2.pixels.shape}, got {image2.pixels.shape}")
        self.image2, self.outside = image2, outside
        self._weights = None if image2.valid is None else soft_mask(image2.valid)
        for kernel in {id(k): k for k in (self.kernel, self._batch_kernel)}.values():
            kernel.program[ak.P_IMAGE2] = image2.pixels.ctypes.data
            kernel.program[ak.P_WEIGHT2] = 0 if self._weights is None else self._weights.ctypes.data
            kernel.constants[ak.C_UNIT2], kernel.constants[ak.C_OUTSIDE] = image2.unit, outside

    def linearize(self, theta: Theta, lo: int, hi: int, *, outer: bool, costs: Array | None) -> Normal:
        kernel = self.kernel if lo == 0 and hi == self.n else self._batch_kernel
        return kernel.linearize(self._point(theta), self._columns(lo, hi), hi - lo, outer=outer, costs=costs)

    def concentration(self, theta: Theta, lo: int, hi: int, root: Array) -> None:
        """Not computed: every pixel informs every parameter of a warp, and strong edges would make batches grow without
        need (measured: this loses half of the gain in time to 1 % above the minimum)."""
        return

    def point(self, matrix: Array, gain: float = 1.0, bias: float = 0.0) -> Array:
        """The point (11,) of a warp in pixels, or of the nearest warp of the model."""
        return np.concatenate([nearest(self.frame.normalised(matrix), self.model).reshape(9), [gain, bias]])

    def points(self, matrices: Array) -> Array:
        """Points (k, 11) of homographies (k, 3, 3) in pixels."""
        normalised = np.stack([self.frame.normalised(matrix) for matrix in matrices]).reshape(-1, 9)
        return np.column_stack([normalised, np.ones(len(matrices)), np.zeros(len(matrices))])

    def matrix(self, theta: Array) -> Array:
        """The warp (3, 3) in pixels at a point."""
        return self.frame.pixels(theta[:9].reshape(3, 3))

    def look_up(self, theta: Array, pixels: NDArray[np.int32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``gain I2 + bias`` (k, channels) and weights (k,) at the pixels of image 1 with these numbers."""
        values = np.empty((len(pixels), self.image1.channels), dtype=np.float32)
        weights = np.empty(len(pixels), dtype=np.float32)
        look_up(self._point(theta), pixels, self.kernel.program, self.kernel.constants, values, weights)
        return values, weights

    def sample(self, theta: Array, most: int = 20_000) -> Sample:
        """Both images at up to ``most`` pixels, evenly spread over those of image 1 that are used."""
        chosen, own = self._some(most)
        return Sample(own, *self.look_up(theta, chosen))

    def detail(self, theta: Array, parts: int = 16, most: int = 20_000) -> float:
        """Correlation at some pixels about the means of square tiles, so many along the shorter side of image 1."""
        chosen, own = self._some(most)
        h, w = self.image1.shape
        y, x = np.divmod(chosen, w)
        side = max(min(h, w) / parts, _LEAST_TILE)
        across = int(w / side) + 1
        tiles = (y / side).astype(np.intp) * across + (x / side).astype(np.intp)
        return Sample(own, *self.look_up(theta, chosen)).detail(tiles)

    def scores(self, thetas: Array, most: int) -> Array:
        """(k,) correlation times the root of the overlap at each of some points (k, 11), on up to ``most`` pixels."""
        scores = np.empty(len(thetas))
        chosen, own = self._some(most)
        score_warps(thetas, chosen, own, self.kernel.program, self.kernel.constants, scores)
        return scores

    def _some(self, most: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Numbers (k,) and values (k, channels) of up to ``most`` pixels, evenly spread over those that are used."""
        pixels = self.data.columns[0]
        # A step that has no common factor with the width keeps the sample off vertical lines.
        step = max(1, len(pixels) // most)
        while step > 1 and math.gcd(step, self.image1.shape[1]) > 1:
            step += 1
        chosen = np.ascontiguousarray(pixels[step // 2 :: step])
        return chosen, self.image1.pixels.reshape(-1, self.image1.channels)[chosen] * np.float32(self.image1.unit)


def soft_mask(valid: Mask) -> NDArray[np.float32]:
    """Weights that fall to zero over three pixels before an invalid one.

    Every corner of a cell with an invalid corner gets zero, so that no value of an invalid pixel counts.
    """
    from scipy.ndimage import binary_erosion, uniform_filter

    core = binary_erosion(valid, np.ones((5, 5), dtype=bool), border_value=1)
    return np.maximum(uniform_filter(core.astype(np.float32), 3, mode="nearest"), np.float32(0.0))


def _program(
    image1: Image, image2: Image, model: str, photometric: bool, weights: NDArray[np.float32] | None
) -> NDArray[np.int64]:
    program = np.zeros(ak.PROGRAM_SIZE, dtype=np.int64)
    program[ak.P_IMAGE1] = image1.pixels.ctypes.data
    program[ak.P_TYPE1] = ak.TYPES[image1.pixels.dtype.str[1:]]
    program[ak.P_HEIGHT1], program[ak.P_WIDTH1] = image1.shape
    program[ak.P_IMAGE2] = image2.pixels.ctypes.data
    program[ak.P_TYPE2] = ak.TYPES[image2.pixels.dtype.str[1:]]
    program[ak.P_HEIGHT2], program[ak.P_WIDTH2] = image2.shape
    program[ak.P_CHANNELS] = image1.channels
    program[ak.P_MODEL] = ak.MODEL_CODES[model]
    program[ak.P_RIGHT] = model != "homography"
    program[ak.P_PHOTOMETRIC] = photometric
    program[ak.P_WEIGHT2] = 0 if weights is None else weights.ctypes.data
    return program


def _constants(image1: Image, image2: Image, frame: Frame, outside: float) -> Array:
    constants = np.zeros(ak.CONSTANTS_SIZE)
    constants[ak.C_SCALE] = frame.scale
    constants[ak.C_X1], constants[ak.C_Y1] = frame.centre1
    constants[ak.C_X2], constants[ak.C_Y2] = frame.centre2
    constants[ak.C_UNIT1], constants[ak.C_UNIT2] = image1.unit, image2.unit
    constants[ak.C_BAND] = BAND
    constants[ak.C_OUTSIDE] = outside
    return constants
