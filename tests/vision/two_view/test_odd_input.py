"""Matches as people have them: other types and layouts, repeated, wild, too few, or without a geometry."""

import pickle

import numpy as np
import pytest

from problm.manifolds import rotation_exp
from problm.vision.two_view.degenerate import on_a_line
from problm.vision.two_view.essential import essential_matrix
from problm.vision.two_view.fundamental import fundamental_matrix
from problm.vision.two_view.homography import homography
from problm.vision.two_view.matches import extent
from problm.vision.two_view.simulate import two_views

VIEWS = two_views(300, inliers=0.8, seed=3)
PLANE = two_views(300, inliers=0.8, seed=3, plane=True)


def essential(x1, x2, **options):
    return essential_matrix(x1, x2, VIEWS.K, **options)


CASES = [(essential, VIEWS), (fundamental_matrix, VIEWS), (homography, PLANE)]
NAMES = ["essential", "fundamental", "homography"]


def read_only(x):
    y = x.copy()
    y.setflags(write=False)
    return y


@pytest.mark.parametrize(("function", "views"), CASES, ids=NAMES)
@pytest.mark.parametrize(
    "change",
    [read_only, np.asfortranarray, np.ndarray.tolist, lambda x: np.repeat(x, 2, axis=0)[::2], lambda x: x[::-1][::-1]],
    ids=["read-only", "Fortran", "lists", "strided", "reversed twice"],
)
def test_types_and_layouts_do_not_matter(function, views, change):
    wanted = function(views.x1, views.x2)
    fit = function(change(views.x1), change(views.x2))
    assert np.array_equal(fit.matrix, wanted.matrix)
    assert np.array_equal(fit.errors, wanted.errors)


def test_a_start_may_be_read_only_or_transposed():
    start = (VIEWS.R, VIEWS.t)
    wanted = essential(VIEWS.x1, VIEWS.x2, initial=start, robust=False)
    for R in (read_only(VIEWS.R), np.asfortranarray(VIEWS.R), VIEWS.R.tolist()):
        fit = essential(VIEWS.x1, VIEWS.x2, initial=(R, read_only(VIEWS.t)[:, None]), robust=False)
        assert np.array_equal(fit.E, wanted.E)


@pytest.mark.parametrize(("function", "views"), CASES, ids=NAMES)
def test_masked_matches_are_refused(function, views):
    with pytest.raises(ValueError, match="x2 holds masked values"):
        function(views.x1, np.ma.masked_array(views.x2, mask=views.x2 > 400))


@pytest.mark.parametrize(("function", "views"), CASES, ids=NAMES)
def test_a_wild_match_is_one_outlier(function, views):
    x1 = views.x1.copy()
    x1[3, 1] = 1e9
    fit = function(x1, views.x2)
    assert fit.status == "ok"
    assert not fit.inliers[3]
    rest = np.arange(300) != 3
    assert np.mean(fit.inliers[rest] == views.inliers[rest]) > 0.97
    assert np.isfinite(fit.errors).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize(("function", "views"), CASES, ids=NAMES)
def test_matches_at_infinity_are_named(function, views, value):
    x1 = views.x1.copy()
    x1[3, 1] = value
    with pytest.raises(ValueError, match=r"x1 row 3 is .*not finite"):
        function(x1, views.x2)


@pytest.mark.parametrize(("function", "views"), CASES, ids=NAMES)
def test_repeated_matches_change_nothing(function, views):
    few = slice(None, 60)
    once = function(views.x1[few], views.x2[few])
    often = function(np.repeat(views.x1[few], 20, axis=0), np.repeat(views.x2[few], 20, axis=0))
    assert once.status == often.status == "ok"
    assert np.mean(often.inliers[::20] == once.inliers) > 0.9
    assert np.mean(often.inliers[::20] == views.inliers[few]) > 0.85


def test_the_extent_is_that_of_most_points():
    x = np.random.default_rng(0).uniform(0, 100, (5000, 4)) * [1, 2, 1, 1]
    assert extent(x) == pytest.approx(200, rel=0.05)
    x[:100] = 1e12
    assert extent(x) == pytest.approx(200, rel=0.2)
    assert extent(np.array([[0.0, 0.0], [3.0, 1.0]])) == 3.0


@pytest.mark.parametrize(
    ("function", "least", "plane"), [(essential, 5, False), (fundamental_matrix, 7, False), (homography, 4, True)]
)
def test_as_few_matches_as_it_takes(function, least, plane):
    views = two_views(50, seed=3, noise=0.0, plane=plane)
    for extra in (0, 1, 2, 6):
        x1, x2 = views.x1[: least + extra], views.x2[: least + extra]
        fit = function(x1, x2, robust=False)
        assert fit.status == "ok"
        assert fit.errors.max() < 1e-6
        if not extra:  # another solution would fit as well, and nothing is known of the noise
            assert "exactly" in fit.message
            assert np.isnan(fit.covariance).all()
        robust = function(x1, x2)
        assert robust.status == ("ok" if extra else "no consensus")
    with pytest.raises(ValueError, match=f"at least {least} matches"):
        function(views.x1[: least - 1], views.x2[: least - 1])


@pytest.mark.parametrize("robust", [True, False])
def test_identical_images(robust):
    x = VIEWS.x1
    pose = essential(x, x, robust=robust)
    assert pose.status == "degenerate"
    assert pose.rotation_error(np.eye(3)) < 1e-3
    assert fundamental_matrix(x, x, robust=robust).status == "degenerate"
    fit = homography(x, x, robust=robust)
    assert fit.status == "ok"
    assert np.allclose(fit.H, np.eye(3), atol=1e-9)


def test_a_camera_that_turns_by_much():
    R = rotation_exp(np.array([0.0, 0.25, 0.1]))
    views = two_views(400, inliers=0.7, seed=5, baseline=0.0, R=R)
    pose = essential(views.x1, views.x2)
    assert pose.status == "degenerate"
    assert pose.rotation_error(R) < 0.2


@pytest.mark.parametrize("function", [essential, fundamental_matrix, homography])
@pytest.mark.parametrize("robust", [True, False])
def test_results_travel(function, robust):
    views = PLANE if function is homography else VIEWS
    fit = function(views.x1, views.x2, robust=robust)
    twin = pickle.loads(pickle.dumps(fit))  # noqa: S301
    assert twin.status == fit.status
    assert np.array_equal(twin.matrix, fit.matrix)
    assert np.array_equal(twin.errors, fit.errors)
    assert np.array_equal(twin.covariance, fit.covariance)
    assert str(twin) == str(fit)
    assert twin.to_dict() == fit.to_dict()


@pytest.mark.parametrize("wrong", [0, 100])
def test_matches_on_a_line_determine_nothing(wrong):
    rng = np.random.default_rng(2)
    views = two_views(50, seed=2)
    points = np.array([-2.0, 0.3, 6.0]) + np.linspace(0.0, 1.0, 300)[:, None] * np.array([4.0, 0.5, 2.0])
    pixels = []
    for moved in (points, points @ views.R.T + views.t):
        x = moved @ views.K.T
        pixels.append(x[:, :2] / x[:, 2:] + 0.5 * rng.normal(size=(300, 2)))
    more = rng.uniform(size=(2, wrong, 2)) * [640, 480]
    x1, x2 = (np.concatenate([x, y]) for x, y in zip(pixels, more, strict=True))
    assert essential_matrix(x1, x2, views.K).status == "degenerate"
    assert fundamental_matrix(x1, x2).status != "ok"
    fit = homography(x1, x2)
    assert fit.status == "degenerate"
    assert "line" in fit.message


def test_a_forgotten_camera_matrix_is_named():
    views = two_views(100, seed=1)
    with pytest.raises(ValueError, match=r"x1 looks like pixels .* pass K1"):
        essential_matrix(views.x1, views.x2)


def a_line(n: int, wrong: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Matches of points on a line in space, some of them wrong."""
    rng, v = np.random.default_rng(seed), two_views(10, seed=seed)
    along = rng.normal(size=3)
    X = np.array([0.0, 0.0, 6.0]) + np.linspace(-1.2, 1.2, n)[:, None] * along / np.linalg.norm(along)
    views = [(Y / Y[:, 2:] @ v.K.T)[:, :2] for Y in (X, X @ v.R.T + v.t)]
    x = np.hstack(views) + 0.3 * rng.normal(size=(n, 4))
    x[: int(wrong * n)] = rng.uniform(size=(int(wrong * n), 4)) * [640, 480, 640, 480]
    return x[:, :2], x[:, 2:]


@pytest.mark.parametrize("function", [essential, fundamental_matrix, homography])
@pytest.mark.parametrize("wrong", [0.0, 0.3, 0.6])
def test_points_on_a_line_with_wrong_matches(function, wrong):
    for n in (60, 200) if wrong else (8, 30, 200):
        for seed in range(4):
            assert function(*a_line(n, wrong, seed)).status in ("degenerate", "no consensus")


@pytest.mark.parametrize("n", [12, 20, 60])
def test_few_matches_of_a_rotation_or_a_plane_determine_nothing(n):
    """The noise of few errors may be much larger than it looks, and R of such a pose makes up for it by t."""
    wrongly = 0
    for seed in range(10):
        turned = two_views(n, inliers=0.8, seed=700 + seed, baseline=0.0)
        plane = two_views(n, inliers=0.8, seed=700 + seed, plane=True)
        wrongly += essential(turned.x1, turned.x2).status == "ok"
        wrongly += fundamental_matrix(turned.x1, turned.x2).status == "ok"
        wrongly += fundamental_matrix(plane.x1, plane.x2).status == "ok"
    assert wrongly <= 3
    views = [two_views(n, seed=700 + seed) for seed in range(10)]
    assert sum(essential(v.x1, v.x2).status == "ok" for v in views) >= (7 if n == 12 else 9)


def test_a_camera_matrix_in_other_units():
    for K in (np.eye(3), (1.3, 1.3, 0.5, 0.4)):
        for robust in (True, False):
            with pytest.raises(ValueError, match=r"x1 looks like pixels .* K1 must have the focal length"):
                essential_matrix(VIEWS.x1, VIEWS.x2, K, robust=robust)
    with pytest.raises(ValueError, match=r"x2 looks like pixels .* K2 must have"):
        essential_matrix(VIEWS.x1, VIEWS.x2, VIEWS.K, np.eye(3))


@pytest.mark.parametrize(("function", "sample", "plane"), [(essential, 6, False), (homography, 4, True)])
def test_matches_that_repeat_up_to_rounding(function, sample, plane):
    v, rng = two_views(sample, seed=1, plane=plane), np.random.default_rng(0)
    x = np.repeat(np.hstack([v.x1, v.x2]), 60, axis=0) * (1.0 + 1e-13 * rng.normal(size=(60 * sample, 4)))
    assert function(x[:, :2], x[:, 2:]).status == "no consensus"


def test_lines_are_found_with_their_noise_and_nothing_else_is_one():
    rng = np.random.default_rng(12)
    for n in (8, 40, 41, 500):
        for noise in (0.3, 3.0):
            x = rng.uniform(0.0, 640.0, (n, 4))
            assert not on_a_line(x, 0, noise**2)
            x[:, 3] = 0.4 * x[:, 2] + noise * rng.normal(size=n)
            assert on_a_line(x, 1, noise**2)
            assert not on_a_line(x, 0, noise**2)
            if n >= 40:
                wrong = rng.permutation(n)[: int(0.15 * n)]
                x[wrong, 3] = rng.uniform(0.0, 480.0, len(wrong))
                assert on_a_line(x, 1, noise**2)
                wrong = rng.permutation(n)[: int(0.6 * n)]
                x[wrong, 3] = rng.uniform(0.0, 480.0, len(wrong))
                assert not on_a_line(x, 1, noise**2)
