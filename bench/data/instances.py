"""Cases as problems of the solver: curves, two views, image pairs, affine bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from problm.losses import Loss
from problm.problems.numpy_function import FunctionProblem
from problm.solver.problem import Problem, Wrapper

from ..harness.methods import LINEAR, Flat, Solvable
from .problems import Made
from .stand_ins import Matches, Tracks

Array = NDArray[np.float64]


def curve(made: Made) -> Solvable:
    """A problem of `bench.data.problems` with residuals computed by NumPy."""
    dim = int(made.manifold.dim) if made.manifold is not None else len(made.starts[0])
    retract = made.manifold.retract if made.manifold is not None else None

    def problem(seed: int, loss: Loss) -> Problem:
        return FunctionProblem(made.fun, made.jac, made.data, dim, loss, retract=retract, rng=seed)

    return Solvable(problem, made.starts, extra=made)


FORMULAS = {
    "exponential": "a * exp(-b * x) + c",
    "double Gaussian + line": "a1 * exp(-0.5 * ((x - m1) / s1)**2) + a2 * exp(-0.5 * ((x - m2) / s2)**2) + c + d * x",
    "damped sine, heavy tails": "a * exp(-b * x) * sin(w * x + p) + c",
}
"""The curves of `bench.data.problems` as users write them, parameters in the same order."""


def compiled_curve(made: Made) -> Solvable:
    """The same curve as a formula, evaluated by the compiled kernels on one thread."""
    import problm
    from problm.problems.compiled import CompiledProblem

    model = problm.formula(FORMULAS[made.name])

    def problem(seed: int, loss: Loss) -> Problem:
        kernel = model.curve_kernel(1, len(model.parameters), None, loss, 1)
        return CompiledProblem(kernel, list(made.data), rng=seed)

    return Solvable(problem, made.starts, extra=made)


def random_poses(rng: np.random.Generator, count: int) -> list[Array]:
    """Random essential matrices as points (R, t), uniform on the manifold."""
    from scipy.spatial.transform import Rotation

    rotations = Rotation.random(count, rng).as_matrix().reshape(count, 9)
    directions = rng.standard_normal((count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return list(np.concatenate([rotations, directions], axis=1))


def poses_near(rng: np.random.Generator, R: Array, t: Array, count: int, angle: float, tilt: float) -> list[Array]:
    """Poses turned by ``angle`` about random axes, with the direction ``tilt`` radians off."""
    from problm.manifolds import essential_point, move_essential

    truth = essential_point(R, t)
    found = []
    for _ in range(count):
        w, v = rng.standard_normal(3), rng.standard_normal(2)
        step = np.concatenate([angle * w / np.linalg.norm(w), tilt * v / np.linalg.norm(v)])
        found.append(np.asarray(move_essential(truth, step)))
    return found


def essential(matches: Matches, starts: Sequence[Array], *, tau: float | None = None, levels: int = 5) -> Solvable:
    """Sampson error in normalised coordinates, as in the paper; with ``tau`` the smooth truncated kernel and GNC."""
    from problm.vision.two_view.kernels import pose_from_angles
    from problm.vision.two_view.models import ESSENTIAL, ESSENTIAL_ANGLES, Frame, angles_from_pose, two_view_problem

    columns = normalised(matches)
    frame = Frame(np.eye(3), np.eye(3))
    loss = LINEAR if tau is None else Loss.named("truncated", tau)

    def problem(seed: int, loss: Loss) -> Problem:
        return two_view_problem(ESSENTIAL, columns, frame, loss, rng=seed)

    def with_angles(seed: int, loss: Loss) -> Problem:
        return two_view_problem(ESSENTIAL_ANGLES, columns, frame, loss, rng=seed)

    flat = Flat(with_angles, lambda p: angles_from_pose(p[:9].reshape(3, 3), p[9:12]), pose_from_angles)
    return Solvable(problem, starts, loss, 1 if tau is None else levels, flat, extra=matches)


def normalised(matches: Matches) -> list[NDArray[Any]]:
    """Columns x1 y1 x2 y2 of the matches as rays."""
    inverse = np.linalg.inv(matches.K)
    rays = [x @ inverse[:2, :2].T + inverse[:2, 2] for x in (matches.x1, matches.x2)]
    return [np.ascontiguousarray(r[:, k]) for r in rays for k in range(2)]


class _Matrix(Wrapper):
    """An alignment problem whose points are the eight free entries of the matrix."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)

    @staticmethod
    def point(x: Array) -> Array:
        return np.concatenate([x, [1.0, 1.0, 0.0]])

    def linearize(self, x: Array, lo: int, hi: int, **options: Any) -> Any:
        return self.inner.linearize(self.point(x), lo, hi, **options)


def alignment(first: Any, second: Any, plane: Array, starts: Sequence[Array], linearization: str = "esm") -> Solvable:
    """Photometric error of a homography, from starts in pixels; the cost of pixels outside is that of the average pixel
    inside under the warp ``plane``.

    Batches use the averaged gradients of the paper (ESM), all pixels together the exact gradient, so that LM uses it
    throughout. With ``"esm-everywhere"``, LM averages, too. L-BFGS always gets the exact gradient: its line search
    needs it.
    """
    from problm.vision.alignment.problem import AlignmentProblem
    from problm.vision.images.image import read_image

    image1, image2 = read_image(first, "image1"), read_image(second, "image2")
    probe = AlignmentProblem(image1, image2, threads=1)
    outside = probe.sample(probe.point(plane)).outside_level(LINEAR)

    def problem(seed: int, loss: Loss) -> Problem:
        return AlignmentProblem(
            image1, image2, linearization=linearization, loss=loss, outside=outside, threads=1, rng=seed
        )

    def exact(seed: int, loss: Loss) -> Problem:
        return AlignmentProblem(image1, image2, loss=loss, outside=outside, threads=1, rng=seed)

    flat = Flat(lambda seed, loss: _Matrix(exact(seed, loss)), lambda p: p[:8] / p[8], _Matrix.point)  # type: ignore[arg-type,return-value]
    instance = Solvable(problem, [probe.point(start) for start in starts], flat=flat)
    instance.extra = {"image1": image1, "image2": image2, "problem": probe}
    return instance


def bundle(tracks: Tracks, starts: int = 1) -> Solvable:
    """Weak-perspective bundle adjustment with eliminated points: one block per point, evaluated in every pass as in the
    paper. The starts after the first move the cameras of the first once more, by 0.05 rad and a twentieth of the mean
    depth."""
    from scipy.spatial.transform import Rotation

    from problm.vision.bundle.affine import AffineProblem

    begin = []
    for k in range(starts):
        rng = np.random.default_rng(k)
        turn = Rotation.from_rotvec(rng.normal(0.0, 0.05 * (k > 0), (len(tracks.rotations), 3))).as_matrix()
        shift = rng.normal(0.0, 0.05 * (k > 0) * np.abs(tracks.depths).mean(), (len(turn), 2))
        begin.append(np.concatenate([(turn @ tracks.rotations).ravel(), (tracks.translations[:, :2] + shift).ravel()]))

    def problem(seed: int, loss: Loss) -> Problem:
        return AffineProblem(tracks.observations, tracks.depths, loss=loss, moments=False, threads=1, rng=seed)

    made = problem(0, LINEAR)
    return Solvable(problem, [made.retract(start, np.zeros(made.dim)) for start in begin], extra=tracks)
