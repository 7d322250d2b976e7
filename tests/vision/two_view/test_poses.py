"""essential_matrix, fundamental_matrix and homography: accuracy, robustness, statuses, covariance, determinism."""

import json
import os

import numpy as np
import pytest

from problm.manifolds import rotation_exp, rotation_log, skew, tangent_basis
from problm.solver.result import Status
from problm.vision.two_view import models as tv
from problm.vision.two_view import robust as estimation
from problm.vision.two_view.essential import essential_matrix
from problm.vision.two_view.fundamental import fundamental_matrix
from problm.vision.two_view.homography import homography
from problm.vision.two_view.simulate import two_views


def pose_error(pose, views):
    return max(pose.rotation_error(views.R), pose.translation_error(views.t))


def exact_fundamental(views):
    A = np.linalg.inv(views.K)
    F = A.T @ skew(views.t) @ views.R @ A
    return F / np.linalg.norm(F)


class TestRefinement:
    def test_same_minimum_as_scipy(self):
        from scipy.optimize import least_squares

        views = two_views(400, seed=1)
        w = rotation_exp(np.array([0.05, -0.1, 0.08]))
        pose = essential_matrix(views.x1, views.x2, views.K, initial=(w @ views.R, views.t), robust=False, gtol=1e-10)
        A = np.linalg.inv(views.K)
        problem = tv.two_view_problem(
            tv.ESSENTIAL_ANGLES, [np.c_[views.x1, views.x2]], tv.Frame(A, A), tv.Loss.named("linear")
        )
        start = tv.angles_from_pose(views.R, views.t)
        other = least_squares(lambda a: problem.residuals(a)[:, 0], start, xtol=1e-15, ftol=1e-15, gtol=1e-15)
        assert pose.result.cost == pytest.approx(other.cost, rel=1e-9)
        assert pose.status == "ok"
        assert pose_error(pose, views) < 0.5
        assert pose.inliers.all()
        assert np.isnan(pose.chance)

    @pytest.mark.parametrize("parameterization", ["manifold", "angles"])
    def test_both_parameterizations_agree(self, parameterization):
        views = two_views(1000, seed=2)
        start = (rotation_exp(np.array([0.1, 0.1, -0.1])) @ views.R, views.t + 0.2)
        pose = essential_matrix(
            views.x1, views.x2, views.K, initial=start, robust=False, parameterization=parameterization
        )
        again = essential_matrix(views.x1, views.x2, views.K, initial=pose, robust=False)
        assert again.result.cost == pytest.approx(pose.result.cost, rel=1e-9)
        assert np.allclose(again.R, pose.R, atol=1e-6)
        assert np.allclose(again.covariance, pose.covariance, rtol=1e-3, atol=1e-12)

    def test_starts_given_as_matrix_pair_or_pose_agree(self):
        views = two_views(500, seed=3)
        R, t = rotation_exp(np.array([0.05, 0.0, 0.02])) @ views.R, views.t
        costs = [
            essential_matrix(views.x1, views.x2, views.K, initial=initial, robust=False).result.cost
            for initial in ((R, t), [R, 5.0 * t], skew(t) @ R, -3.0 * skew(t) @ R)
        ]
        assert np.allclose(costs, costs[0], rtol=1e-8)

    def test_without_a_start(self):
        views = two_views(300, seed=4)
        for pose in (
            essential_matrix(views.x1, views.x2, views.K, robust=False),
            essential_matrix(views.x1.astype(np.float32), views.x2.astype(np.float32), views.K, robust=False),
        ):
            assert pose.status == "ok"
            assert pose_error(pose, views) < 1.0

    def test_calibrated_coordinates_need_no_camera_matrix(self):
        views = two_views(500, seed=5)
        A = np.linalg.inv(views.K)
        rays = [x @ A[:2, :2].T + A[:2, 2] for x in (views.x1, views.x2)]
        pose = essential_matrix(*rays)
        pixels = essential_matrix(views.x1, views.x2, views.K)
        # Equal focal lengths: the same objective in other units.
        assert np.allclose(pose.R, pixels.R, atol=1e-3)
        assert pose.threshold == pytest.approx(pixels.threshold / 800.0, rel=0.2)

    def test_errors_are_pixels_whatever_the_focal_lengths(self):
        views = two_views(2000, seed=6, noise=0.5)
        K2 = np.diag([2.5, 2.5, 1.0]) @ views.K  # image 2 taken at 2.5 times the resolution
        pose = essential_matrix(views.x1, 2.5 * views.x2, views.K, K2)
        assert pose_error(pose, views) < 0.5
        # Noise of 0.5 and 1.25 pixels: Sampson mixes them; with K folded in exactly F is that of the pixels.
        assert np.allclose(pose.F, pose.matrix)
        u, v = np.c_[views.x1, np.ones(2000)], np.c_[2.5 * views.x2, np.ones(2000)]
        Fu, Fv = u @ pose.F.T, v @ pose.F
        r = (v * Fu).sum(1) / np.sqrt(Fu[:, 0] ** 2 + Fu[:, 1] ** 2 + Fv[:, 0] ** 2 + Fv[:, 1] ** 2)
        assert np.allclose(np.abs(r), pose.errors, rtol=1e-6, atol=1e-9)

    def test_distortion_is_undone(self):
        views = two_views(1000, inliers=0.8, seed=7)
        d = [-0.2, 0.05, 1e-3, -1e-3]

        def distort(x):
            u = (x - views.K[:2, 2]) / 800.0
            q = (u**2).sum(1, keepdims=True)
            a, b = u[:, :1], u[:, 1:]
            tangential = np.c_[2 * d[2] * a * b + d[3] * (q + 2 * a * a), d[2] * (q + 2 * b * b) + 2 * d[3] * a * b]
            return (u * (1 + d[0] * q + d[1] * q * q) + tangential) * 800.0 + views.K[:2, 2]

        both = essential_matrix(distort(views.x1), distort(views.x2), views.K, distortion=d)
        second = essential_matrix(views.x1, distort(views.x2), views.K, distortion=(None, d))
        plain = essential_matrix(views.x1, views.x2, views.K)
        for pose in (both, second):
            assert np.allclose(pose.R, plain.R, atol=1e-4)
            assert np.allclose(pose.t, plain.t, atol=1e-3)

    def test_limits_of_the_solver_are_told_not_raised(self):
        views = two_views(1000, seed=8)
        start = (rotation_exp(np.array([0.3, 0.3, -0.3])) @ views.R, views.t)
        pose = essential_matrix(views.x1, views.x2, views.K, initial=start, robust=False, max_iter=1)
        assert pose.status == "not converged"
        assert pose.result.status is Status.MAX_ITER
        assert not pose.success

    def test_same_bits_for_any_number_of_threads(self):
        views = two_views(100_000, seed=9)
        start = (rotation_exp(np.array([0.05, -0.05, 0.1])) @ views.R, views.t)
        a, b = (
            essential_matrix(views.x1, views.x2, views.K, initial=start, robust=False, threads=threads)
            for threads in (1, 3)
        )
        assert np.array_equal(a.E, b.E)
        assert np.array_equal(a.covariance, b.covariance)

    @pytest.mark.parametrize("robust", [False, True])
    def test_all_cores_by_default(self, robust, monkeypatch):
        asked = []
        monkeypatch.setattr("problm.kernels.kernel.available_threads", lambda: asked.append(1) or 2)
        views = two_views(40_000, seed=9)
        start = None if robust else (rotation_exp(np.array([0.05, -0.05, 0.1])) @ views.R, views.t)
        pose = essential_matrix(views.x1, views.x2, views.K, initial=start, robust=robust, acceptance="full")
        assert pose.success
        assert asked

    @pytest.mark.parametrize("acceptance", ["holdout", "full", "paper", "paper-relaxed"])
    def test_every_policy_arrives(self, acceptance):
        views = two_views(20_000, seed=9)
        w = rotation_exp(np.array([0.1, -0.1, 0.14]))
        pose = essential_matrix(
            views.x1, views.x2, views.K, initial=(w @ views.R, views.t), robust=False, acceptance=acceptance
        )
        reference = essential_matrix(views.x1, views.x2, views.K, initial=(views.R, views.t), robust=False)
        assert pose.result.cost == pytest.approx(reference.result.cost, rel=1e-7)


class TestRobust:
    @pytest.mark.parametrize("inliers", [0.9, 0.5, 0.25])
    def test_pose_from_putative_matches(self, inliers):
        good = 0
        for seed in range(5):
            views = two_views(2000, inliers=inliers, seed=10 + seed)
            pose = essential_matrix(views.x1, views.x2, views.K)
            assert pose.status == "ok"
            assert np.mean(pose.inliers == views.inliers) > 0.97
            assert pose.threshold == pytest.approx(1.25, rel=0.25)  # 2.5 sigma of the noise, estimated
            good += pose_error(pose, views) < 2.0
        assert good == 5

    def test_without_ransac(self):
        for seed in range(4):
            views = two_views(2000, inliers=0.5, seed=20 + seed)
            pose = essential_matrix(views.x1, views.x2, views.K, starts="random")
            assert pose.status == "ok"
            assert pose_error(pose, views) < 2.0

    def test_from_a_start_as_in_the_paper(self):
        views = two_views(3000, inliers=0.6, seed=30)
        start = (rotation_exp(np.array([0.05, -0.05, 0.05])) @ views.R, views.t)
        for threshold in ("auto", 1.5):
            pose = essential_matrix(views.x1, views.x2, views.K, initial=start, threshold=threshold)
            assert pose.starts == 0
            assert pose.status == "ok"
            assert pose_error(pose, views) < 1.0

    @pytest.mark.parametrize("loss", ["tukey", "geman_mcclure", "welsch", "cauchy", "huber", "soft_l1", "arctan"])
    def test_every_loss(self, loss):
        views = two_views(1500, inliers=0.8, seed=31)
        pose = essential_matrix(views.x1, views.x2, views.K, loss=loss)
        assert pose.status == "ok"
        assert pose_error(pose, views) < 1.5

    def test_same_seed_same_bits(self):
        views = two_views(1500, inliers=0.5, seed=32)
        a, b = (essential_matrix(views.x1, views.x2, views.K, rng=7) for _ in range(2))
        assert np.array_equal(a.E, b.E)
        assert np.array_equal(a.errors, b.errors)
        c = essential_matrix(views.x1, views.x2, views.K, rng=8)
        # Another road to the same minimum, or to one that a match at the threshold sets apart.
        assert np.abs(a.R - c.R).max() < 0.3 * np.sqrt(np.trace(a.covariance[:3, :3]))

    def test_the_search_does_not_show_in_the_answer(self):
        views = two_views(2000, inliers=0.7, seed=3)
        poses = [essential_matrix(views.x1, views.x2, views.K, rng=seed) for seed in range(4)]
        for pose in poses[1:]:  # noise, inliers and pose are a fixed point of each other
            assert np.allclose(pose.R, poses[0].R, atol=1e-6)
            assert pose.threshold == pytest.approx(poses[0].threshold, rel=1e-6)
            assert np.array_equal(pose.inliers, poses[0].inliers)

    def test_noise_of_any_size(self):
        for noise in (0.0, 0.02, 3.0):
            views = two_views(1500, inliers=0.7, seed=33, noise=noise)
            pose = essential_matrix(views.x1, views.x2, views.K)
            assert pose.status == "ok"
            assert np.mean(pose.inliers[views.inliers]) > 0.95
            assert pose.translation_error(views.t) < 1.0 + 5.0 * noise

    def test_time_limit_is_kept(self):
        views = two_views(3000, inliers=0.0, seed=34)
        pose = essential_matrix(views.x1, views.x2, views.K, max_starts=10**7, max_time=0.3)
        assert pose.seconds < 3.0
        assert pose.status == "no consensus"

    def test_few_matches(self):
        for n in (12, 20, 40):
            views = two_views(n, seed=35, noise=0.1)
            pose = essential_matrix(views.x1, views.x2, views.K)
            assert pose.status == "ok"
            assert pose_error(pose, views) < 5.0
        five = two_views(5, seed=36)
        assert essential_matrix(five.x1, five.x2, five.K).status == "no consensus"  # five matches always fit

    def test_a_start_from_which_no_match_is_within_reach_of_five_levels(self):
        views = two_views(1000, inliers=0.6, seed=1)
        start = (rotation_exp(np.array([0.1, 0.0, 0.0])) @ views.R, views.t)
        pose = essential_matrix(views.x1, views.x2, views.K, initial=start, threshold=1.5)
        assert pose.status == "ok"
        assert pose_error(pose, views) < 1.0
        assert pose.starts == 0


class TestStatus:
    @pytest.mark.parametrize(("inliers", "robust"), [(1.0, False), (1.0, True), (0.6, True), (0.3, True)])
    def test_pure_rotation_is_degenerate(self, inliers, robust):
        for seed in range(3):
            views = two_views(1000, inliers=inliers, seed=40 + seed, baseline=0.0)
            pose = essential_matrix(views.x1, views.x2, views.K, robust=robust)
            assert pose.status == "degenerate"
            assert "rotation" in pose.message
            assert pose.rotation_error(views.R) < 0.2
            assert np.isnan(pose.t).all()
            assert not pose.success

    def test_a_little_parallax_is_not_degenerate(self):
        views = two_views(1500, inliers=0.7, seed=44, baseline=0.2)
        pose = essential_matrix(views.x1, views.x2, views.K)
        assert pose.status == "ok"
        assert pose.translation_error(views.t) < 8.0

    def test_a_plane_determines_the_pose(self):
        views = two_views(1500, inliers=0.7, seed=45, plane=True)
        assert essential_matrix(views.x1, views.x2, views.K).status == "ok"

    @pytest.mark.parametrize("function", [essential_matrix, fundamental_matrix, homography])
    @pytest.mark.parametrize("starts", ["minimal", "random"])
    def test_nothing_but_outliers(self, function, starts):
        views = two_views(1000, inliers=0.0, seed=46)
        K = (views.K,) if function is essential_matrix else ()
        fit = function(views.x1, views.x2, *K, starts=starts, max_starts=3000)
        assert fit.status == "no consensus"
        assert np.isnan(fit.matrix).all()
        assert not fit.inliers.any()
        json.dumps(fit.to_dict(), allow_nan=False)

    def test_many_to_one_without_a_geometry(self):
        rng = np.random.default_rng(47)
        x1 = rng.uniform(0, 600, (3000, 2))
        x2 = rng.uniform(0, 600, (300, 2))[rng.integers(0, 300, 3000)]
        x2[:400] = x2[0]  # an epipole here makes inliers of 400 matches
        for threshold in ("auto", 1.0, 5.0):
            pose = essential_matrix(x1, x2, (800, 800, 300, 300), threshold=threshold, max_starts=5000)
            assert pose.status == "no consensus"

    def test_many_to_one_with_a_geometry(self):
        views = two_views(2000, inliers=0.5, seed=48)
        x2 = views.x2.copy()
        wrong = np.flatnonzero(~views.inliers)
        x2[wrong[:800]] = x2[wrong[0]]
        pose = essential_matrix(views.x1, x2, views.K)
        assert pose.status == "ok"
        assert pose_error(pose, views) < 2.0

    def test_a_plane_does_not_determine_f(self):
        for robust, inliers in ((True, 0.6), (False, 1.0)):
            views = two_views(1000, inliers=inliers, seed=49, plane=True)
            fit = fundamental_matrix(views.x1, views.x2, robust=robust)
            assert fit.status == "degenerate"
            assert "homography" in fit.message


class TestFundamentalAndHomography:
    @pytest.mark.parametrize("starts", ["minimal", "random"])
    def test_fundamental(self, starts):
        views = two_views(2000, inliers=0.6, seed=50)
        fit = fundamental_matrix(views.x1, views.x2, starts=starts)
        assert fit.status == "ok"
        assert np.mean(fit.inliers == views.inliers) > 0.97
        assert abs(np.linalg.det(fit.F)) < 1e-15
        # The true inliers fit the estimate as well as their noise allows.
        assert np.sqrt(np.mean(fit.errors[views.inliers] ** 2)) < 0.6

    @pytest.mark.parametrize("error", ["sampson", "transfer"])
    @pytest.mark.parametrize("starts", ["minimal", "random"])
    def test_homography(self, error, starts):
        views = two_views(2000, inliers=0.5, seed=51, plane=True)
        fit = homography(views.x1, views.x2, error=error, starts=starts)
        assert fit.status == "ok"
        assert np.mean(fit.inliers == views.inliers) > 0.97
        G = views.R + np.outer(views.t, [0.3, -0.2, 1.0]) / 7.0
        H = views.K @ G @ np.linalg.inv(views.K)
        x = views.x1[views.inliers]
        y = np.c_[x, np.ones(len(x))] @ H.T
        assert np.abs(fit.transfer(x) - y[:, :2] / y[:, 2:]).max() < 0.5
        assert fit.H[2, 2] == 1.0

    def test_squared_residuals_reach_scipys_minimum(self):
        from scipy.optimize import least_squares

        flat = two_views(300, seed=52, plane=True)
        fit = homography(flat.x1, flat.x2, error="transfer", robust=False)

        def residuals(h):
            H = np.append(h, 1.0).reshape(3, 3)
            a = np.c_[flat.x1, np.ones(300)] @ H.T
            b = np.c_[flat.x2, np.ones(300)] @ np.linalg.inv(H).T
            return np.c_[a[:, :2] / a[:, 2:] - flat.x2, b[:, :2] / b[:, 2:] - flat.x1].ravel()

        other = least_squares(residuals, fit.H.ravel()[:8] * 1.0001, x_scale="jac", xtol=1e-15, ftol=1e-15)
        assert fit.result.cost == pytest.approx(other.cost, rel=1e-6)

    def test_starts(self):
        flat = two_views(500, inliers=0.7, seed=53, plane=True)
        H = homography(flat.x1, flat.x2)
        assert np.allclose(homography(flat.x1, flat.x2, initial=H).H, H.H, rtol=1e-4, atol=1e-6)
        assert np.allclose(homography(flat.x1, flat.x2, initial=-2.0 * H.H).H, H.H, rtol=1e-4, atol=1e-6)
        deep = two_views(500, inliers=0.7, seed=53)
        F = fundamental_matrix(deep.x1, deep.x2)
        again = fundamental_matrix(deep.x1, deep.x2, initial=F.F)
        assert min(np.abs(again.F - F.F).max(), np.abs(again.F + F.F).max()) < 1e-4


class TestCovariance:
    """Monte Carlo: the spread of estimates over noise must be what the covariance says."""

    @pytest.mark.parametrize("robust", [False, True])
    def test_of_the_pose(self, robust):
        clean = two_views(400, seed=60, noise=0.0)
        rng = np.random.default_rng(61)
        B = tangent_basis(clean.t)
        samples, predicted = [], []
        for _ in range(150):
            x1 = clean.x1 + 0.5 * rng.normal(size=(400, 2))
            x2 = clean.x2 + 0.5 * rng.normal(size=(400, 2))
            if robust:
                x2[:80] = rng.uniform(0, 480, (80, 2))
                pose = essential_matrix(x1, x2, clean.K, initial=(clean.R, clean.t), threshold=1.5, levels=2)
            else:
                pose = essential_matrix(x1, x2, clean.K, initial=(clean.R, clean.t), robust=False)
            dR = pose.R @ clean.R.T
            w = 0.5 * np.array([dR[2, 1] - dR[1, 2], dR[0, 2] - dR[2, 0], dR[1, 0] - dR[0, 1]])
            samples.append(np.r_[w, B.T @ pose.t])
            predicted.append(pose.covariance)
        spread, told = np.cov(np.array(samples).T), np.mean(predicted, axis=0)
        ratio = np.sqrt(np.diag(spread) / np.diag(told))
        assert (ratio > 0.8).all()
        assert (ratio < 1.3).all()  # outliers near their epipolar line add a little that no covariance knows
        whitened = np.linalg.solve(np.linalg.cholesky(told), np.linalg.cholesky(spread))
        assert 0.6 < np.linalg.norm(whitened) ** 2 / 5 < 1.6

    @pytest.mark.parametrize("robust", [False, True])
    def test_of_matches_that_share_their_errors(self, robust):
        """Every point is found four times, with nearly the same error."""
        clean = two_views(400, seed=66, noise=0.0)
        x = np.concatenate([clean.x1, clean.x2], axis=1)[np.arange(400) // 4 * 4]
        rng, distances, apart = np.random.default_rng(67), [], []
        for _ in range(40):
            noisy = x + np.repeat(0.45 * rng.normal(size=(100, 4)), 4, axis=0) + 0.2 * rng.normal(size=x.shape)
            x1, x2 = np.ascontiguousarray(noisy[:, :2]), np.ascontiguousarray(noisy[:, 2:])
            pose = essential_matrix(x1, x2, clean.K, initial=(clean.R, clean.t), robust=robust)
            B = tangent_basis(pose.t)
            step = np.r_[rotation_log(clean.R @ pose.R.T), B.T @ clean.t]
            distances.append(step @ np.linalg.solve(pose.covariance, step) / 5)
            apart.append(step @ np.linalg.solve(pose.result.covariance, step) / 5)
        assert 0.75 < np.sqrt(np.mean(distances)) < 1.25
        assert np.sqrt(np.mean(apart)) > 1.5  # as if rows were independent

    @pytest.mark.parametrize("error", ["sampson", "transfer"])
    def test_of_a_homography(self, error):
        clean = two_views(200, seed=62, noise=0.0, plane=True)
        start = homography(clean.x1, clean.x2, robust=False).H
        rng = np.random.default_rng(63)
        samples, predicted = [], []
        for k in range(200):
            x1 = clean.x1 + 0.5 * rng.normal(size=(200, 2))
            x2 = clean.x2 + 0.5 * rng.normal(size=(200, 2))
            fit = homography(x1, x2, error=error, robust=k % 2 == 0, threshold=4.0, initial=start)
            samples.append(fit.H.ravel()[:8])
            predicted.append(fit.H_covariance[:8, :8])
        ratio = np.sqrt(np.diag(np.cov(np.array(samples).T)) / np.diag(np.mean(predicted, axis=0)))
        assert (ratio > 0.8).all()
        assert (ratio < 1.25).all()

    def test_of_a_fundamental_matrix(self):
        clean = two_views(300, seed=64, noise=0.0)
        start = exact_fundamental(clean)
        rng = np.random.default_rng(65)
        samples, predicted = [], []
        for _ in range(150):
            x1 = clean.x1 + 0.3 * rng.normal(size=(300, 2))
            x2 = clean.x2 + 0.3 * rng.normal(size=(300, 2))
            fit = fundamental_matrix(x1, x2, robust=False, initial=start)
            samples.append(fit.F.ravel() * np.sign(fit.F.ravel() @ start.ravel()))
            predicted.append(fit.F_covariance)
        ratio = np.sqrt(np.diag(np.cov(np.array(samples).T)) / np.diag(np.mean(predicted, axis=0)))
        assert (ratio > 0.75).all()
        assert (ratio < 1.35).all()


class TestVeryManyMatches:
    """A random sample goes through search, levels and turns; everything takes one solve or two."""

    @pytest.mark.parametrize("function", [essential_matrix, homography])
    def test_the_sample_ends_where_everything_does(self, function):
        views = two_views(60_000, inliers=0.6, seed=80, plane=function is homography)
        K = (views.K,) if function is essential_matrix else ()
        ours, full = (function(views.x1, views.x2, *K, **o) for o in ({}, {"acceptance": "full"}))
        assert ours.status == full.status == "ok"
        assert np.mean(ours.inliers == full.inliers) > 0.999
        if function is essential_matrix:
            step = np.r_[rotation_log(full.R @ ours.R.T), tangent_basis(ours.t).T @ full.t]
        else:
            step = np.linalg.lstsq(ours.tangents, (full.H - ours.H).ravel())[0]
        assert step @ np.linalg.solve(ours.covariance, step) / len(step) < 0.3**2
        assert ours.result.n == pytest.approx(36_000, rel=0.02)  # the last solve is on all inliers
        # The same minimum: noise and width are chosen from all matches, not on the way.
        assert full.result.problem.cost(ours.result.x) < (1.0 + 1e-5) * full.result.cost
        assert ours.threshold == pytest.approx(full.threshold, rel=0.01)
        assert ours.result.cost / ours.result.n == pytest.approx(full.result.cost / full.result.n, rel=0.01)

    def test_few_solves_are_on_everything(self, monkeypatch):
        views, sizes = two_views(60_000, inliers=0.6, seed=81), []
        refine = estimation.refine
        monkeypatch.setattr(estimation, "refine", lambda *args: sizes.append(len(args[2][0])) or refine(*args))
        essential_matrix(views.x1, views.x2, views.K)
        assert 1 <= sum(n > estimation.SAMPLE for n in sizes) <= 2
        sizes.clear()
        essential_matrix(views.x1, views.x2, views.K, initial=(views.R, views.t))
        assert 1 <= sum(n > estimation.SAMPLE for n in sizes) <= 2

    def test_nothing_is_found_in_chance(self):
        views = two_views(50_000, inliers=0.6, seed=82)
        shuffled = np.random.default_rng(0).permutation(views.x2)
        assert essential_matrix(views.x1, shuffled, views.K, max_starts=300).status == "no consensus"


class TestResult:
    def test_to_dict_is_json(self):
        views = two_views(300, inliers=0.7, seed=70)
        pose = essential_matrix(views.x1, views.x2, views.K)
        told = json.loads(json.dumps(pose.to_dict(), allow_nan=False))
        assert np.allclose(told["R"], pose.R)
        assert np.allclose(told["E"], skew(told["t"]) @ np.array(told["R"]))
        assert told["inliers"] == pose.inliers.sum() == sum(told["inlier_flags"])
        for fit in (fundamental_matrix(views.x1, views.x2), homography(views.x1, views.x2)):
            json.dumps(fit.to_dict(), allow_nan=False)

    def test_text(self):
        views = two_views(300, inliers=0.7, seed=71)
        told = str(essential_matrix(views.x1, views.x2, views.K))
        for word in ("RelativePose: ok", "inliers", "rotation", "direction", "std. error", "starts"):
            assert word in told
        nothing = essential_matrix(views.x1, np.random.default_rng(0).permutation(views.x2), views.K, max_starts=500)
        assert "no consensus" in str(nothing)

    def test_translation_covariance_is_tangent(self):
        views = two_views(300, seed=72)
        pose = essential_matrix(views.x1, views.x2, views.K, robust=False)
        C = pose.translation_covariance
        assert np.abs(C @ pose.t).max() < 1e-15
        assert np.trace(C) == pytest.approx(np.trace(pose.covariance[3:, 3:]))

    @pytest.mark.parametrize("images", [False, True])
    def test_picture(self, tmp_path, images):
        pytest.importorskip("matplotlib")
        views = two_views(300, inliers=0.7, seed=73)
        flat = two_views(300, inliers=0.7, seed=73, plane=True)
        picture = np.zeros((480, 640, 3), np.uint8) if images else None
        grey = np.zeros((480, 640)) if images else None
        for k, fit in enumerate(
            (
                essential_matrix(views.x1, views.x2, views.K),
                fundamental_matrix(views.x1, views.x2),
                homography(flat.x1, flat.x2),
                homography(flat.x1, np.random.default_rng(0).permutation(flat.x2), max_starts=500),
            )
        ):
            path = tmp_path / f"{k}.png"
            figure = fit.plot(picture, grey, path=path)
            assert path.read_bytes()[:4] == b"\x89PNG"
            lines = sum(len(line.get_xdata()) == 2 for ax in figure.axes for line in ax.lines)
            assert (lines >= 12) == (k < 2)
        assert len(list(tmp_path.iterdir())) == 4

    def test_lines_end_at_the_frame(self):
        from problm.vision.two_view.plot import line_in_box

        ends = line_in_box(np.array([1.0, -1.0, 0.0]), (0.0, 10.0, 0.0, 5.0))
        assert np.allclose(np.sort(ends[:, 0]), [0.0, 5.0])
        assert line_in_box(np.array([1.0, 0.0, 5.0]), (0.0, 10.0, 0.0, 5.0)) is None
        vertical = line_in_box(np.array([1.0, 0.0, -5.0]), (0.0, 10.0, 0.0, 5.0))
        assert np.allclose(np.sort(vertical[:, 1]), [0.0, 5.0])


@pytest.fixture
def data():
    path = os.environ.get("PROBLM_DATA")
    if not path:
        pytest.skip("PROBLM_DATA is not set: needs the real data sets")
    return path


class TestRealData:
    def test_putative_matches_without_a_geometry(self, data):
        from problm.vision.two_view.matches import read_matches

        x1, x2 = read_matches(os.path.join(data, "eth3d_putative", "putative.txt"))
        assert len(x1) == 5000
        for seed in range(2):
            pose = essential_matrix(x1, x2, rng=seed, max_starts=10_000)
            assert pose.status == "no consensus"

    def test_strecha(self, data):
        from problm.vision.two_view.matches import read_intrinsics

        folder = os.path.join(data, "strecha", "fountain-P11")
        K, _ = read_intrinsics(os.path.join(folder, "K.txt"))

        def camera(name):
            with open(os.path.join(folder, f"{name}.jpg.camera")) as file:
                rows = [[float(v) for v in line.split()] for line in file if line.strip()]
            R = np.array(rows[4:7]).T
            return R, -R @ np.array(rows[7])

        with np.load(os.path.join(folder, "sift_putative.npz")) as file:
            for key in ("pair_0000_0001", "pair_0003_0005", "pair_0008_0010"):
                x = file[key].astype(np.float64)
                (R1, t1), (R2, t2) = (camera(name) for name in key.split("_")[1:])
                R = R2 @ R1.T
                pose = essential_matrix(x[:, :2], x[:, 2:4], K)
                assert pose.status == "ok"
                assert pose.rotation_error(R) < 0.2
                assert pose.translation_error(t2 - R @ t1) < 0.5
