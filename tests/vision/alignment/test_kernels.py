"""Compiled residuals of alignment: derivatives, border, lookups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from problm.losses import LOSSES, Loss
from problm.vision.alignment.kernels import warp_evaluator
from problm.vision.alignment.problem import AlignmentProblem
from problm.vision.alignment.warps import MODELS, transform
from problm.vision.images.image import Image

Array = NDArray[np.float64]
# No entry is a round number, so no pixel falls exactly on the edge of a cell, where the interpolant has a kink.
MATRIX = np.array([[1.05123, 0.05117, 4.3127], [-0.04129, 0.97311, -2.7131], [2.0117e-4, 1.0129e-4, 1.0]])


def texture(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    noise = np.stack([gaussian_filter(rng.normal(size=shape[:2]), 1.5) for _ in range(3)], axis=2)
    values = 0.5 + 0.6 * noise / noise.std()
    return (values if len(shape) == 3 else values[..., 0]).astype(np.float32)


def pair(color: bool = False, masked: bool = False, kind: str = "f4") -> tuple[Image, Image]:
    images = []
    for k, (h, w) in enumerate([(48, 64), (52, 70)]):
        values = texture((h, w, 3) if color else (h, w), k)
        unit = {"f4": 1.0, "u1": 1 / 255, "u2": 1 / 65535}[kind]
        stored = values if kind == "f4" else np.clip(np.rint(values / unit), 0, 1 / unit).astype(kind)
        valid = np.ones((h, w), dtype=bool)
        valid[10 + 5 * k : 20, 12:30] = False
        images.append(Image(np.ascontiguousarray(stored), unit, valid if masked else None))
    return images[0], images[1]


def rowwise(problem: AlignmentProblem, theta: Array) -> tuple[Array, Array]:
    """Residuals (n, p) and derivatives (n, p, d) straight from the evaluator."""
    kernel, n = problem.kernel, problem.n
    p, d = kernel.components, kernel.dim
    columns = np.column_stack([np.asarray(c, dtype=float).reshape(n, -1) for c in problem.data.columns]).T
    residuals, jacobian = np.empty((n, p)), np.empty((n, p, d))
    for lo in range(0, n, 128):
        m = min(128, n - lo)
        rows, out = np.zeros((len(columns), 128)), np.zeros((p * (1 + d), 128))
        rows[:, :m] = columns[:, lo : lo + m]
        warp_evaluator(theta, rows, m, kernel.program, kernel.constants, 1, out)
        residuals[lo : lo + m] = out[:p, :m].T
        jacobian[lo : lo + m] = out[p:, :m].T.reshape(m, p, d)
    return residuals, jacobian


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("photometric", [False, True])
@pytest.mark.parametrize(("color", "masked"), [(False, False), (True, False), (False, True), (True, True)])
def test_derivatives_of_every_row(model: str, photometric: bool, color: bool, masked: bool) -> None:
    problem = AlignmentProblem(*pair(color, masked), model, photometric=photometric, outside=0.3, threads=1)
    theta = problem.point(MATRIX, 1.13, -0.07)
    residuals, jacobian = rowwise(problem, theta)
    assert np.array_equal(residuals, problem.residuals(theta))
    step = 1e-7
    wrong = 0
    for j, delta in enumerate(np.eye(problem.dim) * step):
        ahead = problem.residuals(problem.retract(theta, delta))
        behind = problem.residuals(problem.retract(theta, -delta))
        numeric = (ahead - behind) / (2 * step)
        wrong += int((np.abs(numeric - jacobian[:, :, j]) > 1e-5 * (1 + np.abs(jacobian).max())).sum())
    # The step moves a pixel by about 3e-6 pixels: of some 3000 rows hardly any crosses into another cell.
    assert wrong <= 3


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_the_cost_for_every_loss(loss: str) -> None:
    problem = AlignmentProblem(
        *pair(), "homography", photometric=True, loss=Loss.named(loss, 0.4), outside=0.3, threads=1
    )
    theta = problem.point(MATRIX, 1.13, -0.07)
    normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    step = 1e-7
    numeric = [
        (problem.cost(problem.retract(theta, d)) - problem.cost(problem.retract(theta, -d))) / (2 * step)
        for d in np.eye(problem.dim) * step
    ]
    np.testing.assert_allclose(normal.gradient, numeric, rtol=2e-4, atol=2e-4 * np.abs(numeric).max())


def test_cost_is_smooth_as_pixels_cross_the_border() -> None:
    problem = AlignmentProblem(*pair(), "translation", outside=0.5, threads=1)
    step = 1e-3
    shifts = np.concatenate([np.arange(s - 0.05, s + 0.25, step) for s in (-62, -20, 1, 5, 8, 40)])
    costs, slopes = np.empty(len(shifts)), np.empty(len(shifts))
    for i, shift in enumerate(shifts):
        theta = problem.point(np.array([[1.0, 0.0, shift], [0.0, 1.0, 0.37], [0.0, 0.0, 1.0]]))
        normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
        costs[i], slopes[i] = normal.cost, normal.gradient[0] / problem.frame.scale
    near = np.diff(shifts) < 2 * step
    change, steepest = np.abs(np.diff(costs))[near].max(), np.abs(slopes).max()
    # A border that drops pixels would jump by a column of 48 pixels at once: by 48 * 0.5^2 / 2 = 6, or a good part.
    assert change <= 1.5 * steepest * step < 2.0
    # Slopes and costs belong together, over the border too; between kinks the trapezoid is nearly exact.
    predicted = (0.5 * (slopes[1:] + slopes[:-1]) * np.diff(shifts))[near]
    error = np.abs(np.diff(costs)[near] - predicted)
    assert np.quantile(error, 0.99) < 1e-3
    assert np.ptp(costs) > 100.0


def test_all_outside_costs_the_same_everywhere() -> None:
    problem = AlignmentProblem(*pair(), "homography", outside=0.5, threads=1)
    for shift in (300.0, -1e5, 1e12):
        theta = problem.point(np.array([[1.0, 0.0, shift], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
        normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
        assert normal.cost == pytest.approx(problem.n * 0.125)
        assert not normal.gradient.any()


def test_leaving_does_not_pay() -> None:
    image, _ = pair()
    problem = AlignmentProblem(image, image, "translation", threads=1)
    start = problem.point(np.array([[1.0, 0.0, 3.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0]]))
    k = problem.sample(start).outside_level(Loss.named("linear"))
    problem = AlignmentProblem(image, image, "translation", outside=k, threads=1)
    shifted = [
        problem.cost(problem.point(np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])))
        for x in (-60.0, -10.0, -1.0, 1.0, 10.0, 60.0, 100.0)
        for y in (-2.0, 0.5, 40.0)
    ]
    # What is left at the truth is the band along the border, which always counts as partly outside.
    assert problem.cost(problem.point(np.eye(3))) < 0.5 * min(shifted)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300])
@pytest.mark.parametrize("entry", range(11))
def test_points_that_are_not_numbers_are_survived(bad: float, entry: int) -> None:
    problem = AlignmentProblem(*pair(masked=True), "homography", photometric=True, outside=0.5, threads=1)
    theta = problem.point(MATRIX)
    theta[entry] = bad
    assert not problem.cost(theta) < 0.0
    problem.linearize(theta, 0, problem.n, outer=False, costs=None)


@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_integers_are_read_in_place(kind: str) -> None:
    first, second = pair(kind=kind)
    floats = [Image(i.values(), 1.0) for i in (first, second)]
    a = AlignmentProblem(first, second, outside=0.2, threads=1)
    b = AlignmentProblem(*floats, outside=0.2, threads=1)
    theta = a.point(MATRIX)
    na, nb = (p.linearize(theta, 0, p.n, outer=True, costs=None) for p in (a, b))
    np.testing.assert_allclose(na.gradient, nb.gradient, rtol=1e-4)
    np.testing.assert_allclose(na.hessian, nb.hessian, rtol=1e-4, atol=1e-4)
    assert na.cost == pytest.approx(nb.cost, rel=1e-5)
    assert a.data.columns[1].ctypes.data == first.pixels.ctypes.data


@pytest.mark.parametrize("color", [False, True])
def test_look_up_is_bilinear_interpolation(color: bool) -> None:
    first, second = pair(color)
    problem = AlignmentProblem(first, second, threads=1)
    theta = problem.point(MATRIX, 1.2, 0.1)
    pixels = np.arange(first.shape[0] * first.shape[1], dtype=np.int32)
    values, weights = problem.look_up(theta, pixels)
    at = transform(MATRIX, np.column_stack([pixels % first.shape[1], pixels // first.shape[1]]))
    inside = weights == 1.0
    assert 0.5 < inside.mean() < 1.0
    planes = second.pixels.reshape(*second.shape, -1)
    for c in range(first.channels):
        expected = 1.2 * map_coordinates(planes[..., c].astype(float), at[inside, ::-1].T, order=1) + 0.1
        np.testing.assert_allclose(values[inside, c], expected, atol=2e-6)
    h, w = second.shape
    far = (at[:, 0] < 0) | (at[:, 1] < 0) | (at[:, 0] > w - 1) | (at[:, 1] > h - 1)
    assert (weights[far] == 0.0).all()


def test_masked_pixels_have_no_influence() -> None:
    first, second = pair(masked=True)
    spoiled = []
    for image in (first, second):
        pixels = image.pixels.copy()
        pixels[~image.valid] = 1e6
        spoiled.append(Image(pixels, 1.0, image.valid))
    theta = AlignmentProblem(first, second, threads=1).point(MATRIX)
    a, b = (
        AlignmentProblem(*images, outside=0.2, threads=1).linearize(
            theta, 0, first.valid.sum(), outer=False, costs=None
        )
        for images in ((first, second), spoiled)
    )
    assert a.count == first.valid.sum()
    assert a.cost == b.cost
    assert np.array_equal(a.hessian, b.hessian)


def test_esm_averages_the_gradients_on_batches_only() -> None:
    first, second = pair()
    exact, averaged = (
        AlignmentProblem(first, second, "sl3", linearization=name, outside=0.2, threads=1)
        for name in ("forward", "esm")
    )
    theta = exact.point(MATRIX)
    n, k = exact.n, 500
    both: list[Any] = [p.linearize(theta, 0, n, outer=False, costs=None) for p in (exact, averaged)]
    assert np.array_equal(both[0].gradient, both[1].gradient)
    both = [p.linearize(theta, 0, k, outer=False, costs=None) for p in (exact, averaged)]
    assert both[0].cost == both[1].cost
    assert not np.allclose(both[0].gradient, both[1].gradient)
    # Row by row: with J1 the derivatives that image 1's central differences give, J_esm = (J + J1) / 2.
    chosen = averaged.indices(0, k)
    _, jacobian = rowwise(exact, theta)
    h, w = first.shape
    x, y = chosen % w, chosen // w
    gx, gy = (
        np.gradient(first.pixels.astype(float), axis=1)[y, x],
        np.gradient(first.pixels.astype(float), axis=0)[y, x],
    )
    # In the frame of image 1 a translation by one normalised unit moves by `scale` pixels: columns 2 and 5 of sl3.
    _, weights = exact.look_up(theta, chosen.astype(np.int32))
    inside = (weights == 1.0) & (x > 0) & (x < w - 1) & (y > 0) & (y < h - 1)
    esm = AlignmentProblem(first, second, "sl3", outside=0.2, threads=1)
    esm.kernel.program[:] = averaged._batch_kernel.program
    _, mixed = rowwise(esm, theta)
    scale = exact.frame.scale
    for column, gradient in ((2, gx), (5, gy)):
        expected = 0.5 * (jacobian[chosen, 0, column] + scale * gradient)
        np.testing.assert_allclose(mixed[chosen, 0, column][inside], expected[inside], rtol=1e-6, atol=1e-9)


def test_esm_everywhere_is_esm_on_all_pixels() -> None:
    first, second = pair()
    exact, averaged, everywhere = (
        AlignmentProblem(first, second, linearization=name, outside=0.2, threads=1)
        for name in ("forward", "esm", "esm-everywhere")
    )
    theta, n, k = exact.point(MATRIX), exact.n, 500
    two: list[Any] = [p.linearize(theta, 0, k, outer=False, costs=None) for p in (averaged, everywhere)]
    assert np.array_equal(two[0].gradient, two[1].gradient)
    # On all pixels: the sum of two batches is what the averaged gradients give for all.
    rest = everywhere.linearize(theta, k, n, outer=False, costs=None)
    whole, plain = (p.linearize(theta, 0, n, outer=False, costs=None) for p in (everywhere, exact))
    np.testing.assert_allclose(whole.gradient, (two[1] + rest).gradient, rtol=1e-9)
    assert whole.cost == plain.cost
    assert not np.allclose(whole.gradient, plain.gradient, rtol=1e-3)
    with pytest.raises(ValueError, match="linearization='ecm'"):
        AlignmentProblem(first, second, linearization="ecm")


def test_threads_do_not_change_a_bit() -> None:
    big = [Image(texture((400, 500), k), 1.0) for k in range(2)]
    results = []
    for threads in (1, 2, 5):
        problem = AlignmentProblem(*big, outside=0.2, threads=threads)
        results.append(problem.linearize(problem.point(MATRIX), 0, problem.n, outer=False, costs=None))
    for other in results[1:]:
        assert np.array_equal(results[0].gradient, other.gradient)
        assert results[0].cost == other.cost
