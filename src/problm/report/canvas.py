"""Pictures of a few panels drawn with Pillow, for programs that would spend most of their time loading Matplotlib.

Loading Matplotlib takes longer than a fit of thousands of rows. What the program always draws, curves, points and
steps in panels with axes, needs little of it. `Fit.plot` and `Result.plot` remain Matplotlib figures.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..support.printable import printable
from .ticks import Ticks, linear_ticks, log_ticks

Array = NDArray[np.float64]
_FINE, _COARSE = 3, 2
"""Lengths are multiplied by the first, and the picture is reduced by the second, which smooths edges."""
_INK, _GRID = "#262626", "#dddddd"


@lru_cache
def _font(size: float) -> Any:
    """The font of Matplotlib's pictures, which comes with it and has the letters of most languages."""
    from PIL import ImageFont

    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        raise ImportError("plots need Matplotlib: pip install 'problm[plot]'")
    path = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(path), _FINE * size) if path.is_file() else ImageFont.load_default(_FINE * size)


class Canvas:
    """A white picture.

    Parameters
    ----------
    width, height : size in the units of all positions and lengths.
    """

    def __init__(self, width: int, height: int) -> None:
        _font(12.0)  # raises without Matplotlib, and with it there is Pillow
        from PIL import Image, ImageDraw

        self.image = Image.new("RGB", (_FINE * width, _FINE * height), "white")
        self.draw = ImageDraw.Draw(self.image, "RGBA")
        self.width = width

    def line(self, points: Array, color: str, width: float = 1.0, dashed: bool = False) -> None:
        """Connect (k, 2) points."""
        for piece in _dashes(points) if dashed else [points]:
            self.draw.line(_flat(piece), fill=color, width=max(1, round(_FINE * width)))

    def area(self, points: Array, color: str, opacity: float = 1.0) -> None:
        """Fill a polygon of (k, 2) corners."""
        self.draw.polygon(_flat(points), fill=_faded(color, opacity))

    def dots(self, points: Array, radius: float, color: str, opacity: float = 1.0) -> None:
        """Draw discs at (k, 2) centres; where they overlap they become darker."""
        fill, r = _faded(color, opacity), _FINE * radius
        for x, y in (_FINE * points).tolist():
            self.draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    def text(self, x: float, y: float, text: str, size: float = 12.0, anchor: str = "mm", color: str = _INK) -> None:
        """Write one line; the anchor is Pillow's: l, m or r of a, m or s."""
        self.draw.text((_FINE * x, _FINE * y), printable(text), fill=color, font=_font(size), anchor=anchor)

    def upright(self, x: float, y: float, text: str, size: float = 12.0) -> None:
        """Write one line from the bottom to the top, centred at (x, y)."""
        from PIL import Image, ImageDraw

        left, top, right, bottom = _font(size).getbbox(printable(text))
        mask = Image.new("L", (max(1, int(right - left)), max(1, int(bottom - top))))
        ImageDraw.Draw(mask).text((-left, -top), printable(text), fill=255, font=_font(size))
        turned = mask.transpose(Image.Transpose.ROTATE_90)
        corner = (round(_FINE * x - turned.width / 2), round(_FINE * y - turned.height / 2))
        self.image.paste(_INK, (*corner, corner[0] + turned.width, corner[1] + turned.height), turned)

    def length(self, text: str, size: float) -> float:
        """Width of a line of text."""
        return float(_font(size).getlength(printable(text))) / _FINE

    def png(self) -> bytes:
        """The picture; the same bits for the same drawing."""
        buffer = io.BytesIO()
        buffer.name = "picture.png"  # without a name, Pillow loads all its usual formats
        self.image.reduce(_COARSE).save(buffer, compress_level=5)
        return buffer.getvalue()


class Panel:
    """Axes on a canvas.

    Parameters
    ----------
    canvas : where to draw.
    box : left, top, right and bottom of the frame.
    x, y : least and largest value of the axes.
    log : whether the axes are logarithmic.
    numbered : whether the axis of x has numbers.
    whole : whether the axes count, so that only integers are numbered.
    """

    def __init__(
        self,
        canvas: Canvas,
        box: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        log: tuple[bool, bool] = (False, False),
        numbered: bool = True,
        whole: tuple[bool, bool] = (False, False),
    ) -> None:
        self.canvas, self.box, self.log, self.whole = canvas, box, log, whole
        self.ends = (_scaled(np.array(x), log[0]), _scaled(np.array(y), log[1]))
        self._across(x, y, numbered)
        self.widest = self._up(x, y)

    def _ticks(self, axis: int, ends: tuple[float, float], most: int) -> Ticks:
        return log_ticks(*ends) if self.log[axis] else linear_ticks(*ends, min(8, max(4, most)), self.whole[axis])

    def _across(self, x: tuple[float, float], y: tuple[float, float], numbered: bool) -> None:
        """Grid lines of x, with the numbers for which there is room."""
        left, top, right, bottom = self.box
        ticks, free = self._ticks(0, x, int(right - left) // 95), -np.inf
        for value, told in zip(ticks.values, ticks.texts, strict=True):
            at, half = float(self.at([value], [y[0]])[0, 0]), 0.5 * self.canvas.length(told, 12.0)
            self.canvas.line(np.array([[at, top], [at, bottom]]), _GRID, 0.5)
            if numbered and at - half > free and at + half < self.canvas.width:
                self.canvas.text(at, bottom + 6, told, anchor="ma")
                free = at + half + 8.0
        if numbered:
            self.canvas.text(right, bottom + 26, ticks.note, 11.0, "ra")

    def _up(self, x: tuple[float, float], y: tuple[float, float]) -> float:
        """Grid lines of y, with numbers; return the width of these."""
        left, top, right, bottom = self.box
        ticks = self._ticks(1, y, int(bottom - top) // 50)
        for value, told in zip(ticks.values, ticks.texts, strict=True):
            at = float(self.at([x[0]], [value])[0, 1])
            self.canvas.line(np.array([[left, at], [right, at]]), _GRID, 0.5)
            self.canvas.text(left - 6, at, told, anchor="rm")
        self.canvas.text(max(2.0, left - 60), top - 4, ticks.note, 10.0, "ls")
        return max((self.canvas.length(told, 12.0) for told in ticks.texts), default=0.0)

    def at(self, x: ArrayLike, y: ArrayLike) -> Array:
        """(k, 2) places of points; those outside of the axes lie on the frame."""
        left, top, right, bottom = self.box
        (x0, x1), (y0, y1) = self.ends
        across = np.clip((_scaled(np.asarray(x, dtype=np.float64), self.log[0]) - x0) / (x1 - x0), 0.0, 1.0)
        up = np.clip((_scaled(np.asarray(y, dtype=np.float64), self.log[1]) - y0) / (y1 - y0), 0.0, 1.0)
        places = np.stack([left + across * (right - left), bottom - up * (bottom - top)], axis=1)
        shown: Array = places[np.isfinite(places).all(axis=1)]
        return shown

    def frame(self, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
        """Draw the frame over what is there, and the labels."""
        left, top, right, bottom = self.box
        corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom], [left, top]])
        self.canvas.line(corners, _INK, 0.8)
        self.canvas.text((left + right) / 2, bottom + 26, xlabel, 13.0, "ma")
        self.canvas.text((left + right) / 2, top - 7, title, 14.0, "ms")
        if ylabel:
            self.canvas.upright(left - self.widest - 18, (top + bottom) / 2, ylabel, 13.0)

    def legend(self, entries: Sequence[tuple[str, str, str]], title: str, drawn: Array) -> None:
        """Name (kind, color, name) where it hides the fewest of the points ``drawn`` (k, 2)."""
        canvas, (left, top, right, bottom) = self.canvas, self.box
        width = 52 + max(canvas.length(text, 11.0) for text in [title, *(name for _, _, name in entries)])
        height = 28 + 18 * len(entries)
        across = (right - width - 8, left + 8, (left + right - width) / 2)
        up = (top + 8, bottom - height - 8, (top + bottom - height) / 2)
        x, y = min(((x, y) for y in up for x in across), key=lambda c: _inside(drawn, c, (width, height)))
        corners = np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height], [x, y]])
        canvas.area(corners, "#ffffff", 0.8)
        canvas.line(corners, "#cccccc", 0.8)
        canvas.text(x + width / 2, y + 12, title, 11.0)
        for k, (kind, color, name) in enumerate(entries):
            middle = y + 32 + 18 * k
            ends = np.array([[x + 8, middle], [x + 34, middle]])
            if kind == "dots":
                canvas.dots(ends.mean(axis=0, keepdims=True), 3.0, color, 0.8)
            elif kind == "area":
                canvas.area(np.array([[x + 8, middle - 4], [x + 34, middle - 4], [x + 34, middle + 4],
                                      [x + 8, middle + 4]]), color, 0.25)  # fmt: skip
            else:
                canvas.line(ends, color, 1.8, kind == "dashes")
            canvas.text(x + 42, middle, name, 11.0, "lm")


def spread(*values: Array, log: bool = False) -> tuple[float, float]:
    """The ends of an axis for these values, with a margin."""
    every = np.concatenate([np.ravel(v) for v in values])
    every = every[np.isfinite(every) & ((every > 0.0) | (not log))]
    if not len(every):
        return 1.0, 10.0
    low, high = float(every.min()), float(every.max())
    if log:
        margin = (high / low) ** 0.05 if high > low else 2.0
        return low / margin, high * margin
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _scaled(values: Array, log: bool) -> Array:
    return np.log10(np.maximum(values, 1e-300)) if log else values


def _flat(points: Array) -> list[float]:
    flat: list[float] = (_FINE * points).ravel().tolist()
    return flat


def _faded(color: str, opacity: float) -> str:
    return f"{color}{round(255 * opacity):02x}"


def _inside(points: Array, corner: tuple[float, float], size: tuple[float, float]) -> int:
    beside = (points >= np.subtract(corner, 4.0)) & (points <= np.add(corner, size) + 4.0)
    return int(beside.all(axis=1).sum())


def _dashes(points: Array, on: float = 6.0, off: float = 4.0) -> list[Array]:
    """A line as dashes of equal length."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    pieces = []
    for begin in np.arange(0.0, along[-1], on + off):
        inner = (along > begin) & (along < begin + on)
        at = np.concatenate([[begin], along[inner], [min(begin + on, along[-1])]])
        pieces.append(np.stack([np.interp(at, along, points[:, 0]), np.interp(at, along, points[:, 1])], axis=1))
    return pieces
