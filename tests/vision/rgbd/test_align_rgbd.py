"""`problm.align_rgbd` on rendered views, and what it says when it cannot know."""

import json

import numpy as np
import pytest

import problm
from problm.manifolds import rotation_log
from problm.vision.rgbd.simulate import two_frames


def aligned(frames, with_depth=False, **options):
    depth2 = frames.depth2 if with_depth else None
    return problm.align_rgbd(frames.image1, frames.depth1, frames.image2, frames.K, depth2, threads=1, **options)


def z_values(found, frames):
    off = np.concatenate([rotation_log(found.R @ frames.R.T), found.t - frames.t])
    return np.linalg.solve(np.linalg.cholesky(found.covariance), off)


@pytest.mark.parametrize("with_depth", [False, True])
@pytest.mark.parametrize("light", [(1.0, 0.0), (1.3, -0.1)])
def test_accuracy(with_depth, light):
    frames = two_frames(gain=light[0], bias=light[1], seed=11)
    found = aligned(frames, with_depth)
    assert found.status == "ok", found.message
    assert found.rotation_error(frames.R) < 0.06  # of 3 degrees
    assert found.translation_error(frames.t) < 0.002  # of 0.05
    assert found.gain == pytest.approx(light[0], abs=0.03)
    assert 0.7 < found.overlap < 1.0
    assert found.correlation > 0.98
    assert np.isnan(found.depth_noise) != with_depth
    assert np.allclose(found.rvec, rotation_log(found.R))


def test_errors_are_calibrated():
    z = []
    for seed in range(20, 32):
        frames = two_frames(120, 90, seed=seed)
        found = aligned(frames)
        assert found.status == "ok", (seed, found.message)
        z.append(z_values(found, frames))
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.3


def test_an_occluder_is_left_out():
    frames = two_frames(occluder=0.25, seed=12)
    found = aligned(frames)
    assert found.status == "ok", found.message
    assert found.rotation_error(frames.R) < 0.08
    assert np.abs(z_values(found, frames)).max() < 4.0
    assert 0.6 < found.inlier_share / found.overlap < 0.85
    assert aligned(frames, loss="linear").rotation_error(frames.R) > 2.0 * found.rotation_error(frames.R)


def test_unknown_depth_and_masks():
    frames = two_frames(holes=0.3, seed=13)
    found = aligned(frames, True)
    assert found.status == "ok", found.message
    assert found.rotation_error(frames.R) < 0.06
    unknown = frames.depth1 == 0.0
    for value in (np.nan, -1.0, np.inf):
        depth1 = np.where(unknown, np.float32(value), frames.depth1)
        depth2 = np.where(frames.depth2 == 0.0, np.float32(value), frames.depth2)
        again = problm.align_rgbd(frames.image1, depth1, frames.image2, frames.K, depth2, threads=1)
        assert np.array_equal(again.matrix, found.matrix)  # the same bits, also from run to run
    assert not found.inliers[unknown].any()
    assert np.isnan(found.warp()[unknown]).all()
    left = np.arange(frames.depth1.shape[1]) < 110
    used = np.broadcast_to(left, frames.depth1.shape)
    half = aligned(frames, mask1=used, mask2=used)
    assert half.status == "ok"
    assert not half.inliers[~used].any()


def test_units_of_depth():
    frames = two_frames(seed=14)
    metres = aligned(frames)
    millimetres = np.round(frames.depth1 * 1000.0).astype(np.uint16)
    found = problm.align_rgbd(frames.image1, millimetres, frames.image2, frames.K, threads=1)
    assert np.allclose(found.t / 1000.0, metres.t, atol=1e-4)
    assert np.allclose(found.standard_errors[3:] / 1000.0, metres.standard_errors[3:], rtol=0.1)


def test_a_turn_of_many_pixels_is_found():
    frames = two_frames(angle=9.0, shift=0.15, seed=21)
    found = aligned(frames)
    assert found.status == "ok", found.message
    assert found.rotation_error(frames.R) < 0.06


def test_a_start():
    frames = two_frames(angle=25.0, shift=0.2, seed=15)
    start = two_frames(angle=24.0, shift=0.2, seed=15)  # the same axis
    found = aligned(frames, initial=(start.R, start.t))
    assert found.status == "ok", found.message
    assert found.rotation_error(frames.R) < 0.06
    assert aligned(frames, initial=found).rotation_error(found.R) < 0.01


@pytest.mark.parametrize("with_depth", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_unrelated_views_do_not_fit(with_depth, seed):
    frames, other = two_frames(seed=seed), two_frames(seed=seed + 50)
    depth2 = other.depth2 if with_depth else None
    found = problm.align_rgbd(frames.image1, frames.depth1, other.image2, frames.K, depth2, threads=1)
    assert found.status in ("no fit", "not converged")
    assert not found.success
    assert not np.isfinite(found.covariance).any() or found.status == "not converged"


def test_stripes_on_a_wall_do_not_determine_the_motion_along_them():
    frames = two_frames(texture="stripes", relief=0.0, angle=1.0, shift=0.02, seed=16)
    found = aligned(frames)
    assert found.status == "degenerate", found.message
    assert "directions" in found.message
    along = found.undetermined @ np.array([0, 0, 0, 0, 1.0, 0])
    assert np.linalg.norm(along) > 0.5
    assert np.isnan(found.covariance).all()


def test_limits_are_said():
    found = aligned(two_frames(64, 48, seed=17), max_iter=0)
    assert found.status in ("ok", "not converged")
    found = aligned(two_frames(64, 48, seed=17), callback=lambda state: True, levels=1)
    assert found.status == "not converged"


def test_result(tmp_path):
    frames = two_frames(seed=18)
    found = aligned(frames, True)
    text = str(found)
    for word in ("RGB-D motion: ok", "rotation", "std. error", "overlap", "depth"):
        assert word in text
    content = json.loads(json.dumps(found.to_dict()))
    assert content["success"]
    assert np.allclose(content["rvec"], found.rvec)
    pytest.importorskip("matplotlib")
    found.plot(tmp_path / "motion.png")
    assert (tmp_path / "motion.png").stat().st_size > 1000
    seen = found.warp()
    known = np.isfinite(seen)
    assert np.corrcoef(seen[known], frames.image1[known])[0, 1] > 0.97


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth1": np.ones((5, 5))}, "depth1 must have the shape"),
        ({"depth1": np.zeros((48, 64))}, "depth1: 0 pixels"),
        ({"depth2": np.ones((5, 5))}, "depth2 must have the shape"),
        ({"K": np.eye(2)}, "K must be"),
        ({"loss": "tuky"}, "tukey"),
        ({"levels": 0}, "levels"),
        ({"blur": -1}, "blur"),
        ({"threads": 0}, "threads"),
        ({"photometric": "auto"}, "photometric"),
        ({"initial": np.eye(3)}, "initial"),
    ],
)
def test_wrong_arguments(change, message):
    frames = two_frames(64, 48, seed=19)
    given = {"image1": frames.image1, "depth1": frames.depth1, "image2": frames.image2, "K": frames.K, **change}
    with pytest.raises(ValueError, match=message):
        problm.align_rgbd(**given)
