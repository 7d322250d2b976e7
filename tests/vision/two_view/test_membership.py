"""EM for poses: one end from all starts, whatever the matches."""

from __future__ import annotations

import numpy as np
import pytest
from bench.studies.two_view_kinds import scenes
from bench.studies.two_view_scenes import error
from numpy.typing import NDArray

import problm
from problm.vision.two_view.depths import BINS, SMOOTH, Depths, density_from, density_of_others
from problm.vision.two_view.mixture.membership import Membership
from problm.vision.two_view.mixture.sums import step_of
from problm.vision.two_view.models import ESSENTIAL, Frame
from problm.vision.two_view.simulate import TwoViews, two_views

Array = NDArray[np.float64]


def mixture(views: TwoViews) -> tuple[Membership, Array]:
    x = np.concatenate([views.x1, views.x2], axis=1)
    frame = Frame(np.linalg.inv(views.K), np.linalg.inv(views.K))
    depths = Depths(ESSENTIAL, frame, x)
    pose = np.concatenate([views.R.ravel(), views.t / np.linalg.norm(views.t)])
    return Membership(ESSENTIAL, frame, x, frame.transform(x), depths), pose


class TestAgree:
    @pytest.mark.parametrize("seed", range(6))
    def test_ends_at_one_pose_from_many_starts(self, seed: int) -> None:
        membership, pose = mixture(two_views(600, inliers=0.4, noise=0.5, seed=900 + seed))
        rng = np.random.default_rng(seed)
        cuts = (1.2, 1.5, 2.0, 1.0, 1.8)
        starts = [pose, *(ESSENTIAL.retract(pose, 5e-4 * rng.normal(size=5)) for _ in range(4))]
        ends = [membership.agree(start, cut, False) for start, cut in zip(starts, cuts, strict=True)]
        assert all(end is not None for end in ends)
        poses = np.array([end.theta for end in ends if end is not None])
        assert np.abs(poses - poses[0]).max() < 1e-6
        noise = [end.sigma for end in ends if end is not None]
        assert np.ptp(noise) < 1e-4
        assert 0.4 < noise[0] < 0.6

    def test_measures_the_noise_whatever_the_share_of_wrong_matches(self) -> None:
        for share in (0.3, 0.6, 1.0):
            membership, pose = mixture(two_views(1500, inliers=share, noise=0.8, seed=31))
            end = membership.agree(pose, 3.0, False)
            assert end is not None
            assert abs(end.sigma - 0.8) < 0.08

    def test_keeps_a_given_threshold(self) -> None:
        membership, pose = mixture(two_views(600, inliers=0.5, noise=0.5, seed=5))
        end = membership.agree(pose, 2.5, True)
        assert end is not None
        assert abs(end.sigma - 1.0) < 1e-12

    def test_exact_matches_have_some_noise(self) -> None:
        membership, pose = mixture(two_views(300, inliers=0.6, noise=0.0, seed=6))
        end = membership.agree(pose, 1e-3, False)
        assert end is not None
        assert end.sigma > 0.0
        assert np.abs(end.theta - pose).max() < 1e-8

    def test_a_pose_without_matches_agrees_with_nothing(self) -> None:
        membership, pose = mixture(two_views(40, inliers=1.0, noise=0.3, seed=7))
        assert membership.likeliest(ESSENTIAL.retract(pose, np.array([0.0, 1.0, 0.5, 0.0, 0.0])), 1e-6, True) is None


def test_rare_depths_are_unlikely_but_not_impossible() -> None:
    histogram = np.zeros(BINS)
    histogram[:8] = 100.0
    density = density_from(histogram, SMOOTH)
    assert 0.005 < density[-1] < 0.02
    assert abs(density.mean() - 1.0) < 1e-12


def test_the_limit_of_likely_depths_is_not_a_matter_of_rounding() -> None:
    rng = np.random.default_rng(3)
    for seed in range(12):
        membership, pose = mixture(two_views(1500, inliers=0.4, noise=2.0, seed=1200 + seed))
        flags = []
        for cut in 5.0 * (1.0 + 1e-12 * rng.normal(size=6)):
            errors = np.abs(membership.problem.residuals(pose)[:, 0])
            flags.append(membership.depths.likely(pose, membership.rays, errors < cut, cut))
        assert all(np.array_equal(flags[0], other) for other in flags[1:])


def test_poses_do_not_depend_on_the_seed() -> None:
    moved = 0
    for seed in range(12):
        v = two_views(500, inliers=0.4, noise=1.0, seed=2600 + seed)
        poses = [problm.essential_matrix(v.x1, v.x2, v.K, rng=k) for k in range(3)]
        errors = [max(p.rotation_error(v.R), p.translation_error(v.t)) for p in poses]
        moved += max(errors) - min(errors) > 0.1 * min(errors)
    assert moved <= 1


def test_a_match_is_no_evidence_for_itself() -> None:
    place, inside = np.array([0.1] * 50 + [0.9]), np.ones(51, dtype=bool)
    density = density_of_others(place, inside, 0.0)
    assert density[0] > 3.0
    assert density[-1] == pytest.approx(1.0 / 52.0)
    # Nor are as many as wrong ones alone would be.
    even = (np.arange(200) + 0.5) / 200
    assert density_of_others(even, np.ones(200, dtype=bool), 200.0).max() < 0.1


@pytest.mark.parametrize("seed", [700008, 700017, 700021, 700026, 51, 52, 53])
def test_wrong_matches_do_not_draw_f_to_themselves(seed: int) -> None:
    v = two_views(500, inliers=0.6, noise=0.5, seed=seed)
    fit = problm.fundamental_matrix(v.x1, v.x2)
    right = problm.fundamental_matrix(v.x1[v.inliers], v.x2[v.inliers], robust=False, initial=fit.F)
    away = np.linalg.lstsq(fit.tangents, right.F.ravel() * np.sign(np.vdot(fit.F, right.F)) - fit.F.ravel())[0]
    # In standard errors; a wrong match that F followed took it to 10.
    assert np.sqrt(np.mean(away**2 / np.diag(fit.covariance))) < 1.0


def test_fundamental_matrices_do_not_depend_on_the_seed() -> None:
    moved = 0
    for seed in range(12):
        v = two_views(500, inliers=0.5, noise=0.7, seed=2700 + seed)
        found = [problm.fundamental_matrix(v.x1, v.x2, rng=k).F for k in range(3)]
        errors = [np.median(residual(F, v)) for F in found]
        moved += max(errors) - min(errors) > 0.1 * min(errors)
    assert moved <= 1


def test_em_finds_no_f_of_few_inliers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few inliers it may fit some at any noise: rarely, but then without a consensus."""
    used = []
    agree = Membership.agree
    monkeypatch.setattr(Membership, "agree", lambda *given: used.append(given[0]) or agree(*given))
    for n, expected in ((20, False), (80, False), (200, True)):
        v = two_views(n, inliers=0.75, noise=0.5, seed=5200)
        used.clear()
        assert problm.fundamental_matrix(v.x1, v.x2).status == "ok"
        assert bool(used) == expected


def test_poses_of_a_plane_with_relief_hardly_depend_on_the_seed() -> None:
    """They have several likely ends: all that is around one is looked at, and compared by one likelihood."""
    moved = 0
    for seed in range(12):
        v = two_views(600, inliers=0.4, noise=0.5, depth=(5.8, 6.2), seed=4100 + seed)
        poses = [problm.essential_matrix(v.x1, v.x2, v.K, rng=k) for k in range(3)]
        errors = [max(pose.rotation_error(v.R), pose.translation_error(v.t)) for pose in poses]
        moved += max(errors) - min(errors) > 0.1 * min(errors)
    assert moved <= 3


def test_a_repeated_structure_roughly_in_line_does_not_hide_the_precise_f() -> None:
    """Windows matched to their neighbours: more matches agree with a compromise than with the scene."""
    scene = list(scenes("facade, cut", 0, 5, None))[4]
    for seed in range(3):
        fit = problm.fundamental_matrix(scene.x1, scene.x2, rng=seed)
        assert error("F", fit.F, scene) < 0.3
        assert fit.inliers.sum() < 370  # of the compromise 400


def residual(F: Array, v: TwoViews) -> Array:
    """Distances of the right matches from their epipolar lines in image 2."""
    a, b = (np.column_stack([x[v.inliers], np.ones(v.inliers.sum())]) for x in (v.x1, v.x2))
    lines = a @ F.T
    distances: Array = np.abs((b * lines).sum(axis=1)) / np.hypot(lines[:, 0], lines[:, 1])
    return distances


def test_a_step_is_newtons_as_far_as_that_is_safe():
    rng = np.random.default_rng(0)
    for d, far in ((5, 1.0), (7, 1.0), (7, 100.0)):
        J = rng.normal(size=(30, d)) * np.exp(rng.normal(size=d))
        A, C = J.T @ J, (J * rng.uniform(0.0, 1.5, (30, 1))).T @ J
        v = far * 1e-2 * np.linalg.cholesky(A) @ rng.normal(size=d)
        half = np.linalg.inv(np.linalg.cholesky(A))
        lost, axes = np.linalg.eigh(half @ C @ half.T)
        curvature = axes @ np.diag(np.clip(1.0 - lost, 0.2, 1.0)) @ axes.T if far == 1.0 else np.eye(d)
        assert lost.max() > 0.8
        assert step_of(A, C, v) == pytest.approx(-half.T @ np.linalg.solve(curvature, half @ v), rel=1e-9)
    assert step_of(-A, C, v) is None
