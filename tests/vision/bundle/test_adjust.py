"""Perspective bundle adjustment: derivatives, gauge, missing observations, losses, real data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

import problm
from problm import Reconstruction, read_bal, read_colmap
from problm.losses import LOSSES, Loss
from problm.solver.checkpoint.file import unpack
from problm.vision.bundle.adjust import bundle_adjustment
from problm.vision.bundle.camera_models import DISTORTIONS, MODELS, PLACES, Intrinsics, project
from problm.vision.bundle.problem import BundleProblem, start_point
from tests.helpers.cameras import PARAMS

ALL = ("focal", "principal_point", "distortion")


def scene(C=4, P=40, noise=0.5, model="RADIAL", cameras=1, missing=0.2, seed=0):
    """A true reconstruction: cameras on a ring looking inwards, observations with noise and gaps."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (P, 3))
    R = Rotation.from_rotvec(np.column_stack([0.2 * rng.normal(size=C), np.linspace(-0.7, 0.7, C), np.zeros(C)]))
    R = R.as_matrix()
    t = np.column_stack([0.2 * rng.normal(size=(C, 2)), rng.uniform(5, 7, C)])
    kinds = [Intrinsics(model, PARAMS[model], id=k + 1) for k in range(cameras)]
    which = np.arange(C) % cameras
    m = np.stack([kinds[which[i]].project(X @ R[i].T + t[i]) for i in range(C)])
    m += noise * rng.normal(size=m.shape)
    gone = rng.random((C, P)) < missing
    gone[:2] = False
    m[gone] = np.nan
    return Reconstruction.from_arrays(R, t, kinds, X, m, camera=which)


def perturbed(model, angle=0.02, shift=0.05, point=0.05, seed=1):
    rng = np.random.default_rng(seed)
    R = Rotation.from_rotvec(angle * rng.normal(size=(len(model.rotations), 3))).as_matrix() @ model.rotations
    t = model.translations + shift * rng.normal(size=model.translations.shape)
    return replace(
        model, rotations=R, translations=t, points=model.points + point * rng.normal(size=model.points.shape)
    )


def moved(model, seed=2):
    """The same reconstruction in another world: X' = s Q X + c."""
    rng = np.random.default_rng(seed)
    Q, c, s = Rotation.random(rng=rng).as_matrix(), rng.normal(size=3) * 5, 3.7
    R = model.rotations @ Q.T
    return replace(model, rotations=R, translations=s * model.translations - R @ c, points=s * model.points @ Q.T + c)


def observed(problem, theta, X):
    """Residuals (M, 2) at given homogeneous points, in NumPy."""
    images = len(problem._local)
    cams = theta[: 12 * images].reshape(images, 12)[problem.image]
    owner = problem._camera[problem.image]
    X = X[np.repeat(np.arange(problem.n), np.diff(problem.start))]
    x = np.einsum("mij,mj->mi", cams[:, :9].reshape(-1, 3, 3), X[:, :3]) + cams[:, 9:] * X[:, 3:]
    found = np.empty_like(problem.xy)
    for k, places in enumerate(theta[12 * images :].reshape(-1, PLACES)):
        found[owner == k] = project(DISTORTIONS[problem._distortion[k]], places, x[owner == k])
    return found - problem.xy


def differences(f, d, h=1e-6):
    return np.stack([(f(h * e) - f(-h * e)) / (2 * h) for e in np.eye(d)], axis=-1)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_that_of_the_fully_eliminated_cost(model, loss):
    start = perturbed(scene(model=model, cameras=2), 0.01, 0.02, 0.05)
    problem = BundleProblem(start, free=ALL, loss=Loss.named(loss, 10.0))
    theta = start_point(start)
    normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    scale = np.sqrt(normal.hessian.diagonal())
    step = np.sqrt(2e-9 * normal.cost)  # balances truncation against the 1e-12 of the inner solves
    numeric = differences(lambda e: problem.cost(problem.retract(theta, e / scale)), problem.dim, step)
    exact = normal.gradient / scale
    np.testing.assert_allclose(numeric, exact, atol=2e-4 * np.abs(exact).max())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fixed", [(), (1,), (0, 2)])
def test_matrix_is_the_schur_complement_of_the_full_jacobian(model, fixed):
    truth = scene(model=model, cameras=2, P=12, noise=1.0)
    problem = BundleProblem(truth, free=ALL, fixed_images=fixed)
    theta = start_point(truth)
    normal = problem.linearize(theta, 0, problem.n, outer=True, costs=None)
    X = problem.base.copy()
    Jc = differences(lambda e: observed(problem, problem.retract(theta, e), X).ravel(), problem.dim, 1e-5)
    r = observed(problem, theta, X).ravel()
    assert 0.5 * r @ r == pytest.approx(normal.cost, rel=1e-10)
    H, S, g = np.zeros((problem.dim,) * 2), np.zeros((problem.dim,) * 2), np.zeros(problem.dim)
    for j in range(problem.n):
        rows = slice(2 * problem.start[j], 2 * problem.start[j + 1])

        def at(e, j=j, rows=rows):
            Y = X.copy()
            Y[j] += e
            return observed(problem, theta, Y).ravel()[rows]

        U = np.linalg.svd(differences(at, 4))[0][:, :3]  # the projective freedom leaves rank 3
        reduced = Jc[rows] - U @ (U.T @ Jc[rows])
        H += reduced.T @ reduced
        mine = reduced.T @ r[rows]
        g += mine
        S += np.outer(mine, mine)
    G = problem.gauge(theta)
    assert G.shape[1] == {0: 7, 1: 1, 2: 0}[len(fixed)]
    weighted = H.diagonal()[:, None] * G
    held = H + (weighted @ np.linalg.solve(G.T @ weighted, weighted.T) if G.shape[1] else 0.0)
    unit = 1 / np.sqrt(H.diagonal())
    np.testing.assert_allclose(normal.hessian * unit[:, None] * unit, held * unit[:, None] * unit, atol=1e-5)
    np.testing.assert_allclose(normal.gradient * unit, g * unit, atol=1e-5 * np.abs(g * unit).max())
    np.testing.assert_allclose(
        normal.outer * unit[:, None] * unit, S * unit[:, None] * unit, atol=1e-4 * (g * unit).max() ** 2
    )
    # H G = 0 and g'G = 0: the world may move freely; with the gauge held the matrix is regular.
    assert np.abs(H @ G * unit[:, None]).max(initial=0.0) < 1e-4 * np.abs(G / unit[:, None]).max(initial=1.0)
    assert (
        np.abs(G.T @ normal.gradient).max(initial=0.0)
        < 1e-6 * np.abs(G.T) @ np.abs(normal.gradient) @ np.ones(G.shape[1])
        if G.shape[1]
        else True
    )
    if model != "FULL_OPENCV":  # in this narrow field six coefficients of the radius say no more than four
        assert np.linalg.eigvalsh(held * unit[:, None] * unit).min() > 1e-9


def test_reduced_jacobian_by_differences_of_the_eliminated_residuals_without_noise():
    # Where residuals vanish the Gauss-Newton matrix is exactly J'J of the reduced functional.
    truth = scene(noise=0.0, P=15)
    problem = BundleProblem(truth, free=ALL, fixed_images=(0, 1))
    theta = start_point(truth)
    normal = problem.linearize(theta, 0, problem.n, outer=False, costs=None)
    scale = 1 / np.sqrt(normal.hessian.diagonal())

    def eliminated(e):
        there = problem.retract(theta, e * scale)
        return observed(problem, there, problem.points(there)).ravel()

    J = differences(eliminated, problem.dim, 1e-3)
    np.testing.assert_allclose(normal.hessian * scale[:, None] * scale, J.T @ J, atol=2e-5)


@pytest.mark.parametrize("loss", ["linear", "huber"])
def test_same_minimum_as_the_full_problem(loss):
    start = perturbed(scene(C=3, P=20, model="SIMPLE_RADIAL", noise=1.0))
    fit = bundle_adjustment(start, loss=loss, f_scale=1.0, ftol=1e-12)
    assert fit.result.success
    problem = fit.problem

    def residuals(v):
        X = np.column_stack([v[problem.dim :].reshape(-1, 3), np.ones(problem.n)])
        r = observed(problem, problem.retract(fit.result.x, v[: problem.dim]), X)
        if loss == "linear":
            return r.ravel()
        norm = np.linalg.norm(r, axis=1)
        return np.sqrt(2 * Loss.named(loss, 1.0).cost(norm**2))

    v0 = np.concatenate([np.zeros(problem.dim), fit.points.ravel()])
    assert 0.5 * (residuals(v0) ** 2).sum() == pytest.approx(fit.cost, rel=1e-9)
    better = least_squares(residuals, v0, x_scale="jac", max_nfev=50)
    assert better.cost > fit.cost * (1 - 1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_converges_to_the_same_minimum_from_two_starts(loss):
    truth = scene(C=4, P=80, noise=0.5)
    # A loss that is flat beyond its scale sees nothing of an observation that starts there.
    scale = 30.0 if loss in ("tukey", "truncated", "welsch") else 5.0
    a = bundle_adjustment(truth, loss=loss, f_scale=scale)
    b = bundle_adjustment(perturbed(truth, 0.003, 0.01, 0.01), loss=loss, f_scale=scale)
    assert a.result.success
    assert b.result.success
    assert a.cost == pytest.approx(b.cost, rel=1e-6)
    assert a.cost == pytest.approx(a.result.cost, rel=1e-9)
    assert b.start_cost > a.start_cost >= a.cost


def test_robust_loss_ignores_wrong_observations():
    truth = scene(C=5, P=100, noise=0.3, missing=0.0)
    rng = np.random.default_rng(0)
    wrong = rng.random(len(truth.xy)) < 0.05
    bad = replace(truth, xy=truth.xy + wrong[:, None] * rng.normal(0, 60, truth.xy.shape))
    plain = bundle_adjustment(bad, intrinsics="fixed")
    robust = bundle_adjustment(bad, intrinsics="fixed", loss="cauchy", f_scale=1.0)

    def error(fit):  # relative rotations do not depend on the world
        a, b = fit.rotations[1:] @ fit.rotations[0].T, truth.rotations[1:] @ truth.rotations[0].T
        return Rotation.from_matrix(a @ b.transpose(0, 2, 1)).magnitude().max()

    assert error(robust) < 2e-3 < error(plain)


@pytest.mark.parametrize("acceptance", ["full", "holdout", "paper", "paper-relaxed"])
def test_batches_over_points_find_the_minimum(acceptance):
    truth = scene(C=3, P=6000, noise=0.5, missing=0.3, model="SIMPLE_RADIAL")
    start = perturbed(truth, 0.01, 0.03, 0.03)
    best = bundle_adjustment(truth, intrinsics="fixed", acceptance="full")
    fit = bundle_adjustment(
        start, intrinsics="fixed", acceptance=acceptance, initial_batch=500 if acceptance != "full" else None
    )
    assert fit.result.success
    assert fit.cost == pytest.approx(best.cost, rel=1e-7)
    if acceptance == "holdout":
        assert min(fit.result.history.batch_size) == 500


def test_a_moved_world_takes_the_same_steps():
    start = perturbed(scene(C=5, P=100, noise=1.0))
    a, b = bundle_adjustment(start), bundle_adjustment(moved(start))
    assert a.cost == pytest.approx(b.cost, rel=1e-9)
    np.testing.assert_allclose(a.result.history.cost, b.result.history.cost, rtol=1e-6)
    c = a.covariance
    assert np.allclose(c.diagonal()[:3], b.covariance.diagonal()[:3], rtol=1e-3)  # of the first rotation
    assert (np.linalg.eigvalsh(c / np.abs(c).max()) > -1e-12).all()


def test_cost_is_a_function_of_theta_whatever_was_evaluated_before():
    start = perturbed(scene(C=4, P=200, noise=2.0))
    problem = BundleProblem(start)
    theta = start_point(start)
    fresh = problem.costs(theta, 0, problem.n)
    rng = np.random.default_rng(0)
    far = problem.retract(theta, 1e-2 * rng.normal(size=problem.dim))
    problem.linearize(far, 0, problem.n, outer=False, costs=None)  # moves the warm starts
    problem.costs(problem.retract(far, 1e-2 * rng.normal(size=problem.dim)), 0, problem.n)
    again = problem.costs(theta, 0, problem.n)
    np.testing.assert_allclose(again, fresh, rtol=1e-8, atol=1e-10)
    problem.linearize(theta, 0, problem.n, outer=False, costs=again)
    np.testing.assert_allclose(again, fresh, rtol=1e-8, atol=1e-10)
    # A batch sees the same blocks in another order.
    parts = np.concatenate([problem.costs(theta, 0, 50), problem.costs(theta, 50, 200)])
    np.testing.assert_allclose(np.sort(parts), np.sort(fresh), rtol=1e-8)


def test_threads_do_not_change_the_bits():
    start = perturbed(scene(C=3, P=5000, model="SIMPLE_PINHOLE"))
    theta = start_point(start)
    results = []
    for threads in (1, 2):
        problem = BundleProblem(start, threads=threads)
        results.append(problem.linearize(theta, 0, problem.n, outer=True, costs=None))
    np.testing.assert_array_equal(results[0].hessian, results[1].hessian)
    np.testing.assert_array_equal(results[0].outer, results[1].outer)
    assert results[0].cost == results[1].cost


def test_points_at_infinity_and_short_tracks_do_no_harm():
    truth = scene(C=4, P=60, noise=0.2, missing=0.0)
    far = truth.points.copy()
    far[:5] *= [1e7, 1e7, 1e7]  # almost parallel rays: their noise decides on which side of infinity they lie
    far[:5] = np.array([0.3, 0.2, 1.0]) * 1e7
    m = np.stack(
        [truth.intrinsics[0].project(far @ R.T + t) for R, t in zip(truth.rotations, truth.translations, strict=True)]
    )
    m += 0.2 * np.random.default_rng(0).normal(size=m.shape)
    m[1:, 5] = np.nan  # seen once
    m[:, 6] = np.nan  # never seen
    start = Reconstruction.from_arrays(truth.rotations, truth.translations, truth.intrinsics, truth.points + 0.01, m)
    fit = bundle_adjustment(perturbed(start, 0.005, 0.01, 0.0))
    assert fit.result.success
    assert fit.rmse < 0.4
    assert np.isfinite(fit.points).all()
    np.testing.assert_array_equal(fit.points[5:7], perturbed(start, 0.005, 0.01, 0.0).points[5:7])


def test_residuals_points_and_report_of_a_result():
    fit = bundle_adjustment(perturbed(scene(C=4, P=50, model="OPENCV", cameras=2, missing=0.3)), intrinsics=ALL)
    np.testing.assert_allclose(fit.result.fun, fit.model.residuals(), atol=1e-6)
    np.testing.assert_allclose(fit.result.fun, observed(fit.problem, fit.result.x, fit.problem.points(fit.result.x)))
    assert "rmse" in str(fit)
    assert "Converged" in fit.result.report()


def test_fixed_images_stay_and_shared_intrinsics_stay_shared():
    start = perturbed(scene(C=5, P=60, cameras=2))
    fit = bundle_adjustment(start, fixed_images=(0, 3), intrinsics=["focal"])
    for i in (0, 3):
        np.testing.assert_array_equal(fit.rotations[i], start.rotations[i])
        np.testing.assert_array_equal(fit.translations[i], start.translations[i])
    for before, after in zip(start.intrinsics, fit.model.intrinsics, strict=True):
        assert after.params[0] != before.params[0]
        assert after.params[1:] == before.params[1:]
    assert fit.problem.dim == 3 * 6 + 2


@pytest.mark.parametrize("cameras", [2, 5])
@pytest.mark.parametrize("few", [500, 1])
def test_intrinsics_of_single_cameras_are_fixed(monkeypatch, cameras, few):
    """Shared cameras and cameras of one image, with a dense matrix and with blocks."""
    monkeypatch.setattr("problm.vision.bundle.problem.FEW_PARAMETERS", few)
    start = perturbed(scene(C=5, P=60, cameras=cameras))
    fit = bundle_adjustment(start, fixed_cameras=[1], intrinsics=["focal"])
    assert fit.result.success
    assert fit.problem.dim == 5 * 6 + cameras - 1
    assert fit.model.intrinsics[1].params == start.intrinsics[1].params
    assert fit.model.intrinsics[0].params[0] != start.intrinsics[0].params[0]
    # Every focal length but the fixed one is at its minimum.
    for k, camera in enumerate(start.intrinsics):
        for share in (1.0 - 1e-4, 1.0 + 1e-4) if k != 1 else ():
            moved = fit.model.intrinsics[k].params
            others = [*fit.model.intrinsics]
            others[k] = Intrinsics(camera.model, (moved[0] * share, *moved[1:]))
            assert bundle_adjustment(replace(fit.model, intrinsics=tuple(others)), intrinsics="fixed").cost > fit.cost


def test_an_image_twice_in_a_track():
    truth = scene(C=3, P=30, missing=0.0)
    rows = np.column_stack([truth.image, np.repeat(np.arange(30), 3), truth.xy])
    doubled = Reconstruction.from_arrays(
        truth.rotations,
        truth.translations,
        truth.intrinsics,
        truth.points,
        np.concatenate([rows, rows[:20] + np.array([0, 0, 0.5, 0.5])]),
    )
    problem = BundleProblem(doubled)
    theta = start_point(doubled)
    normal = problem.linearize(theta, 0, problem.n, outer=True, costs=None)
    scale = np.sqrt(normal.hessian.diagonal())
    numeric = differences(
        lambda e: problem.cost(problem.retract(theta, e / scale)), problem.dim, np.sqrt(2e-9 * normal.cost)
    )
    np.testing.assert_allclose(numeric, normal.gradient / scale, atol=2e-4 * np.abs(normal.gradient / scale).max())
    assert bundle_adjustment(doubled).result.success


def test_lonely_points_blind_cameras_and_points_behind_change_nothing():
    truth = scene(C=5, P=60, missing=0.0)
    wanted = bundle_adjustment(perturbed(truth))
    table = np.column_stack([truth.image, np.repeat(np.arange(60), truth.track_lengths), truth.xy])
    lonely = np.column_stack([np.arange(10) % 5, 60 + np.arange(10), np.zeros((10, 2))])  # each in one image only
    start = perturbed(truth)
    points = np.concatenate([start.points, np.zeros((10, 3))])
    points[:5, 2] -= 30.0  # behind every camera at the start
    fit = bundle_adjustment(
        Reconstruction.from_arrays(
            np.concatenate([start.rotations, np.eye(3)[None]]),
            np.concatenate([start.translations, [[0.0, 0.0, 9.0]]]),  # an image without observations
            truth.intrinsics,
            points,
            np.concatenate([table, lonely]),
        )
    )
    assert fit.cost == pytest.approx(wanted.cost, rel=1e-8)
    assert not fit.behind.any()
    np.testing.assert_array_equal(fit.rotations[5], np.eye(3))
    np.testing.assert_array_equal(fit.points[60:], 0.0)
    assert fit.covariance.shape == wanted.covariance.shape


def test_a_stopped_solve_goes_on_from_its_checkpoint(tmp_path):
    start = perturbed(scene(C=3, P=20_000, missing=0.0))
    whole = bundle_adjustment(start)
    file = tmp_path / "state.npz"
    sizes = whole.result.history.batch_size
    grown = next(i for i, size in enumerate(sizes) if size > sizes[0])
    first = bundle_adjustment(start, checkpoint=file, checkpoint_every=0.0, max_iter=grown + 1)
    assert first.result.batch_size < 20_000
    assert len(unpack(file)["order"]["ends"]) > 1  # where the order was cut, without which other blocks would be drawn
    rest = bundle_adjustment(start, checkpoint=file, checkpoint_every=0.0)
    assert rest.result.history.batch_size == whole.result.history.batch_size  # the same blocks, in the same order
    np.testing.assert_allclose(rest.result.history.cost, whole.result.history.cost, rtol=1e-9)


@pytest.mark.parametrize("other", ["an observation", "a loss", "intrinsics", "a point"])
@pytest.mark.parametrize("stop", [1, 3])
def test_the_checkpoint_of_another_adjustment(tmp_path, other, stop):
    start = perturbed(scene(C=4, P=200))
    file = tmp_path / "state.npz"
    bundle_adjustment(start, checkpoint=file, checkpoint_every=0.0, max_iter=stop)
    options = {"loss": "huber"} if other == "a loss" else {"intrinsics": "fixed"} if other == "intrinsics" else {}
    if other == "an observation":
        xy = start.xy.copy()
        xy[77] += 1e-9
        start = replace(start, xy=xy)
    elif other == "a point":
        start = replace(start, points=start.points + 1e-9)
    with pytest.raises(ValueError, match="belongs to another solve"):
        bundle_adjustment(start, checkpoint=file, **options)


def test_matrices_in_blocks_are_not_kept(tmp_path):
    """This was a TypeError in the middle of the solve."""
    start = scene(C=90, P=30)
    with pytest.raises(ValueError, match="is kept in blocks, which no checkpoint holds"):
        bundle_adjustment(start, checkpoint=tmp_path / "state.npz")
    assert not list(tmp_path.iterdir())


def test_functions_of_several_solves_take_no_checkpoint(tmp_path):
    """Their second solve met the checkpoint of the first one."""
    x, image = np.random.default_rng(0).uniform(0, 500, (50, 2)), np.random.default_rng(0).uniform(size=(40, 40))
    matches, clouds = (x, x + 1.0), (np.c_[x, x[:, :1]],) * 2
    for function, data in (
        (problm.homography, matches), (problm.fundamental_matrix, matches), (problm.register, clouds),
        (problm.align, (image, image)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="runs several solves and keeps no checkpoint"):
            function(*data, checkpoint=tmp_path / "state.npz")


def test_bad_input_is_named():
    truth = scene()
    with pytest.raises(TypeError, match="must be a Reconstruction"):
        bundle_adjustment("folder")
    with pytest.raises(ValueError, match="fixed_images must be numbers of images from 0 to 3"):
        bundle_adjustment(truth, fixed_images=[7])
    with pytest.raises(TypeError, match=r"fixed_images must be a collection.*\[0\].*got 0"):
        bundle_adjustment(truth, fixed_images=0)
    with pytest.raises(ValueError, match=r"fixed_cameras must be numbers of cameras from 0 to 0, got 1"):
        bundle_adjustment(truth, fixed_cameras=[1])
    with pytest.raises(ValueError, match="did you mean 'focal'"):
        bundle_adjustment(truth, intrinsics=["focall"])
    with pytest.raises(ValueError, match="nothing to estimate"):
        bundle_adjustment(truth, intrinsics="fixed", fixed_images=range(4))
    with pytest.raises(TypeError, match="built-in losses"):
        bundle_adjustment(truth, loss=lambda z: (z, np.ones_like(z)))
    lonely = Reconstruction.from_arrays([np.eye(3)], [[0, 0, 0]], truth.intrinsics, [[0, 0, 5]], [[0, 0, 1, 1]])
    with pytest.raises(ValueError, match="seen twice"):
        bundle_adjustment(lonely)


def data(name):
    root = os.environ.get("PROBLM_DATA")
    if not root:
        pytest.skip("PROBLM_DATA is not set")
    return Path(root) / name


def test_bal_ends_below_the_published_minimum():
    model = read_bal(data("bal/problem-49-7776-pre.txt"))
    fit = bundle_adjustment(model, acceptance="full")
    assert fit.start_cost == pytest.approx(8.509125e5, rel=1e-6)
    assert fit.result.success
    assert fit.result.nit <= 15
    # Ceres, cameras and points together, 50 iterations: 1.334425e4.
    assert fit.cost < 1.3344e4


def test_colmap_model_is_near_its_own_optimum():
    model = read_colmap(data("colmap_sceaux_castle"))
    fit = bundle_adjustment(perturbed(model, 0.002, 0.01, 0.02))
    assert fit.result.success
    assert fit.rmse < np.sqrt((model.residuals() ** 2).sum(axis=1).mean())
    assert fit.behind.sum() < 10
