r"""Picture of a two-view fit: both images side by side, inliers, outliers, and epipolar lines or transferred frame."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...report.plots import new_figure, save_figure

Array = NDArray[np.float64]
_INLIER, _OUTLIER = "#1b6fb5", "#d95f02"  # distinguishable without red and green


class Drawable(Protocol):
    """What the picture needs from a result; one with a homography ``H`` is drawn by its transferred frame."""

    @property
    def points(self) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @property
    def inliers(self) -> NDArray[np.bool_]: ...
    @property
    def matrix(self) -> Array: ...
    @property
    def status(self) -> str: ...


def line_in_box(line: Array, box: tuple[float, float, float, float]) -> Array | None:
    """The two points (2, 2) where the line a x + b y + c = 0 crosses a box (left, right, top, bottom), or None."""
    a, b, c = line
    left, right, top, bottom = box
    crossings = []
    if abs(b) > 1e-300:
        crossings += [(x, -(a * x + c) / b) for x in (left, right)]
    if abs(a) > 1e-300:
        crossings += [(-(b * y + c) / a, y) for y in (top, bottom)]
    slack = 1e-9 * max(right - left, bottom - top)
    inside = [p for p in crossings if left - slack <= p[0] <= right + slack and top - slack <= p[1] <= bottom + slack]
    if len(inside) < 2:
        return None
    ends = np.array(inside)
    # Corners occur twice; the two points that are farthest apart are the ends.
    far = np.linalg.norm(ends[:, None] - ends[None], axis=2)
    i, j = np.unravel_index(int(far.argmax()), far.shape)
    return ends[[i, j]] if far[i, j] > 0.0 else None


def plot_matches(
    fit: Drawable,
    image1: Any = None,
    image2: Any = None,
    *,
    lines: int = 12,
    most: int = 1000,
    path: str | Path | None = None,
    seed: int = 0,
) -> Any:
    """Draw both views with inliers (blue) and outliers (orange), and epipolar lines of a few inliers.

    Parameters
    ----------
    fit : RelativePose, Fundamental or Homography.
    image1, image2 : arrays (height, width[, 3]), shown in grey if they have no colour; None: points only.
    lines : number of inliers whose epipolar lines are drawn in the other image; for a homography, the outline of the
        points of image 1 is drawn in image 2 instead.
    most : largest number of matches to draw, chosen at random.
    path : file to save the picture to; the suffix determines the format.

    Returns
    -------
    The Matplotlib figure (extra ``plot``); it belongs to no window.
    """
    x1, x2 = (np.asarray(x, dtype=np.float64) for x in fit.points)
    rng = np.random.default_rng(seed)
    shown = rng.permutation(len(x1))[:most]
    figure, axes = new_figure(1, 2, figsize=(12.0, 5.0))
    boxes = []
    for ax, x, image, name in ((axes[0], x1, image1, "image 1"), (axes[1], x2, image2, "image 2")):
        if image is not None:
            pixels = np.asarray(image)
            ax.imshow(pixels, cmap="gray" if pixels.ndim == 2 else None, alpha=0.75)
            box = (0.0, float(pixels.shape[1]), 0.0, float(pixels.shape[0]))
        else:
            (left, top), (right, bottom) = x.min(axis=0), x.max(axis=0)
            box = (float(left), float(right), float(top), float(bottom))
            ax.set_aspect("equal")
        boxes.append(box)
        good = fit.inliers[shown]
        ax.plot(*x[shown[~good]].T, ".", color=_OUTLIER, ms=3, alpha=0.6, label="outliers")
        ax.plot(*x[shown[good]].T, ".", color=_INLIER, ms=3, alpha=0.8, label="inliers")
        ax.set_xlim(box[0], box[1])
        ax.set_ylim(box[3], box[2])
        ax.set_title(name)
    if np.isfinite(fit.matrix).all():
        if hasattr(fit, "H"):
            _draw_outline(axes[1], fit.H, boxes[0])
        else:
            chosen = rng.permutation(np.flatnonzero(fit.inliers))[:lines]
            _draw_lines(axes, fit.matrix, x1, x2, chosen, boxes)
    axes[1].legend(loc="lower right", fontsize=8, framealpha=0.9)
    count = f"{int(fit.inliers.sum())} of {len(x1)} matches are inliers"
    figure.suptitle(f"{type(fit).__name__}: {fit.status}; {count}", fontsize=11)
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def _draw_lines(
    axes: Any,
    F: Array,
    x1: Array,
    x2: Array,
    chosen: NDArray[np.intp],
    boxes: list[tuple[float, float, float, float]],
) -> None:
    """Epipolar lines of a few matches, each pair in one colour."""
    from matplotlib import colormaps

    colours = colormaps["turbo"](np.linspace(0.05, 0.95, max(len(chosen), 1)))
    for k, colour in zip(chosen, colours, strict=False):
        u, v = np.append(x1[k], 1.0), np.append(x2[k], 1.0)
        for ax, line, point, box in ((axes[0], F.T @ v, x1[k], boxes[0]), (axes[1], F @ u, x2[k], boxes[1])):
            ends = line_in_box(line, box)
            if ends is not None:
                ax.plot(*ends.T, "-", color=colour, lw=0.9)
            ax.plot(*point, "o", color=colour, ms=5, mfc="none")


def _draw_outline(ax: Any, H: Array, box: tuple[float, float, float, float]) -> None:
    """The frame of image 1, mapped to image 2."""
    left, right, top, bottom = box
    s = np.linspace(0.0, 1.0, 50)
    corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom], [left, top]])
    path = np.concatenate([a + s[:, None] * (b - a) for a, b in pairwise(corners)])
    y = path @ H[:, :2].T + H[:, 2]
    front = y[:, 2] * np.median(y[:, 2]) > 0
    y = np.where(front[:, None], y[:, :2] / np.where(front, y[:, 2], 1.0)[:, None], np.nan)
    ax.plot(*y.T, "-", color="#222222", lw=1.2, label="frame of image 1")
