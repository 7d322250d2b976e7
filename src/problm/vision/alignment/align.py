r"""Dense alignment of two images: one call.

The warp that minimises the sum over the pixels of image 1 of ``loss(gain I2(warp(x)) + bias - I1(x))`` is searched from
coarse to fine (`problm.vision.alignment.search`); every level is one call of the solver. Convergence at the finest
level is declared on all pixels, from the exact gradient: by default when the remaining step is below half a standard
error of the parameters (``gtol = 0.5 / sqrt(N)``), a few thousandths of a pixel; a smaller ``gtol``, such as 1e-6, is
rarely meaningful.

Both images are blurred a little by default. Bilinear interpolation smooths image 2 most half-way between pixels, so
unblurred noise pulls the warp towards such places, and the cost has a kink wherever a pixel crosses into the next cell.
A Gaussian of 0.7 pixels removes most of both: measured on warped photographs with noise it halves the error of the
corners and the number of passes, while more blur costs accuracy again.
"""

from __future__ import annotations

import math
import time
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...losses import LOSSES, Loss, as_loss
from ...sampling.order import as_generator
from ...solver.options import Options
from ...support.suggest import suggest
from ..images.contrast import local_contrast
from ..images.image import Source, read_image
from ..images.pyramid import blur as blurred
from ..images.pyramid import deepest
from .levels import Levels
from .result import Alignment
from .search import COARSEST_SIDE, Search
from .warps import MODELS, as_matrix

LINEARIZATIONS = ("forward", "esm")
STARTS = ("phase", "features", "auto")
DEFAULT_BLUR = 0.7


def align(
    image1: Source,
    image2: Source,
    model: str = "homography",
    *,
    initial: ArrayLike | str | None = "auto",
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    levels: int | str = "auto",
    loss: str | Loss = "linear",
    f_scale: float | None = None,
    photometric: bool | str = "auto",
    color: bool = False,
    blur: float = DEFAULT_BLUR,
    linearization: str = "esm",
    secant: bool = True,
    outside: float | None = None,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> Alignment:
    """Find the warp that maps image 1 onto image 2.

    Parameters
    ----------
    image1, image2 : arrays (rows, columns) or (rows, columns, 3), PIL images or paths; sizes may differ. Integers
        are scaled to 0..1, floats are taken as they are. Pixels that are NaN, masked or transparent are ignored.
    model : ``"translation"``, ``"euclidean"``, ``"similarity"``, ``"affine"``, ``"homography"`` (last entry 1) or
        ``"sl3"`` (homography with determinant 1).
    initial : start of the search: ``"auto"`` (the identity, then the others if the images do not fit), a 3x3 matrix
        that maps pixels of image 1 to pixels of image 2, ``"phase"`` (phase correlation), ``"features"`` (SIFT and a
        robust homography, extra ``vision``), or None (the identity alone).
    mask1, mask2 : (rows, columns), true where a pixel is used.
    levels : levels of the pyramid, 1 for none, or ``"auto"``: as many as the start needs.
    loss : robust loss on a pixel's residual, for occlusion and parallax (see `problm.losses.LOSSES`).
    f_scale : its scale in units of the images' values (0 to 1 for integers); None: from the residuals' spread.
    photometric : whether a gain and a bias of image 2 are estimated too; ``"auto"``: where contrast or brightness
        differ noticeably at the start; ``"local"``: both images are normalised by their local mean and contrast, so
        that light may differ from place to place (vignetting, a lamp on one side).
    color : use three channels instead of grey, if both images have them.
    blur : standard deviation, in pixels, of a Gaussian blur of both images; 0 for none.
    linearization : on batches, which are used if ``acceptance`` asks for them: ``"esm"`` (gradients of both images
        averaged, as in the paper) or ``"forward"`` (the exact gradient, as for all pixels).
    secant : correct the Gauss-Newton matrix over all pixels by the curvature that the steps reveal
        (`problm.problems.secant`); on scenes with parallax that saves most iterations. False: plain Gauss-Newton.
    outside : residual of a pixel that falls outside image 2; None: that of the average pixel inside at the start.
    threads : number of threads; None: all cores.
    rng : random seed or Generator for the order of the pixels.
    **options : options of the solver: ``acceptance``, ``ftol``, ``gtol``, ``max_iter``, ``max_time``, ``callback``, ...
        (`problm.solver.options.Options`); they apply to the full resolution, ``acceptance`` and ``max_time`` to all
        levels.

    Returns
    -------
    Alignment
        with ``matrix``, ``success``, ``warp()``, ``overlay()``, ``plot()``, ``save()``. Non-convergence never raises:
        ``success`` and ``message`` say how it ended.

    Examples
    --------
    >>> y, x = np.mgrid[0:120, 0:160]
    >>> scene = lambda x, y: np.sin(x / 7) + np.cos(y / 9 + x / 30) + 0.01 * x
    >>> alignment = align(scene(x, y), scene(x - 2.5, y + 1.25), model="translation")
    >>> alignment.success, alignment.matrix[:2, 2].round(2)
    (True, array([ 2.5 , -1.25]))
    """
    began = time.perf_counter()
    _check(model, levels, loss, f_scale, photometric, blur, linearization, outside, initial, threads, rng, options)
    first = read_image(image1, "image1", mask1, color=color)
    second = read_image(image2, "image2", mask2, color=color)
    if first.channels != second.channels:
        first = read_image(image1, "image1", mask1)
        second = read_image(image2, "image2", mask2)
    if photometric == "local":
        first, second, photometric = local_contrast(first), local_contrast(second), False
    most = deepest(first.shape, second.shape, 8)
    if levels != "auto" and int(levels) > most:
        raise ValueError(f"levels={levels!r} is too deep: these images allow {most}; pass fewer, or 'auto'")
    pyramid = Levels(
        blurred(first, blur),
        blurred(second, blur),
        model,
        loss=as_loss(loss, f_scale or 1.0),
        scaled=isinstance(loss, Loss) or f_scale is not None,
        linearization=linearization,
        secant=secant,
        outside=outside,
        threads=threads,
        rng=rng,
        options=options,
        began=began,
    )
    depth = deepest(first.shape, second.shape, COARSEST_SIDE) if levels == "auto" else int(levels)
    start = initial if initial is None or isinstance(initial, str) else as_matrix(initial)
    return Search(pyramid, photometric).run(start, depth, levels == "auto")


def _check(
    model: str,
    levels: int | str,
    loss: str | Loss,
    f_scale: float | None,
    photometric: bool | str,
    blur: float,
    linearization: str,
    outside: float | None,
    initial: Any,
    threads: int | None,
    rng: Any,
    options: dict[str, Any],
) -> None:
    """Check all arguments before any work."""
    _choice("model", model, MODELS)
    _choice("linearization", linearization, LINEARIZATIONS)
    if isinstance(photometric, str):
        _choice("photometric", photometric, ("auto", "local"), "True, False, 'auto' or 'local'")
    if isinstance(initial, str):
        _choice("initial", initial, STARTS, "None, a 3x3 matrix, 'phase', 'features' or 'auto'")
    elif initial is not None:
        as_matrix(initial)
    if isinstance(levels, str):
        _choice("levels", levels, ("auto",), "a whole number from 1, or 'auto'")
    elif isinstance(levels, bool) or not isinstance(levels, Real) or int(levels) != levels or levels < 1:
        raise ValueError(f"levels must be a whole number from 1, or 'auto', got {levels!r}")
    if not (isinstance(blur, Real) and 0.0 <= blur <= 100.0):
        raise ValueError(f"blur must be a standard deviation from 0 to 100 pixels, got {blur!r}")
    if outside is not None and not (isinstance(outside, Real) and 0.0 <= outside < math.inf):
        raise ValueError(f"outside must be a residual from 0, or None, got {outside!r}")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, Integral) or threads < 1):
        raise ValueError(f"threads must be a whole number from 1, or None for all cores, got {threads!r}")
    if not isinstance(rng, (int, np.integer, np.random.Generator)):
        as_generator(rng)
    if not isinstance(loss, (str, Loss)) or (isinstance(loss, Loss) and loss.name not in LOSSES):
        raise TypeError(f"loss must be one of {', '.join(LOSSES)}: the pixels are evaluated by compiled code")
    as_loss(loss, 1.0 if f_scale is None else f_scale)
    Options.of_several(**options)


def _choice(name: str, value: object, choices: tuple[str, ...], expected: str | None = None) -> None:
    if value not in choices:
        wanted = expected or "one of " + ", ".join(choices)
        raise ValueError(f"{name}={value!r} is not known{suggest(value, choices)}; choose {wanted}")
