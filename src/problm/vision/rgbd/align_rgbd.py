"""`align_rgbd`: the rigid motion between two views, from all pixels of the first that have a depth."""

from __future__ import annotations

import time
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...losses import LOSSES
from ...solver.options import Options
from ...solver.result import Result, Status
from ...support.suggest import suggest
from ..images.image import Image, Source, read_image
from ..images.pyramid import blur as blurred
from ..images.pyramid import deepest
from ..registration.register import as_start
from ..two_view.matches import check_intrinsics
from .result import RgbdMotion
from .stages import Setup, descend
from .trust import MOST_ROWS, Judgement, inliers_of, judge
from .views import Plane, Views, pyramid

Array = NDArray[np.float64]
_COARSEST_SIDE = 12
_LEAST_ROWS = 100


def align_rgbd(
    image1: Source,
    depth1: ArrayLike,
    image2: Source,
    K: ArrayLike,
    depth2: ArrayLike | None = None,
    *,
    initial: Any = None,
    mask1: ArrayLike | None = None,
    mask2: ArrayLike | None = None,
    levels: int | str = "auto",
    loss: str = "tukey",
    photometric: bool = True,
    blur: float = 0.7,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> RgbdMotion:
    """Find the motion between two views of a static scene, ``X2 = R X1 + t``.

    Every pixel of image 1 with a depth is a point in space. The pose is searched under which image 2 shows the same
    value at its projection (and depth map 2, if given, its distance), from coarse to fine, with a robust loss whose
    scale is found from the data.

    Parameters
    ----------
    image1, image2 : arrays (rows, columns) or (rows, columns, 3), PIL images or paths. Integers are scaled to 0..1,
        floats are taken as they are. Colour is converted to grey.
    depth1 : (rows, columns) distance of the pixels of image 1 from the plane of camera 1, in any unit of length. Pixels
        without a depth are 0, negative or not finite; they are ignored.
    K : (3, 3) camera matrix of both images, in pixels, or (fx, fy, cx, cy); images without lens distortion.
    depth2 : the same for image 2, if its depth is to be compared as well.
    initial : start: None (no motion), a (4, 4) matrix, ``(R, t)`` or an earlier result.
    mask1, mask2 : (rows, columns), true where a pixel is used.
    levels : levels of the pyramid, 1 for none, or ``"auto"``.
    loss : name of a robust loss, for occlusion and moving things; ``"linear"`` for least squares.
    photometric : whether a gain and a bias of image 2 are estimated too.
    blur : standard deviation, in pixels, of a Gaussian blur of both images; 0 for none.
    threads : number of threads; None: all cores.
    rng : random seed or Generator for the order of the pixels, if ``acceptance`` asks for batches.
    **options : options of the solver (`problm.Options`) at the full resolution, e.g. ``max_time``, ``callback``.

    Returns
    -------
    RgbdMotion. Its ``status`` is ``"ok"``, ``"degenerate"`` (the views do not determine the directions
    ``undetermined``, as for a wall with stripes), ``"no fit"`` (they do not show the same, hardly overlap, or the start
    was too far away) or ``"not converged"``.

    Examples
    --------
    >>> from problm.vision.rgbd.simulate import two_frames
    >>> frames = two_frames(angle=2.0, shift=0.03, seed=1)
    >>> found = align_rgbd(frames.image1, frames.depth1, frames.image2, frames.K)
    >>> found.status, bool(found.rotation_error(frames.R) < 0.1), bool(found.translation_error(frames.t) < 0.005)
    ('ok', True, True)
    """
    began = time.perf_counter()
    _check(levels, loss, photometric, blur, threads, options)
    R, t = as_start((initial.R, initial.t) if isinstance(initial, RgbdMotion) else initial)
    camera = check_intrinsics(K, "K")
    first, second = read_image(image1, "image1", mask1), read_image(image2, "image2", mask2)
    near = _depth(depth1, "depth1", first)
    far = None if depth2 is None else _depth(depth2, "depth2", second)
    used = near > 0.0 if first.valid is None else (near > 0.0) & first.valid
    if used.sum() < _LEAST_ROWS:
        raise ValueError(
            f"depth1: {int(used.sum())} pixels of image1 have a depth and are not masked; at least {_LEAST_ROWS} are "
            "needed (unknown depth is 0, negative or NaN)"
        )
    unit = float(np.median(near[used]))
    most = deepest(first.shape, second.shape, _COARSEST_SIDE)
    views = Views(
        blurred(first, blur), (near / unit).astype(np.float32), blurred(second, blur),
        None if far is None else (far / unit).astype(np.float32), camera,
    )  # fmt: skip
    found = pyramid(views, most if isinstance(levels, str) else min(int(levels), most), _LEAST_ROWS)
    setup = Setup(loss, photometric, threads, rng, options, began)
    result, problem = descend(found, np.concatenate([R.ravel(), t / unit]), setup)
    judged = next((v for v in found if len(v.rows) <= MOST_ROWS), found[-1])
    judgement = judge(setup.problem(judged, result.x), result.x)
    agree = np.zeros(near.size, dtype=np.bool_)
    inside, good, _ = inliers_of(problem, result.x)
    agree[views.rows] = good
    status, message = _verdict(result, judgement)
    gain, bias = result.x[12:].tolist() if photometric else (1.0, 0.0)
    return RgbdMotion(
        R=result.x[:9].reshape(3, 3).copy(), t=unit * result.x[9:12], gain=gain, bias=bias, noise=problem.noise[0],
        depth_noise=unit * problem.noise[1] if far is not None else float("nan"), overlap=float(inside.mean()),
        correlation=judgement.correlation, inliers=agree.reshape(near.shape), status=status, message=message,
        undetermined=judgement.weak, result=result, problem=problem, unit=unit, seconds=time.perf_counter() - began,
    )  # fmt: skip


def _verdict(result: Result, judgement: Judgement) -> tuple[str, str]:
    """Status and message."""
    # At a kink of the interpolated image no step lowers the cost, though the gradient does not vanish.
    at_a_kink = result.status == Status.STALLED and result.distance < 1.0
    if not (result.success or at_a_kink):
        return "not converged", result.message
    if why := judgement.misfit:
        return "no fit", f"The views do not fit: {why}. Start nearer (initial=), or give views that overlap."
    if len(judgement.weak):
        return "degenerate", (
            f"The views do not determine {len(judgement.weak)} of 6 directions: there is too little texture or relief "
            "along them."
        )
    return "ok", f"{100.0 * judgement.share:.0f} % of the pixels that both views show agree."


def _check(levels: int | str, loss: str, photometric: bool, blur: float, threads: int | None, options: Any) -> None:
    """Check all arguments but the views before any work."""
    whole = isinstance(levels, Integral) and not isinstance(levels, bool) and int(levels) >= 1
    if not (whole or levels == "auto"):
        raise ValueError(f"levels must be a whole number from 1, or 'auto', got {levels!r}")
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known{suggest(loss, LOSSES)}; choose one of {', '.join(LOSSES)}")
    if not isinstance(photometric, (bool, np.bool_)):
        raise ValueError(f"photometric must be True or False, got {photometric!r}")
    if not (isinstance(blur, Real) and 0.0 <= blur <= 100.0):
        raise ValueError(f"blur must be a standard deviation from 0 to 100 pixels, got {blur!r}")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, Integral) or threads < 1):
        raise ValueError(f"threads must be a whole number from 1, or None for all cores, got {threads!r}")
    Options.of_several(**options)


def _depth(depth: ArrayLike, name: str, image: Image) -> Plane:
    """A checked depth map, with 0 where depth is unknown."""
    plane = np.asarray(depth)
    if plane.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be an array of numbers, got {plane.dtype}")
    if plane.ndim == 3 and plane.shape[2] == 1:
        plane = plane[:, :, 0]
    if plane.shape != image.shape:
        raise ValueError(
            f"{name} must have the shape {image.shape} of image{name[-1]}, got {plane.shape}; register depth to colour"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        known = np.isfinite(plane) & (plane > 0)
    return np.where(known, plane, 0).astype(np.float32)
