"""Picture of a reconstruction: its cameras and points from above and from the side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...report.plots import new_figure, save_figure
from .reconstruction import Reconstruction


def plot_reconstruction(
    model: Reconstruction, *, most: int = 5000, path: str | Path | None = None, seed: int = 0
) -> Any:
    """Draw cameras (orange, with their viewing directions) and points (blue) in two projections.

    Parameters
    ----------
    model : the reconstruction.
    most : largest number of points to draw, chosen at random.
    path : file to save the picture to; the suffix determines the format.

    Returns
    -------
    The Matplotlib figure (extra ``plot``); it belongs to no window.
    """
    shown = np.random.default_rng(seed).permutation(len(model.points))[:most]
    X = model.points[shown]
    at = -np.einsum("cji,cj->ci", model.rotations, model.translations)
    ahead = model.rotations[:, 2]
    both = np.concatenate([X, at])
    middle = np.median(both, axis=0)
    # A few points are often far away: the picture shows nine tenths of them, and all cameras.
    reach = max(
        float(np.quantile(np.abs(X - middle), 0.9)) if len(X) else 0.0, float(np.abs(at - middle).max()), 1e-300
    )
    figure, axes = new_figure(1, 2, figsize=(12.0, 6.0))
    for ax, (a, b), name in zip(axes, ((0, 2), (0, 1)), ("x and z", "x and y"), strict=True):
        ax.plot(X[:, a], X[:, b], ".", color="#1b6fb5", ms=1.5, alpha=0.6)
        ax.plot(at[:, a], at[:, b], "o", color="#d95f02", ms=4)
        ax.quiver(at[:, a], at[:, b], ahead[:, a], ahead[:, b], color="#d95f02", width=0.003)
        ax.set_xlim(middle[a] - 1.1 * reach, middle[a] + 1.1 * reach)
        low, high = middle[b] - 1.1 * reach, middle[b] + 1.1 * reach
        ax.set_ylim((high, low) if b == 1 else (low, high))  # y points down
        ax.set_aspect("equal")
        ax.set_title(name)
    figure.suptitle(f"{len(at)} images, {len(model.points)} points", fontsize=11)
    if path is not None:
        save_figure(figure, Path(path))
    return figure
