r"""Picture of an absolute pose: the image with its reprojected points, and the camera among the points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...report.plots import empty_figure, save_figure

_INLIER, _OUTLIER = "#1b6fb5", "#d95f02"  # distinguishable without red and green


def plot_pose(pose: Any, image: Any = None, *, most: int = 1000, path: str | Path | None = None, seed: int = 0) -> Any:
    """Draw the image with pixels, joined to their reprojected points, and the points with the camera in space.

    Parameters
    ----------
    pose : `problm.AbsolutePose`.
    image : array (height, width[, 3]); None: points only.
    most : largest number of matches to draw, chosen at random.
    path : file to save the picture to; the suffix determines the format.

    Returns
    -------
    The Matplotlib figure (extra ``plot``); it belongs to no window.
    """
    x, X = (np.asarray(p, dtype=np.float64) for p in pose.points)
    shown = np.random.default_rng(seed).permutation(len(x))[:most]
    good = pose.inliers[shown]
    figure = empty_figure(figsize=(12.0, 5.0))
    ax = figure.add_subplot(1, 2, 1)
    if image is not None:
        pixels = np.asarray(image)
        ax.imshow(pixels, cmap="gray" if pixels.ndim == 2 else None, alpha=0.75)
    else:
        ax.invert_yaxis()
        ax.set_aspect("equal")
    ax.plot(*x[shown[~good]].T, ".", color=_OUTLIER, ms=3, alpha=0.6, label="outliers")
    ax.plot(*x[shown[good]].T, ".", color=_INLIER, ms=3, label="inliers")
    if np.isfinite(pose.R).all():
        seen = pose.project(X[shown[good]])
        ax.plot(*seen.T, "o", color="#222222", ms=5, mfc="none", mew=0.6, label="reprojected")
    ax.legend(loc="lower right", fontsize=8, framealpha=0.9)
    ax.set_title("image")
    space = figure.add_subplot(1, 2, 2, projection="3d")
    space.plot(*X[shown[good]].T, ".", color=_INLIER, ms=2)
    if np.isfinite(pose.R).all():
        for line in frustum(pose.R, pose.t, pose.K, x, 0.2 * float(np.ptp(X[shown], axis=0).max())):
            space.plot(*line.T, "-", color="#222222", lw=1.0)
    space.set_title("camera and points")
    figure.suptitle(f"{pose.status}; {int(pose.inliers.sum())} of {len(x)} matches are inliers", fontsize=11)
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def frustum(
    R: NDArray[Any], t: NDArray[Any], K: NDArray[Any], x: NDArray[Any], depth: float
) -> list[NDArray[np.float64]]:
    """Lines (k, 3) of a pyramid from the camera through the corners of its pixels x (n, 2)."""
    (left, top), (right, bottom) = x.min(axis=0), x.max(axis=0)
    corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom], [left, top]])
    rays = np.column_stack([(corners - K[:2, 2]) / K[[0, 1], [0, 1]], np.ones(5)]) * depth
    at, base = -R.T @ t, (rays - t) @ R
    return [base, *(np.array([at, corner]) for corner in base[:4])]
