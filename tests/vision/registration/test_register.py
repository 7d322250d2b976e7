"""`problm.register` on simulated clouds, and what it says when it cannot know."""

import numpy as np
import pytest

import problm
from problm.manifolds import rotation_log
from problm.vision.registration.simulate import two_clouds


@pytest.mark.parametrize("shape", ["blob", "room"])
@pytest.mark.parametrize("overlap", [1.0, 0.6])
def test_accuracy(shape, overlap):
    clouds = two_clouds(10_000, shape=shape, overlap=overlap, seed=11)
    found = problm.register(clouds.source, clouds.target)
    assert found.status == "ok", found.message
    assert found.rotation_error(clouds.R) < 0.25
    assert found.translation_error(clouds.t) < 0.006
    assert found.inlier_share == pytest.approx(0.95 * overlap, abs=0.1)
    if overlap < 1.0:
        assert found.inliers[~clouds.shared].mean() < 0.15
    assert found.result.complete  # on all source points
    assert np.allclose(found.transform(clouds.source[:5]), (found.matrix[:3, :3] @ clouds.source[:5].T).T + found.t)


def test_outliers():
    clouds = two_clouds(10_000, outliers=0.3, seed=12)
    found = problm.register(clouds.source, clouds.target)
    assert found.status == "ok", found.message
    assert found.rotation_error(clouds.R) < 0.25


def test_batches_give_the_answer_of_all_points():
    clouds = two_clouds(30_000, seed=13)
    found = problm.register(clouds.source, clouds.target)
    every = problm.register(clouds.source, clouds.target, acceptance="full")
    errors = found.standard_errors
    apart = np.concatenate([rotation_log(found.R @ every.R.T), found.t - every.t])
    assert np.abs(apart / errors).max() < 0.5
    again = problm.register(clouds.source, clouds.target)
    assert np.array_equal(found.matrix, again.matrix)


def test_errors_are_calibrated():
    z = []
    for seed in range(20, 40):
        clouds = two_clouds(3000, seed=seed)
        found = problm.register(clouds.source, clouds.target)
        parameters = np.concatenate([rotation_log(found.R @ clouds.R.T), found.t - clouds.t])
        z.append(np.linalg.solve(np.linalg.cholesky(found.covariance), parameters))
    assert 0.8 < np.sqrt(np.mean(np.square(z))) < 1.2
    assert 0.9 < np.mean(np.abs(z) < 1.96) < 0.99


@pytest.mark.parametrize(("shape", "freedom"), [("plane", 3), ("sphere", 3), ("cylinder", 2)])
def test_directions_that_are_not_determined(shape, freedom):
    clouds = two_clouds(4000, shape=shape, seed=14)
    found = problm.register(clouds.source, clouds.target)
    assert found.status == "degenerate"
    assert len(found.undetermined) == freedom
    assert np.isnan(found.covariance).all()


def test_clouds_that_do_not_fit():
    first, second = two_clouds(4000, seed=15), two_clouds(4000, shape="room", seed=16)
    found = problm.register(second.source, first.target)
    assert found.status in ("no fit", "degenerate")
    assert not found.success


def test_any_rotation():
    clouds = two_clouds(5000, angle=160, shift=2.0, seed=17)
    found = problm.register(clouds.source, clouds.target, initial="auto")
    assert found.status == "ok"
    assert found.rotation_error(clouds.R) < 0.3


def test_starts():
    clouds = two_clouds(4000, angle=100, seed=18)
    start = np.eye(4)
    start[:3, :3], start[:3, 3] = clouds.R, clouds.t
    for initial in (start, (clouds.R, clouds.t)):
        assert problm.register(clouds.source, clouds.target, initial=initial).rotation_error(clouds.R) < 0.3


def test_scale_points_and_normals():
    clouds = two_clouds(5000, scale=1.04, seed=19)
    found = problm.register(clouds.source, clouds.target, scale=True)
    assert found.scale == pytest.approx(1.04, rel=0.003)
    assert found.covariance.shape == (7, 7)
    clouds = two_clouds(5000, seed=19)
    assert problm.register(clouds.source, clouds.target, method="point").rotation_error(clouds.R) < 0.5
    ball = two_clouds(5000, shape="room", seed=20)
    exact = problm.register(ball.source, ball.target)
    given = np.zeros_like(ball.target)
    from problm.vision.registration.target import Target

    near = Target(ball.target)
    given[:] = near.normals[near.tree.query(ball.target)[1]]
    with_normals = problm.register(ball.source, ball.target, normals=-given)
    assert with_normals.rotation_error(exact.R) < 0.2


def test_time_limit():
    clouds = two_clouds(20_000, seed=21)
    found = problm.register(clouds.source, clouds.target, max_time=1e-3)
    assert found.status in ("not converged", "no fit", "degenerate")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": np.zeros((5, 2))}, "source must be an array of points"),
        ({"source": np.full((20, 3), np.nan)}, "source: point 0 is not finite"),
        ({"source": np.zeros((3, 3))}, "at least 10"),
        ({"method": "plan"}, "method='plan' is not known"),
        ({"loss": "tuckey"}, "did you mean"),
        ({"initial": "best"}, "initial='best'"),
        ({"initial": np.eye(3)}, "4, 4"),
        ({"initial": (2 * np.eye(3), np.zeros(3))}, "not a rotation"),
        ({"max_distance": -1.0}, "max_distance must be a positive"),
        ({"normals": np.ones((3, 3))}, "normals must have the shape of target"),
        ({"threads": 0}, "threads"),
        ({"target": np.ones((20, 3))}, "all points are the same"),
    ],
)
def test_wrong_arguments(change, words):
    clouds = two_clouds(100, seed=0)
    arguments = {"source": clouds.source, "target": clouds.target, **change}
    with pytest.raises((ValueError, TypeError), match=words):
        problm.register(arguments.pop("source"), arguments.pop("target"), **arguments)


def test_against_small_gicp():
    small_gicp = pytest.importorskip("small_gicp")
    errors = []
    for seed in range(60, 63):
        clouds = two_clouds(10_000, overlap=0.7, seed=seed)
        found = problm.register(clouds.source, clouds.target)
        peer = small_gicp.align(
            clouds.target, clouds.source, downsampling_resolution=0.05, max_correspondence_distance=0.2
        )
        theirs = np.degrees(np.linalg.norm(rotation_log(peer.T_target_source[:3, :3] @ clouds.R.T)))
        errors.append((found.rotation_error(clouds.R), theirs))
    ours, theirs = np.median(errors, axis=0)
    assert ours < 1.5 * theirs


def test_report():
    clouds = two_clouds(2000, seed=3)
    found = problm.register(clouds.source, clouds.target)
    assert "std. error" in str(found)
    assert "Registration" in found._repr_html_()
    assert found.to_dict()["status"] == "ok"
