"""Result of `align`: the warp, how it was found, and pictures of it."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...solver.information import inverse_root
from ...solver.regional import regional_covariance
from ...solver.result import Result, Status
from ...support.files import write_atomically
from ..images.image import Mask, Source, pixels_of
from ..images.resampling import resample
from .doubt import PARALLAX, reason_in_parts, reason_to_doubt, residual_motion, said_of_motion
from .pictures import OVERLAYS, drawn, overlaid, picture_of, png_of
from .warps import corners, transform

if TYPE_CHECKING:
    from .problem import AlignmentProblem

Array = NDArray[np.float64]
_KINK = 0.05
"""Step of a corner, in pixels, that may be left at a kink: measured a few thousandths for shifts by whole pixels."""
_PART_OF_A_CELL = 0.1
"""Movement of the corners, in pixels to both sides, over which the curvature of the cost is measured."""
_AT_A_KINK = "Converged: no step lowers the cost; the minimum lies where pixel centres meet pixel centres."


@dataclass(frozen=True)
class Level:
    """One solve: a level of the pyramid, from coarse to fine."""

    level: int
    """0 is the full resolution, each further level halves it."""
    shape: tuple[int, int]
    """Rows and columns of image 1 at this level."""
    model: str
    result: Result
    matrix: Array
    """(3, 3) in pixels of the full resolution, at the end of this level."""


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The warp that maps pixels of image 1 to pixels of image 2, pixel centres at integers.

    Examples
    --------
    >>> import problm
    >>> scene = np.add.outer(np.cos(np.arange(120) / 9), np.sin(np.arange(160) / 7))
    >>> problm.align(scene[2:, 5:], scene[:-2, :-5], "translation").matrix[:2, 2].round(1)
    array([5., 2.])
    """

    matrix: Array
    """(3, 3), last entry 1: ``(u, v, 1) ~ matrix @ (x, y, 1)``."""
    model: str
    gain: float
    """``gain I2 + bias`` fits image 1, in units of the images' values (0 to 1 for integers)."""
    bias: float
    photometric: bool
    """Whether gain and bias were estimated; else they are 1 and 0."""
    ncc: float
    """Normalised cross-correlation of the images in the overlap, on up to 20,000 pixels."""
    detail: float
    """The same about the means of tiles of a sixteenth of the image, on a copy of at most 33,000 pixels: whether the
    fine structure agrees, too."""
    levels: tuple[Level, ...]
    """The solves, coarse to fine; the last one is on the full resolution."""
    start: str
    """Start of the search, as text."""
    seconds: float
    problem: AlignmentProblem = field(repr=False)
    theta: Array = field(repr=False)

    @property
    def result(self) -> Result:
        """The solver's result at the full resolution."""
        return self.levels[-1].result

    @property
    def cost(self) -> float:
        """Half the sum of (robustified) squared residuals at the full resolution."""
        return self.result.cost

    @property
    def status(self) -> int:
        """The solver's status at the full resolution; positive where it converged."""
        return int(self.result.status)

    @property
    def success(self) -> bool:
        """Whether the solver converged to a warp that is believed: the images correlate (0.7 or more), most parts are
        where it puts them, and nothing is mirrored, behind the camera or a negative."""
        return (self.result.success or self.at_a_kink) and self.doubt is None

    @cached_property
    def doubt(self) -> str | None:
        """Why the warp is not believed, whatever the solver says; None: it is."""
        reason = reason_to_doubt(self.matrix, self.problem.image1.shape, self.gain, self.ncc, self.detail)
        return reason or (reason_in_parts(*self._both) if self.parallax > PARALLAX else None)

    @property
    def _both(self) -> tuple[Any, Any, Any]:
        """Image 1, image 2 as image 1 sees it, and where both are known."""
        image = self.problem.image1
        return image.values(), self._seen[0].reshape(image.pixels.shape), self.inside

    @cached_property
    def parallax(self) -> float:
        """Motion that the warp leaves, in pixels: root mean square over parts of image 1 (`residual_motion`)."""
        return residual_motion(*self._both)

    @cached_property
    def motion_left(self) -> str | None:
        """What is said of parallax; None where there is little."""
        return said_of_motion(self.parallax, *self._both)

    @cached_property
    def at_a_kink(self) -> bool:
        """Whether the minimum lies at a kink: no step lowers the cost, yet the gradient does not vanish.

        The bilinear interpolant has kinks at the pixel centres, so images shifted by whole pixels end there. The
        Gauss-Newton step must be small; otherwise the solve has failed.
        """
        if self.result.status != Status.STALLED or not self.result.complete:
            return False
        step = np.linalg.lstsq(self.result.hessian, -self.result.grad)[0]
        return bool(np.abs(self._corner_jacobian @ step).max() < _KINK)

    @property
    def message(self) -> str:
        """The outcome in a sentence."""
        told = _AT_A_KINK if self.at_a_kink else self.result.message
        if self.doubt is None:
            return f"{told} {self.motion_left}" if self.motion_left else told
        return (
            f"{told} But {self.doubt}, so they are probably not aligned; try a matrix near the solution as initial, "
            "another model, a mask, or a robust loss."
        )

    @cached_property
    def corner_errors(self) -> Array:
        """(4,) standard error in pixels of the four corners of image 1 as mapped, from `covariance`."""
        jacobian = self._corner_jacobian
        spread = np.einsum("ij,jk,ik->i", jacobian, self.covariance, jacobian)
        return np.sqrt(np.maximum(spread.reshape(4, 2).sum(axis=1), 0.0))

    @cached_property
    def covariance(self) -> Array:
        """(d, d) covariance of the parameters of the warp, and of gain and bias if they were estimated; nan where it is
        not known.

        It is estimated from the residuals as they are, over regions of image 1 (`problm.solver.regional`): it covers
        noise, also of pixels that blur and interpolation correlate, and deviations from the warp that change within
        regions of about a sixth of the image's side (parallax of many small things). It does not cover what a change of
        the warp imitates or what shifts half of the image one way, such as one large object at another depth.
        """
        problem, jacobian = self.problem, self._corner_jacobian
        unknown = np.full((problem.dim, problem.dim), np.nan)
        root, regular = inverse_root(self.result.hessian)
        if not regular:
            return unknown
        # The cost has kinks where pixels cross into the next cell: its curvature is that over a part of a cell.
        step = max(_PART_OF_A_CELL / float(np.abs(jacobian @ root).max()), self.result.cost**0.5 * 1e-12)
        pixels = problem.data.columns[0]
        points = np.stack(np.divmod(pixels, problem.image1.shape[1]), axis=1).astype(np.float32)
        covariance = regional_covariance(problem, self.theta, points, step)
        return unknown if covariance is None else covariance * self.result.batch_factor

    @cached_property
    def _corner_jacobian(self) -> Array:
        """(8, d) derivatives of the mapped corners of image 1 with respect to a step of the parameters."""
        problem = self.problem
        at, d = corners(problem.image1.shape), problem.dim
        jacobian = np.empty((8, d))
        for j in range(d):
            step = np.zeros(d)
            step[j] = 1e-6
            ahead, behind = (problem.matrix(problem.retract(self.theta, s * step)) for s in (1.0, -1.0))
            jacobian[:, j] = (transform(ahead, at) - transform(behind, at)).reshape(8) / 2e-6
        return jacobian

    @cached_property
    def _seen(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        h, w = self.problem.image1.shape
        return self.problem.look_up(self.theta, np.arange(h * w, dtype=np.int32))

    @cached_property
    def inside(self) -> Mask:
        """(rows, columns) of image 1: where a used pixel falls into the used part of image 2."""
        image1, image2 = self.problem.image1, self.problem.image2
        used = np.ones(image2.shape, dtype=np.float32) if image2.valid is None else image2.valid.astype(np.float32)
        seen, inside = resample(used, self.matrix, image1.shape, 0.0)
        if image2.valid is not None:
            inside &= seen > 0.999  # all four pixels that the value there is made of
        return inside if image1.valid is None else inside & image1.valid

    @cached_property
    def overlap(self) -> float:
        """Share of the used pixels of image 1 that fall into the used part of image 2."""
        valid = self.problem.image1.valid
        return float(self.inside.mean() if valid is None else self.inside[valid].mean())

    @cached_property
    def residuals(self) -> NDArray[np.float32]:
        """(rows, columns), or (rows, columns, 3): ``gain I2(warp(x)) + bias - I1(x)``, NaN outside the overlap."""
        image = self.problem.image1
        difference = self._seen[0].reshape(image.pixels.shape) - image.values()
        outside = ~self.inside if difference.ndim == 2 else ~self.inside[:, :, None]
        return np.where(outside, np.float32(np.nan), difference)

    @cached_property
    def inliers(self) -> Mask:
        """(rows, columns): pixels of the overlap whose residual is below 2.5 robust standard deviations."""
        norms = np.abs(self.residuals) if self.residuals.ndim == 2 else np.sqrt((self.residuals**2).sum(axis=2))
        if not self.inside.any():
            return np.zeros(self.inside.shape, dtype=np.bool_)
        limit = 2.5 * 1.4826 * float(np.median(norms[self.inside]))
        with np.errstate(invalid="ignore"):
            return np.asarray(norms <= limit, dtype=np.bool_)

    def map(self, points: Any) -> Array:
        """Points (k, 2) x, y of image 1 in image 2."""
        return transform(self.matrix, points)

    def warp(self, image: Source | None = None, *, inverse: bool = False, fill: float | None = None) -> NDArray[Any]:
        """Image 2 as image 1 sees it.

        Parameters
        ----------
        image : resampled instead of image 2 (of its size, any type and number of channels). Image 2 as it was
            aligned (grey, unless colour was asked for) if not given.
        inverse : bring image 1, or an image of its size, to the frame of image 2 instead.
        fill : value outside the image; None: NaN for floats, 0 for integers.

        Returns
        -------
        (rows, columns) or (rows, columns, channels) of the type of ``image``.
        """
        source, target = self.problem.image2, self.problem.image1
        matrix = self.matrix
        if inverse:
            source, target = target, source
            matrix = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        pixels = source.values() if image is None else pixels_of(image, "image")
        if pixels.shape[:2] != source.shape:
            raise ValueError(
                f"image must have the size {source.shape} of image {1 if inverse else 2}, got {pixels.shape[:2]}; "
                "resize it, or pass the image that was aligned"
            )
        return resample(pixels, matrix, target.shape, fill)[0]

    def overlay(
        self, kind: str = "checkerboard", image1: Source | None = None, image2: Source | None = None, *, tiles: int = 8
    ) -> NDArray[np.uint8]:
        """Both images in the frame of image 1, as one picture (rows, columns, 3), uint8.

        Parameters
        ----------
        kind : ``"checkerboard"`` (alternating tiles: lines must continue across them), ``"red-cyan"`` (grey where they
            agree), ``"blend"`` (the mean) or ``"difference"`` (grey where they agree).
        image1, image2 : shown instead of the images that were aligned, for example in colour.
        tiles : number of tiles of the checkerboard along the longer side.
        """
        if kind not in OVERLAYS:
            raise ValueError(f"kind={kind!r} is not known; choose one of {', '.join(OVERLAYS)}")
        first = picture_of(self.problem.image1 if image1 is None else pixels_of(image1, "image1"))
        warped = self.warp(image2)
        if image2 is None and self.photometric:
            warped = self.gain * warped + self.bias
        inside = resample(np.ones(self.problem.image2.shape, dtype=np.float32), self.matrix, first.shape[:2], 0.0)[1]
        second = picture_of(np.nan_to_num(warped) if warped.dtype.kind == "f" else warped)
        return overlaid(first, second, inside, kind, tiles)

    def plot(self) -> Any:
        """Plot both images, checkerboard and residuals; return a Matplotlib figure (needs the extra ``plot``)."""
        residuals = self.residuals if self.residuals.ndim == 2 else self.residuals.mean(axis=2)
        shown = {
            "image 1": picture_of(self.problem.image1),
            "image 2 warped": picture_of(np.nan_to_num(self.warp())),
            "checkerboard": self.overlay(),
        }
        return drawn(shown, residuals, f"residuals, correlation {self.ncc:.3f}")

    def report(self) -> str:
        """Return a page of text: outcome, matrix, work done."""
        rows = [f"    {'  '.join(f'{v:14.8g}' for v in row)}" for row in self.matrix]
        lines = [
            f"Alignment, {self.model}: {self.message}",
            "  matrix (pixels of image 1 to pixels of image 2):",
            *rows,
            f"  overlap       {100 * self.overlap:.1f} % of image 1",
            f"  correlation   {self.ncc:.4f}, of the fine structure {self.detail:.4f}",
            f"  corners       standard error {self.corner_errors.mean():.2g} pixels",
        ]
        if self.photometric:
            lines.append(f"  photometric   gain {self.gain:.4f}, bias {self.bias:+.4f}")
        lines += [f"  start         {self.start}", f"  time          {self.seconds:.3g} s"]
        for level in self.levels:
            r = level.result
            lines.append(
                f"    {level.shape[1]:5d} x {level.shape[0]:<5d} {level.model:<12s} {r.nit:3d} iterations, "
                f"{r.residual_passes:.1f} residual and {r.jacobian_passes:.1f} Jacobian passes, {r.seconds:.3g} s"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and text, ready for JSON."""
        return {
            "matrix": self.matrix.tolist(),
            "model": self.model,
            "convention": "maps pixels of image 1 to pixels of image 2, pixel centres at integers",
            "success": self.success,
            "status": self.result.status.name,
            "message": self.message,
            "gain": self.gain,
            "bias": self.bias,
            "overlap": self.overlap,
            "ncc": self.ncc,
            "detail": self.detail,
            "parallax": self.parallax,
            "corner_standard_error": [v if math.isfinite(v) else None for v in self.corner_errors.tolist()],
            "cost": self.cost,
            "pixels": self.result.n,
            "start": self.start,
            "seconds": self.seconds,
            "image1_size": list(self.problem.image1.shape[::-1]),
            "image2_size": list(self.problem.image2.shape[::-1]),
            "levels": [
                {
                    "level": level.level,
                    "size": list(level.shape[::-1]),
                    "model": level.model,
                    "status": level.result.status.name,
                    "iterations": level.result.nit,
                    "residual_passes": level.result.residual_passes,
                    "jacobian_passes": level.result.jacobian_passes,
                    "seconds": level.result.seconds,
                }
                for level in self.levels
            ],
        }

    def save(
        self, folder: str | os.PathLike[str], image1: Source | None = None, image2: Source | None = None,
        *, overlay: str = "checkerboard",
    ) -> list[Path]:  # fmt: skip
        """Write the warp, the aligned image and an overlay into a folder, which is created if necessary.

        Files: ``warp.json`` (everything in `to_dict`), ``warp.txt`` (only the matrix, three rows),
        ``aligned.png`` (image 2 as image 1 sees it) and ``overlay.png``. Files are written completely or not at all.

        Parameters
        ----------
        folder : output folder.
        image1, image2 : the originals, for pictures in colour; the images as they were aligned if not given.
        overlay : kind of the overlay, see `overlay`.

        Returns
        -------
        The paths, in the order above.
        """
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise ValueError(f"folder: {str(target)!r} is a file; pass the name of a folder")
        aligned = self.warp(image2, fill=0.0)
        contents: list[tuple[str, str | bytes]] = [
            ("warp.json", json.dumps(self.to_dict(), indent=2) + "\n"),
            ("warp.txt", "\n".join(" ".join(f"{v:.17g}" for v in row) for row in self.matrix) + "\n"),
            ("aligned.png", png_of(picture_of(aligned))),
            ("overlay.png", png_of(self.overlay(overlay, image1, image2))),
        ]
        target.mkdir(parents=True, exist_ok=True)
        for name, content in contents:
            write_atomically(target / name, content)
        return [target / name for name, _ in contents]

    def __str__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        from ...report.page import listing, picture

        text = listing(self.report())
        shown = self.overlay("red-cyan")
        step = -(-max(shown.shape[:2]) // 640)  # notebooks store the pictures that they show
        try:
            content = png_of(np.ascontiguousarray(shown[::step, ::step]))
        except ImportError:
            return text
        return text + picture(content, "Image 1 in red, image 2 in cyan: grey where they agree")
