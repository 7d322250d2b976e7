"""Readers of matches and intrinsics, checks of input, undistortion."""

from itertools import pairwise

import numpy as np
import pytest

from problm.vision.two_view.consensus import estimate_threshold, log_chance, noise_scale, vote_weights
from problm.vision.two_view.essential import essential_matrix
from problm.vision.two_view.fundamental import fundamental_matrix
from problm.vision.two_view.homography import homography
from problm.vision.two_view.matches import check_intrinsics, check_matches, read_intrinsics, read_matches, undistort
from problm.vision.two_view.simulate import two_views

ROWS = np.array([[1.0, 2.0, 3.0, 4.0], [5.5, 6.5, 7.5, 8.5], [9.0, 10.0, 11.0, 12.0]])
K = np.array([[800.0, 0.0, 320.0], [0.0, 790.0, 240.0], [0.0, 0.0, 1.0]])


def text(rows, sep=" "):
    return "\n".join(sep.join(str(v) for v in row) for row in rows) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.txt", text(ROWS)),
        ("tabs.txt", text(ROWS, "\t")),
        ("comma.csv", text(ROWS, ",")),
        ("spaces.csv", text(ROWS, ", ")),
        ("semicolon.csv", text(ROWS, ";")),
        ("header.csv", "x1,y1,x2,y2\n" + text(ROWS, ",")),
        ("other.csv", "score,x2,y2,x1,y1\n" + text(np.c_[[9, 9, 9], ROWS[:, 2:], ROWS[:, :2]], ",")),
        ("blanks.csv", "track id,x1,y1,x2,y2\n" + text(np.c_[[9, 9, 9], ROWS], ",")),
        ("quoted.csv", '"x1","y1","x2","y2"\n' + text(ROWS, ",")),
        ("count.txt", "3\n" + text(ROWS)),
        ("comment.txt", "# matches\n\n" + text(ROWS)),
        ("more.txt", text(np.c_[ROWS, [0.1, 0.2, 0.3]])),
        ("ones.txt", text(np.c_[ROWS[:, :2], np.ones(3), ROWS[:, 2:], np.ones(3), [0, 1, 1]])),
        ("bom.csv", "\ufeffx1,y1,x2,y2\n" + text(ROWS, ",")),
    ],
)
def test_text_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    x1, x2 = read_matches(path)
    assert np.array_equal(x1, ROWS[:, :2])
    assert np.array_equal(x2, ROWS[:, 2:])


def test_numpy_files(tmp_path):
    np.save(tmp_path / "m.npy", ROWS.astype(np.float32))
    np.savez(tmp_path / "two.npz", x1=ROWS[:, :2], x2=ROWS[:, 2:])
    np.savez(tmp_path / "one.npz", anything=ROWS)
    for name in ("m.npy", "two.npz", "one.npz"):
        x1, x2 = read_matches(tmp_path / name)
        assert np.array_equal(np.c_[x1, x2], ROWS)
    np.savez(tmp_path / "odd.npz", a=ROWS, b=ROWS)
    with pytest.raises(ValueError, match=r"x1 and x2.*found a, b"):
        read_matches(tmp_path / "odd.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2 3\n4 5 6\n", "x1 y1 x2 y2"),
        ("1 2 3 4\n5 6 7\n", "line 2.*3 numbers"),
        ("1 2 3 4\nfive 6 7 8\n", "line 2.*not a row of numbers"),
        ("track id x1 y1 x2 y2\n9 1 2 3 4\n", "names 6 columns, and the rows have 5"),
        ("", "no rows"),
    ],
)
def test_bad_text_files(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_matches(path)


def test_pickled_arrays_are_not_opened(tmp_path):
    path = tmp_path / "evil.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        read_matches(path)


def test_intrinsics_files(tmp_path):
    K2 = K.copy()
    K2[0, 0] = 700.0
    (tmp_path / "one.txt").write_text(text(K))
    (tmp_path / "two.txt").write_text(text(K) + text(K2))
    (tmp_path / "four.txt").write_text("800 790 320 240")
    (tmp_path / "eight.csv").write_text("800,790,320,240\n700,790,320,240\n")
    np.save(tmp_path / "one.npy", K)
    np.save(tmp_path / "two.npy", np.array([K, K2]))
    np.savez(tmp_path / "k.npz", K=K)
    np.savez(tmp_path / "kk.npz", K1=K, K2=K2)
    for name, second in (
        ("one.txt", K), ("two.txt", K2), ("four.txt", K), ("eight.csv", K2),
        ("one.npy", K), ("two.npy", K2), ("k.npz", K), ("kk.npz", K2),
    ):  # fmt: skip
        a, b = read_intrinsics(tmp_path / name)
        assert np.array_equal(a, K), name
        assert np.array_equal(b, second), name
    (tmp_path / "bad.txt").write_text("1 2 3 4 5")
    with pytest.raises(ValueError, match="found 5"):
        read_intrinsics(tmp_path / "bad.txt")
    (tmp_path / "word.txt").write_text("focal 5")
    with pytest.raises(ValueError, match="not a list of numbers"):
        read_intrinsics(tmp_path / "word.txt")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 3)), "last row"),
        (np.diag([0.0, 800.0, 1.0]), "singular"),
        (np.diag([800.0, -800.0, 1.0]), "singular or mirrored"),
        (K.T, "transposed"),
        (np.full((3, 3), np.nan), "not finite"),
        (np.eye(4), "shape"),
        ("800", "camera matrix"),
    ],
)
def test_bad_camera_matrices(matrix, message):
    with pytest.raises(ValueError, match=message):
        check_intrinsics(matrix, "K1")
    views = two_views(20)
    with pytest.raises(ValueError, match=message):
        essential_matrix(views.x1, views.x2, matrix)


def test_good_camera_matrices():
    assert np.array_equal(check_intrinsics((800, 790, 320, 240), "K"), K)
    assert np.array_equal(check_intrinsics(2.0 * K, "K"), K)
    assert np.array_equal(check_intrinsics(None, "K"), np.eye(3))


@pytest.mark.parametrize(("function", "least"), [(essential_matrix, 5), (fundamental_matrix, 7), (homography, 4)])
class TestBadMatches:
    def test_too_few(self, function, least):
        x = two_views(50).x1[: least - 1]
        with pytest.raises(ValueError, match=f"at least {least} matches are needed, got {least - 1}"):
            function(x, x)

    def test_none_at_all(self, function, least):
        with pytest.raises(ValueError, match="at least"):
            function(np.empty((0, 2)), np.empty((0, 2)))

    def test_unequal_lengths(self, function, least):
        x = two_views(50).x1
        with pytest.raises(ValueError, match="x1 has 50 and x2 has 49"):
            function(x, x[1:])

    def test_not_finite(self, function, least):
        views = two_views(50)
        for bad in (np.nan, np.inf):
            x = views.x2.copy()
            x[7, 1] = bad
            with pytest.raises(ValueError, match="x2 row 7"):
                function(views.x1, x)

    def test_on_a_line_or_in_a_point(self, function, least):
        views = two_views(50)
        line = np.c_[np.linspace(0, 100, 50), np.linspace(0, 50, 50) + 3]
        with pytest.raises(ValueError, match="x1: all points lie on one line"):
            function(line, views.x2)
        with pytest.raises(ValueError, match="x2: all points coincide"):
            function(views.x1, np.full((50, 2), 7.0))

    def test_few_distinct(self, function, least):
        x = np.tile(two_views(50).x1[: least - 1], (5, 1))
        with pytest.raises(ValueError, match="distinct"):
            function(x, x)

    def test_shapes_with_a_remedy(self, function, least):
        x = two_views(50).x1
        for bad, hint in ((x.T, "transpose"), (np.c_[x, np.ones(50)], "homogeneous")):
            with pytest.raises(ValueError, match=hint):
                function(bad, bad)
        with pytest.raises(ValueError, match="numbers"):
            function(np.array([["a", "b"]] * 9), x)

    def test_bad_settings(self, function, least):
        x = two_views(50)
        for name, value, error in (
            ("threshold", -1.0, ValueError), ("threshold", "otto", ValueError), ("loss", "linear", ValueError),
            ("loss", "truncted", ValueError), ("levels", 0, ValueError), ("starts", "randem", ValueError),
            ("max_starts", 0, ValueError), ("confidence", 1.5, ValueError), ("threads", 0, ValueError),
            ("max_tyme", 1.0, TypeError), ("ftol", -1.0, ValueError), ("max_time", 0.0, ValueError),
        ):  # fmt: skip
            with pytest.raises(error, match=r"did you mean|must|not robust|not known"):
                function(x.x1, x.x2, **{name: value})

    def test_bad_start(self, function, least):
        x = two_views(50)
        with pytest.raises(ValueError, match="initial"):
            function(x.x1, x.x2, initial=np.zeros((3, 3)))
        with pytest.raises(ValueError, match="initial"):
            function(x.x1, x.x2, initial=np.eye(2))


def test_bad_pose_starts():
    x = two_views(50)
    for initial, message in (
        ((2.0 * np.eye(3), [1.0, 0, 0]), "not a rotation"),
        ((np.diag([1.0, 1, -1]), [1.0, 0, 0]), "not a rotation"),
        ((np.eye(3), [0.0, 0, 0]), "t is zero"),
        ((np.eye(3), [np.nan, 0, 0]), "not finite"),
        ((np.eye(3), [1.0, 0]), "shapes"),
    ):
        with pytest.raises(ValueError, match=message):
            essential_matrix(x.x1, x.x2, x.K, initial=initial)
    with pytest.raises(ValueError, match="parameterization"):
        essential_matrix(x.x1, x.x2, x.K, parameterization="quaternion")
    with pytest.raises(ValueError, match=r"error=.*sampson"):
        homography(x.x1, x.x2, error="samson")


def test_arrays_are_not_copied():
    x = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    a, b = check_matches(x[:, :2], x[:, 2:], 5, "model")
    assert np.shares_memory(a, x)
    assert np.shares_memory(b, x)
    whole, _ = check_matches(np.arange(20).reshape(10, 2) ** 2 % 17, x[:10, 2:], 5, "model")
    assert whole.dtype == np.float64


@pytest.mark.parametrize(
    "d", [[-0.2], [-0.2, 0.05], [-0.2, 0.05, 1e-3, -2e-3, 0.01], [0.1, 0, 0, 0, 0, 0.2, 0.1, 0.05]]
)
def test_undistortion_inverts_the_distortion(d):
    rng = np.random.default_rng(1)
    u = rng.uniform(-0.4, 0.4, (200, 2))
    k1, k2, p1, p2, k3, k4, k5, k6 = np.r_[d, np.zeros(8 - len(d))]
    q = (u**2).sum(1)
    radial = (1 + k1 * q + k2 * q**2 + k3 * q**3) / (1 + k4 * q + k5 * q**2 + k6 * q**3)
    tx = 2 * p1 * u[:, 0] * u[:, 1] + p2 * (q + 2 * u[:, 0] ** 2)
    ty = p1 * (q + 2 * u[:, 1] ** 2) + 2 * p2 * u[:, 0] * u[:, 1]
    distorted = np.c_[u[:, 0] * radial + tx, u[:, 1] * radial + ty] * [800, 790] + [320, 240]
    assert np.abs(undistort(distorted, K, d) - (u * [800, 790] + [320, 240])).max() < 1e-8


def test_undistortion_that_cannot_be():
    with pytest.raises(ValueError, match=r"row 1.*cannot be undistorted"):
        undistort(np.array([[320.0, 240.0], [5000.0, 240.0]]), K, [-0.5])
    with pytest.raises(ValueError, match="1 to 8"):
        undistort(np.zeros((1, 2)), K, [])


@pytest.mark.parametrize("freedom", [1, 2])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_noise_is_estimated(freedom, share):
    rng = np.random.default_rng(2)
    n = 5000
    inliers = np.linalg.norm(0.4 * rng.normal(size=(int(n * share), freedom)), axis=1)
    wrong = 100.0 * rng.uniform(size=n - len(inliers)) ** (1 / freedom)
    errors = np.r_[inliers, wrong]
    assert noise_scale(errors, 3.0, freedom) == pytest.approx(0.4, rel=0.12)
    # Also where the first look is too narrow: the window grows.
    wanted = 2.5 if freedom == 1 else np.sqrt(-2 * np.log(0.01242))
    assert estimate_threshold(errors, 0.7, freedom) == pytest.approx(0.4 * wanted, rel=0.2)


def test_noise_of_nothing_and_of_exact_matches():
    assert noise_scale(np.array([5.0, 6.0]), 1.0, 1) == pytest.approx(1 / 3)
    assert noise_scale(np.zeros(100), 1.0, 1) < 1e-9
    assert 0.0 < estimate_threshold(np.zeros(100), 1.0, 1) < 1e-5


def test_chance_grows_less_likely_with_inliers():
    values = [log_chance(1000, k, 0.02, 5) for k in (6, 30, 60, 100, 300)]
    assert values[0] > 0 > values[-1]
    assert all(a > b for a, b in pairwise(values[1:]))
    assert log_chance(1000, 5, 0.02, 5) == np.inf
    # Pure chance: the largest of many binomial counts stays insignificant.
    rng = np.random.default_rng(3)
    assert log_chance(1000, rng.binomial(1000, 0.02, 50_000).max(), 0.02, 5) > 0


def test_votes_of_repeated_points():
    x1 = np.array([[0, 0], [1, 0], [2, 0], [3, 0.0]])
    x2 = np.array([[5, 5], [5, 5], [5, 5], [6, 6.0]])
    assert np.allclose(vote_weights(np.c_[x1, x2]), [1 / 3, 1 / 3, 1 / 3, 1.0])
    assert np.array_equal(vote_weights(np.c_[x1, x1 + 1]), np.ones(4))


@pytest.mark.parametrize("freedom", [1, 2])
def test_wide_noise_is_not_taken_for_an_accidental_core(freedom):
    """Noise of twice the window of the search, with outliers; twelve matches fit exactly, as after a descent."""
    rng = np.random.default_rng(3)
    inliers = 2.0 * np.linalg.norm(rng.normal(size=(250, freedom)), axis=1)
    outliers = 300.0 * rng.uniform(size=500) ** (1.0 / freedom)
    errors = np.concatenate([inliers, outliers, 0.01 * rng.uniform(size=12)])
    wanted = 2.0 * (2.5 if freedom == 1 else np.sqrt(-2.0 * np.log(0.01242)))
    assert estimate_threshold(errors, 2.0, freedom) == pytest.approx(wanted, rel=0.2)
