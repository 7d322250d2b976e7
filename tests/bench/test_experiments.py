"""The experiments: stand-ins, methods and adapters do what they say; some run from end to end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from bench.__main__ import execute, main
from bench.data import sources, stand_ins
from bench.data.instances import FORMULAS, bundle, compiled_curve, curve, essential, poses_near, random_poses
from bench.data.problems import damped_sine, double_gaussian, exponential
from bench.harness.environment import machine, versions
from bench.harness.methods import ALGORITHM_1, DEFAULT, LBFGS, LM, PAPER, Padded
from bench.harness.run import SCALES, Settings
from bench.paper import NAMES, experiment
from bench.paper.calibration import Recorder, run, upper_limit
from bench.paper.ransac import Robust
from bench.peers import poselib_peer, pyceres_peer, scipy_peer, version_of


def test_image_pairs_are_related_by_their_matrix():
    from problm.vision.alignment.problem import AlignmentProblem
    from problm.vision.images.image import read_image

    pair = stand_ins.image_pair(2021, 240, 320)
    assert pair.image1.dtype == np.uint8
    assert pair.image1.shape == pair.image2.shape == (240, 320)
    problem = AlignmentProblem(read_image(pair.image1, "image1"), read_image(pair.image2, "image2"), threads=1)
    assert problem.cost(problem.point(pair.matrix)) < 0.7 * problem.cost(problem.point(np.eye(3)))
    np.testing.assert_array_equal(stand_ins.image_pair(2021, 240, 320).image2, pair.image2)


def test_four_points_make_a_homography():
    a = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [0.0, 3.0]])
    b = a + np.array([[0.1, 0.2], [-0.3, 0.1], [0.2, 0.0], [0.0, -0.2]])
    H = stand_ins.homography_between(a, b)
    mapped = a @ H[:, :2].T + H[:, 2]
    np.testing.assert_allclose(mapped[:, :2] / mapped[:, 2:], b, atol=1e-12)


def test_matches_have_the_noise_and_the_share_that_were_asked_for():
    m = stand_ins.matches(1, 4000, 0.6, noise=0.5)
    errors = sources.sampson(m.x1, m.x2, m.K, m.R, m.t)
    assert m.inlier.mean() == pytest.approx(0.6)
    # The Sampson distance of points off by sigma in each coordinate is sigma times a unit Gaussian's size.
    assert errors[m.inlier].std() / np.sqrt(1 - 2 / np.pi) == pytest.approx(0.5, rel=0.05)
    assert np.median(errors[~m.inlier]) > 50
    assert np.linalg.norm(m.t) == pytest.approx(1.0)


def test_tracks_are_solved_to_their_noise():
    instance = bundle(stand_ins.tracks(0, 3, 300))
    outcome = LM.run(instance, 0, 0, {})
    assert outcome.status > 0
    assert instance.cost(outcome.x) < 0.1 * instance.cost(instance.starts[0])


@pytest.mark.parametrize("make", [exponential, double_gaussian, damped_sine])
def test_formulas_are_the_same_curves(make):
    made = make(500, 1, starts=1)
    one, other = curve(made), compiled_curve(made)
    assert made.name in FORMULAS
    assert other.cost(made.starts[0]) == pytest.approx(one.cost(made.starts[0]), rel=1e-12)
    g, h = (
        p.problem(0, p.loss).linearize(made.starts[0], 0, 500, outer=False, costs=None).gradient for p in (one, other)
    )
    np.testing.assert_allclose(g, h, rtol=1e-9, atol=1e-9 * np.abs(g).max())


def test_poses_lie_as_far_off_as_asked():
    m = stand_ins.matches(1, 10)
    for point in poses_near(np.random.default_rng(0), m.R, m.t, 5, 0.2, 0.3):
        turn = point[:9].reshape(3, 3) @ m.R.T
        assert np.arccos((np.trace(turn) - 1) / 2) == pytest.approx(0.2, abs=1e-6)
        assert np.arccos(point[9:] @ m.t) == pytest.approx(0.3, abs=1e-6)


@pytest.fixture(scope="module")
def pair():
    m = stand_ins.matches(7, 1500)
    return essential(m, poses_near(np.random.default_rng(0), m.R, m.t, 2, 0.2, 0.3))


@pytest.mark.parametrize("method", [LBFGS, PAPER, DEFAULT, poselib_peer.REFINE], ids=lambda m: m.key)
def test_all_methods_reach_the_minimum_of_lm(pair, method):
    if method.version() is None:
        pytest.skip(f"{method.label} is not installed")
    best = pair.cost(LM.run(pair, 0, 0, {"gtol": 1e-8}).x)
    outcome = method.run(pair, 0, 0, {"gtol": 1e-8})
    assert pair.cost(outcome.x) == pytest.approx(best, rel=1e-6)
    assert outcome.total_seconds > 0
    assert len(outcome.path) == len(outcome.seconds) == len(outcome.batch)


@pytest.mark.parametrize("method", [scipy_peer.LM, scipy_peer.TRF, pyceres_peer.METHOD], ids=lambda m: m.key)
def test_peers_reach_the_minimum_of_a_curve(method):
    if method.version() is None:
        pytest.skip(f"{method.label} is not installed")
    instance = curve(exponential(3000, 2, starts=1))
    best = instance.cost(LM.run(instance, 0, 0, {"gtol": 1e-8}).x)
    assert instance.cost(method.run(instance, 0, 0, {}).x) == pytest.approx(best, rel=1e-6)


def test_a_peer_that_is_missing_is_left_out():
    assert version_of("a-package-that-does-not-exist")() is None


def test_padded_costs_keep_the_random_order(pair):
    problem = pair.problem(3, pair.loss)
    padded = Padded(problem)
    theta = pair.starts[0]
    n = problem.n
    first = padded.costs(theta, 0, 200)
    costs = np.empty(n - 200)
    padded.linearize(theta, 200, n, outer=False, costs=costs)
    everything = padded.costs(theta, 0, n)
    np.testing.assert_allclose(everything, np.concatenate([first, costs]), rtol=1e-12)
    natural = problem.costs(theta, 0, n)
    np.testing.assert_array_equal(np.sort(everything), np.sort(natural))
    assert not np.array_equal(everything, natural)
    assert padded.cost(theta) == problem.cost(theta)


def test_algorithm_1_as_printed_stalls(pair):
    best = pair.cost(LM.run(pair, 0, 0, {}).x)
    outcome = ALGORITHM_1.run(pair, 0, 0, {})
    assert outcome.status == -5  # the test failed at K = N, where the batch cannot grow
    assert pair.cost(outcome.x) > 1.01 * best
    assert outcome.batch[-1] == pair.n


def test_calibration_judges_every_step_on_the_batch():
    instance = curve(exponential(5000, 1, starts=1))
    instance.extra = 300
    counts = run(instance, 0, 4, {"max_iter": 200}).extra["counts"]
    totals = {name: c[2] + c[5] for name, c in counts.items()}
    assert len(set(totals.values())) == 1
    assert min(totals.values()) >= 4
    # With b = max |Y| Eq. 13 cannot pass below K = 2 ln(1/delta) / (1 - alpha)^2 = 460, whatever the data.
    assert counts["Eq. 13, α = 0.9 (paper)"][3] == counts["Eq. 13, α = 0.9 (paper)"][0] == 0
    assert counts["hold-out, normal (default)"][3] > 0


def test_the_recorder_takes_every_step():
    assert Recorder(300).first_batch(5000, 3) == 300
    assert upper_limit(0, 30) == pytest.approx(1 - 0.05 ** (1 / 30))
    assert upper_limit(5, 5) == 1.0


def test_inliers_are_judged_alike():
    m = stand_ins.matches(2, 1000, 0.5, noise=0.3)
    judge = Robust(m, 3.0, [0])
    t = m.t
    E = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]]) @ m.R
    extra = judge.judged(-2.0 * E, 0.1).extra  # scale and sign of E do not matter
    assert extra["right"] == extra["possible"] == 500
    assert judge.judged(None, 0.1).extra["inliers"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_plans_are_complete(name):
    e = experiment(name)
    assert e.name == name
    assert e.source.endswith(":EXPERIMENT")
    assert e.claim
    assert e.figures
    for scale in SCALES:
        cases = e.cases(Settings(None, scale))
        assert len({c.name for c in cases}) == len(cases) > 0
        assert all(c.starts >= 1 and c.repeats >= 1 for c in cases)
    keys = [m.key for m in e.methods]
    assert len(set(keys)) == len(keys)


def test_the_papers_setting_has_nothing_of_ours():
    e = experiment("alignment-paper")
    assert [m.key for m in e.methods] == ["lm-tenfold", "paper", "relaxed", "printed", "lbfgs"]
    settings = Settings(None, "check")
    theirs, ours = (experiment(n).cases(settings)[0].load() for n in ("alignment-paper", "alignment"))
    at = theirs.starts[0]

    def gradient(problem, theta):
        return problem.linearize(theta, 0, problem.n, outer=False, costs=None).gradient

    exact, averaged = (gradient(i.problem(0, i.loss), at) for i in (ours, theirs))
    assert not np.allclose(exact, averaged, rtol=1e-3)  # at K = N
    flat = [gradient(i.flat.problem(0, i.loss), i.flat.to_flat(at)) for i in (ours, theirs)]
    assert np.array_equal(*flat)  # L-BFGS: exact in both
    assert ours.cost(at) == theirs.cost(at)


def test_unknown_experiments_are_refused(capsys):
    with pytest.raises(ValueError, match="there is no experiment 'nothing'"):
        experiment("nothing")
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert main(["conditions", "--data", "/there/is/no/such/folder"]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_environment_names_versions_and_machine():
    assert {"python", "numpy", "scipy", "problm"} <= set(versions())
    assert machine()["cores"] >= 1


def test_random_poses_are_rotations_and_unit_vectors():
    for p in random_poses(np.random.default_rng(0), 4):
        R = p[:9].reshape(3, 3)
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        assert np.linalg.norm(p[9:]) == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alignment-paper", "conditions", "essential", "ransac", "bundle"])
def test_experiments_run_from_end_to_end(name, tmp_path, capsys):
    public = tmp_path / "public"
    assert execute([name], Settings(None, "check", 11), tmp_path, workers=1, figures=False, publish=public) == 0
    summary = json.loads((tmp_path / f"{name}.json").read_text())["data"]
    assert summary["finding"] in capsys.readouterr().out
    assert "nan" not in summary["finding"]
    assert summary["panels"]
    assert summary["tables"]
    assert all(len(row) == len(t["columns"]) for t in summary["tables"] for row in t["rows"])
    for file in (f"{name}.md", "report.html", "environment.json", f"raw/{name}.jsonl"):
        assert (tmp_path / file).stat().st_size > 0
    assert {p.name for p in public.iterdir()} == {f"{name}.md", f"{name}.json", "claims.md", "claims.json"}
    assert all(claim["found"] in (public / "claims.md").read_text() for claim in summary["claims"])
    assert "stand-ins, scale check; seed 11" in (public / f"{name}.md").read_text()
    assert "panels" not in json.loads((public / f"{name}.json").read_text())["data"]
    again = execute([name], Settings(None, "check", 11), tmp_path, workers=1, figures=False)
    assert again == 0  # the files are ours: replaced without --force


DATA = os.environ.get("PROBLM_DATA") or None


@pytest.mark.skipif(DATA is None, reason="PROBLM_DATA is not set: no real data")
def test_real_data_are_read():
    assert DATA is not None
    pairs = sources.strecha_pairs(DATA)
    assert len(pairs) == 32
    m = sources.strecha(DATA, "fountain-P11/0000_0001", 0)
    assert len(m.x1) == 1945
    assert m.inlier.sum() == 1312  # as its pairs.csv counts
    tracks = sources.castle_tracks(DATA, 3, None, 0)
    assert tracks.observations.shape == (3, 818, 2)
    assert len(sources.eth3d_putative(DATA, 0).x1) == 5000
    for name in (*sources.PAPER_PAIRS, *sources.MORE_PAIRS, sources.DINO):
        assert all(Path(p).exists() for p in sources.adelaide_files(DATA, name))
    with pytest.raises(FileNotFoundError, match="nosuchpair"):
        sources.adelaide_files(DATA, "nosuchpair")
