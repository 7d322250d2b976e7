"""Robust poses: inliers at unlikely depths, the width of the last loss, and how little the way matters."""

import numpy as np
import pytest

from problm.losses import Loss
from problm.manifolds import rotation_log, tangent_basis
from problm.vision.two_view.consensus import WIDTHS, best_width, estimate_threshold, least_variance_width
from problm.vision.two_view.depths import Depths
from problm.vision.two_view.essential import essential_matrix
from problm.vision.two_view.models import ESSENTIAL, Frame, two_view_problem
from problm.vision.two_view.result import residual_norms
from problm.vision.two_view.simulate import two_views


def at_the_truth(views):
    """Frame, matches, point and Sampson errors of a simulated pair."""
    A = np.linalg.inv(views.K)
    frame, x, theta = Frame(A, A), np.c_[views.x1, views.x2], np.r_[views.R.ravel(), views.t]
    errors = residual_norms(two_view_problem(ESSENTIAL, [x], frame, Loss.named("linear")), theta)
    return frame, x, theta, errors


def distance(pose, views, hessian, noise):
    """Mean squared error of the parameters, in standard errors of least squares on the true inliers."""
    w = rotation_log(np.ascontiguousarray(pose.R @ views.R.T))
    d = np.r_[w, tangent_basis(views.t).T @ pose.t]
    return float(d @ hessian @ d) / (5 * noise**2)


class TestDepths:
    def test_wrong_matches_near_their_epipolar_line_are_dropped(self):
        wrong_before = wrong_after = right_before = right_after = 0
        for seed in range(5):
            views = two_views(4000, inliers=0.4, baseline=0.3, seed=600 + seed)
            frame, x, theta, errors = at_the_truth(views)
            near = errors < 1.25
            likely = Depths(ESSENTIAL, frame, x).likely(theta, frame.transform(x), near, 1.25)
            assert not (likely & ~near).any()
            wrong_before += int((near & ~views.inliers).sum())
            wrong_after += int((likely & ~views.inliers).sum())
            right_before += int((near & views.inliers).sum())
            right_after += int((likely & views.inliers).sum())
        assert wrong_after < 0.3 * wrong_before  # in front of both cameras lies a half
        assert right_after > 0.99 * right_before

    def test_without_wrong_matches_none_is_dropped(self):
        views = two_views(2000, seed=610)
        frame, x, theta, errors = at_the_truth(views)
        near = errors < 1.25
        depths = Depths(ESSENTIAL, frame, x)
        assert np.array_equal(depths.likely(theta, frame.transform(x), near, 1.25), near)

    def test_few_matches(self):
        views = two_views(6, seed=611)
        frame, x, theta, errors = at_the_truth(views)
        depths = Depths(ESSENTIAL, frame, x)
        assert depths.likely(theta, frame.transform(x), errors < 5.0, 5.0).sum() == (errors < 5.0).sum()


class TestWidth:
    @pytest.mark.parametrize(("tails", "wide"), [(False, True), (True, False)])
    def test_gaussian_noise_asks_for_a_wide_loss_and_long_tails_for_a_narrow_one(self, tails, wide):
        rng = np.random.default_rng(3)
        clean = two_views(3000, noise=0.0, seed=620)
        A = np.linalg.inv(clean.K)
        frame, theta = Frame(A, A), np.r_[clean.R.ravel(), clean.t]
        noise = rng.standard_cauchy(size=(3000, 4)) if tails else rng.normal(size=(3000, 4))
        x = np.c_[clean.x1, clean.x2] + 0.5 * noise
        errors = residual_norms(two_view_problem(ESSENTIAL, [x], frame, Loss.named("linear")), theta)
        cut = estimate_threshold(errors, 2.0, 1)
        near = errors < WIDTHS[-1] * cut
        found = best_width(x[near], errors[near], theta, cut, "truncated", ESSENTIAL, frame)
        assert (found >= 1.6) if wide else (found <= 1.2)

    def test_the_most_accurate_matches_decide_where_noise_differs_from_match_to_match(self):
        rng = np.random.default_rng(4)
        r = np.exp(1.2 * rng.normal(size=4000)) * rng.normal(size=4000)
        errors = np.abs(r)
        cut = estimate_threshold(errors, 3.0, 1)
        near = errors < WIDTHS[-1] * cut
        J = rng.normal(size=(4000, 1, 3))
        assert least_variance_width(J[near], r[near, None], errors[near], cut, "truncated") <= 0.75

    def test_it_has_the_least_variance_of_the_textbook_formula(self):
        rng, name = np.random.default_rng(8), "truncated"
        J, r = rng.normal(size=(400, 2, 3)), rng.normal(size=(400, 2)) * np.exp(rng.normal(size=(400, 1)))
        errors = np.linalg.norm(r, axis=1)
        for cut in (1.0, 3.0, 9.0):
            variances = {}
            for wide in WIDTHS:
                A, B, scale = np.zeros((3, 3)), np.zeros((3, 3)), wide * cut
                for rows, value in zip(J, r, strict=True):
                    z = value @ value / scale**2
                    # The smooth truncated loss: rho' = 1 - z up to the cut.
                    weight, slope = (1.0 - z, -1.0 / scale**2) if z < 1.0 else (0.0, 0.0)
                    g = rows.T @ value
                    A += weight * rows.T @ rows + 2.0 * slope * np.outer(g, g)
                    B += weight**2 * np.outer(g, g)
                if np.linalg.eigvalsh(A)[0] > 0.0:
                    inverse = np.linalg.inv(A)
                    variances[wide] = np.trace(inverse @ B @ inverse @ np.einsum("npa,npb->ab", J, J))
            found = least_variance_width(J, r, errors, cut, name)
            assert variances[found] <= min(variances.values()) / 0.9 + 1e-12

    def test_no_width_is_chosen_at_which_the_estimate_is_no_minimum(self):
        # At the narrowest width all errors are where the loss bends down: a maximum, however small its "variance".
        r = np.tile([0.39, -0.39], 500)
        J = np.ones((1000, 1, 1))
        assert least_variance_width(J, r[:, None], np.abs(r), 1.0, "truncated") > WIDTHS[0]


@pytest.mark.parametrize("pose", [{}, {"t": [0.0, 0.0, 1.0]}])
def test_variance_is_near_that_of_least_squares_on_the_true_inliers(pose):
    # A cut at 2.5 sigma alone costs 11 %, outliers more: 70 % before depths were looked at, for the forward motion.
    found = []
    for seed in range(25):
        views = two_views(2000, inliers=0.5, seed=640 + seed, **pose)
        good = views.inliers
        best = essential_matrix(views.x1[good], views.x2[good], views.K, initial=(views.R, views.t), robust=False)
        fit = essential_matrix(views.x1, views.x2, views.K, rng=seed)
        found.append([distance(p, views, best.hessian, 0.5) for p in (fit, best)])
    ours, oracle = np.mean(found, axis=0)
    assert ours < 1.35 * oracle


def test_what_comes_out_does_not_depend_on_the_way():
    apart = []
    for scene in range(8):
        views = two_views(3000, inliers=0.5, seed=680 + scene)
        poses = [essential_matrix(views.x1, views.x2, views.K, rng=seed) for seed in (1, 2)]
        C = poses[0].covariance
        w = rotation_log(np.ascontiguousarray(poses[1].R @ poses[0].R.T))
        d = np.r_[w, tangent_basis(poses[0].t).T @ poses[1].t]
        apart.append(float(d @ np.linalg.solve(C, d)) / 5)
    assert np.median(apart) < 0.003  # squared standard errors
    assert sum(a > 0.1 for a in apart) <= 1
    assert max(apart) < 0.5
