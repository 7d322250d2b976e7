"""The demo's alignment: two noisy views of a village from above, and the homography between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...vision.alignment.align import align
from ...vision.alignment.warps import transform
from .parts import Measured, Part, passes, repeated
from .scene import seen_through, village

Array = NDArray[np.float64]
_MARGIN = 60
_TRUTH = np.array([[1.01, 0.03, _MARGIN + 4.0], [-0.02, 0.99, _MARGIN - 3.0], [2e-5, -1e-5, 1.0]])
_SCIPY_SECONDS = 5.0
_START = np.array([[1.0, 0.0, _MARGIN], [0.0, 1.0, _MARGIN], [0.0, 0.0, 1.0]])


def make_images(height: int, width: int, seed: int) -> tuple[Array, Array]:
    """Make image 1 and a larger image 2 that shows all of it: x2 ~ _TRUTH x1, noise of 0.02 on values from 0 to 1."""
    rng = np.random.default_rng(seed)
    second = village(height + 2 * _MARGIN, width + 2 * _MARGIN, rng)
    first = seen_through(second, lambda points: transform(_TRUTH, points), height, width)
    return first + 0.02 * rng.standard_normal(first.shape), second + 0.02 * rng.standard_normal(second.shape)


def run(height: int, width: int, seed: int, progress: Callable[..., Any] | None) -> Part:
    """Align from a start that is off by up to 30 pixels, coarse to fine; SciPy begins where the finest level does."""
    first, second = make_images(height, width, seed)

    def solve(**options: Any) -> Any:
        return align(
            first, second, "homography", initial=_START, blur=0.0, photometric=False, rng=seed, callback=progress,
            **options,
        )  # fmt: skip

    align(first[:64, :64], second[:200, :200], "homography", initial=_START, levels=1)  # loads what is compiled
    warps, seconds = repeated([solve, lambda: solve(acceptance="full")])
    cost = _Cost(first, second)
    measured = [
        Measured(name, s, cost(w.matrix), f"{passes(w.result)}, corners off by {_off(w.matrix, first.shape):.4f} px")
        for name, w, s in zip(("ProBLM", "LM (ProBLM's own)"), warps, seconds, strict=True)
    ]
    levels = warps[0].levels
    measured.append(cost.scipy(levels[-2].matrix if len(levels) > 1 else _START))
    return Part(
        f"Dense alignment, {width} x {height} pixels",
        "A homography from all pixels: the squared differences between image 1 and the warped image 2 (bilinear), from "
        "coarse to fine, from a start that is off by up to 30 pixels. SciPy minimises the same cost at full resolution "
        "with difference quotients; it is given the end of the last but one level as its start.",
        measured,
        pictures=[_before_and_after(first, second, warps[0].matrix)],
    )


def _off(matrix: Array, shape: tuple[int, ...]) -> float:
    corners = np.array([[0, 0], [shape[1], 0], [0, shape[0]], [shape[1], shape[0]]], dtype=np.float64)
    return float(np.abs(transform(matrix, corners) - transform(_TRUTH, corners)).max())


class _Cost:
    """The same cost in NumPy and SciPy: half the sum of squared differences, bilinear."""

    def __init__(self, first: Array, second: Array) -> None:
        y, x = np.mgrid[0 : first.shape[0], 0 : first.shape[1]]
        self.points = np.column_stack([x.ravel(), y.ravel()]).astype(np.float64)
        self.first, self.second = first.astype(np.float32), second.astype(np.float32)

    def residuals(self, matrix: Array) -> Array:
        from scipy.ndimage import map_coordinates

        u, v = transform(matrix, self.points).T
        warped = np.asarray(map_coordinates(self.second, [v, u], order=1, mode="nearest"), dtype=np.float64)
        return warped - self.first.ravel()

    def __call__(self, matrix: Array) -> float:
        r = self.residuals(matrix)
        return 0.5 * float(r @ r)

    def scipy(self, start: Array) -> Measured:
        from scipy.optimize import least_squares

        # Scale entries to similar size: shifts in pixels, the others by their effect in pixels at the image's far side.
        side = float(max(self.first.shape))
        units = np.array([1 / side, 1 / side, 1, 1 / side, 1 / side, 1, 1 / side**2, 1 / side**2])

        def matrix(theta: Array) -> Array:
            moved: Array = (start.ravel() + np.append(units * theta, 0.0)).reshape(3, 3)
            return moved

        began = time.perf_counter()
        best: list[Any] = [np.inf, np.zeros(8)]

        def residuals(theta: Array) -> Array:
            if time.perf_counter() - began > _SCIPY_SECONDS:
                raise TimeoutError
            r = self.residuals(matrix(theta))
            cost = 0.5 * float(r @ r)
            if cost < best[0]:
                best[:] = [cost, theta.copy()]
            return r

        note = ""
        try:
            # Steps of a thousandth, because the interpolant is piecewise smooth and float32.
            least_squares(residuals, np.zeros(8), method="lm", diff_step=np.full(8, 1e-3))
        except TimeoutError:
            note = "given up, "
        seconds = time.perf_counter() - began
        found = matrix(best[1])
        note += f"corners off by {_off(found, self.first.shape):.4f} px"
        return Measured("SciPy least_squares", seconds, self(found), note)


def _before_and_after(first: Array, second: Array, matrix: Array) -> tuple[bytes, str]:
    """Image 1 in red and image 2, warped, in cyan: grey where they agree."""
    from ...report.page import figure_png
    from ...report.plots import new_figure
    from ...vision.images.resampling import resample

    figure, axes = new_figure(1, 2, figsize=(10, 4))
    for ax, warp, title in ((axes[0], _START, "at the start"), (axes[1], matrix, "aligned")):
        warped = resample(second.astype(np.float32), warp, first.shape, 0.0)[0]
        ax.imshow(np.clip(np.stack([first, warped, warped], axis=2), 0.0, 1.0))
        ax.set_title(title)
        ax.set_axis_off()
    return figure_png(figure), "Image 1 in red, the warped image 2 in cyan: grey where they agree"
