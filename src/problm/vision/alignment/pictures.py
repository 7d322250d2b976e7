"""Pictures of an alignment: two images in one frame, laid over each other."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.image import Image, Mask

OVERLAYS = ("checkerboard", "red-cyan", "blend", "difference")


def overlaid(
    first: NDArray[np.uint8], second: NDArray[np.uint8], inside: Mask, kind: str, tiles: int
) -> NDArray[np.uint8]:
    """Two pictures (rows, columns, 3) as one; the second is shown where ``inside`` (rows, columns) is true."""
    within = inside[:, :, None]
    a, b = first.astype(np.float32), np.where(within, second, 0).astype(np.float32)
    if kind == "red-cyan":
        grey_a, grey_b = a.mean(axis=2), b.mean(axis=2)
        shown = np.stack([grey_a, grey_b, grey_b], axis=2)
    elif kind == "blend":
        shown = np.where(within, 0.5 * (a + b), a)
    elif kind == "difference":
        shown = np.where(within, 127.5 + 0.5 * (b - a), 0.0)
    else:
        h, w = first.shape[:2]
        size = max(1, max(h, w) // tiles)
        odd = ((np.arange(h)[:, None] // size + np.arange(w) // size) % 2).astype(bool)
        shown = np.where((odd & inside)[:, :, None], b, a)
    return np.clip(np.rint(shown), 0, 255).astype(np.uint8)


def picture_of(image: Image | NDArray[Any]) -> NDArray[np.uint8]:
    """Pixels as three channels of uint8.

    Integers are scaled by the full range of their type. Floats within 0 to 1 are scaled as they are, others from
    their least to their largest value.
    """
    values = image.values() if isinstance(image, Image) else image
    if values.dtype == np.uint16:
        values = (values // 257).astype(np.uint8)
    elif values.dtype.kind == "b":
        values = values.astype(np.uint8) * np.uint8(255)
    elif values.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        if low < -0.01 or high > 1.01:
            values = (values - low) / max(high - low, 1e-12)
        values = np.clip(np.rint(255.0 * values), 0, 255).astype(np.uint8)
    if values.ndim == 2 or values.shape[2] == 1:
        return np.repeat(values.reshape(*values.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(values[:, :, :3] if values.shape[2] >= 3 else np.repeat(values[:, :, :1], 3, axis=2))


def png_of(picture: NDArray[np.uint8]) -> bytes:
    """A picture in the PNG format."""
    try:
        from PIL import Image as Pil
    except ImportError as error:
        raise ImportError("writing pictures needs Pillow: pip install 'problm[vision]'") from error
    memory = io.BytesIO()
    Pil.fromarray(picture).save(memory, format="PNG")
    return memory.getvalue()


def drawn(shown: dict[str, Any], residuals: NDArray[np.float32], title: str) -> Any:
    """A Matplotlib figure of three pictures by their titles, and of residuals (rows, columns), NaN where unknown."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot() needs Matplotlib: pip install 'problm[plot]'") from error
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2)
    for axis, (name, picture) in zip(axes.flat, shown.items(), strict=False):
        axis.imshow(picture)
        axis.set_title(name)
    known = np.abs(residuals[np.isfinite(residuals)])
    limit = float(np.quantile(known, 0.98)) if known.size else 1.0
    image = axes[1, 1].imshow(residuals, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes[1, 1].set_title(title)
    for axis in axes.flat:
        axis.set_axis_off()
    figure.colorbar(image, ax=axes[1, 1], shrink=0.8)
    return figure
