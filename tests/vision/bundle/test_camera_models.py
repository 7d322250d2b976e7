"""Camera models: the table, the derivatives of every distortion, and a model of one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numba import njit

from problm import read_colmap, write_colmap
from problm.vision.bundle import camera_models, projection
from problm.vision.bundle.adjust import bundle_adjustment
from problm.vision.bundle.camera_models import BROWN, DISTORTIONS, MODELS, PLACES, CameraModel, Distortion, Intrinsics
from tests.helpers.cameras import PARAMS
from tests.vision.bundle.test_adjust import perturbed, scene

K = np.array([-0.1, 0.05, 0.03, -0.02, 0.02, 0.1, -0.03, 0.01])


def test_every_model_is_tested():
    assert set(PARAMS) == set(MODELS)
    assert {name for name, model in MODELS.items() if model.distortion is BROWN} == {
        "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV",
    }  # fmt: skip


def check(distortion, k):
    """Derivatives against differences, and compiled code against NumPy."""
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-0.8, 0.8, (2, 50))
    u[0] = v[0] = 0.0
    _, by = distortion.apply(u, v, k)
    h = 1e-6
    for j, (a, b) in enumerate(((h, 0.0), (0.0, h))):
        up, down = (np.array(distortion.apply(u + s * a, v + s * b, k)[0]) for s in (1, -1))
        np.testing.assert_allclose([by[j], by[2 + j]], (up - down) / (2 * h), atol=1e-9)
    columns = distortion.by_coefficients(u, v, k, 2.0, 3.0)
    assert len(columns) == len(distortion.names)
    for j, found in enumerate(columns):
        up, down = (np.array(distortion.apply(u, v, k + s * h * np.eye(len(k))[j])[0]) for s in (1, -1))
        np.testing.assert_allclose(found, np.array([[2.0], [3.0]]) * (up - down) / (2 * h), atol=1e-8)

    table = (*DISTORTIONS, distortion)
    distorted, columns_of = projection.distorted_by_number(table), projection.columns_by_number(table)

    @njit
    def compiled(number, u, v, k, local, J):
        columns_of(number, u, v, k, 2.0, 3.0, local, J)
        return distorted(number, u, v, k)

    local, J = np.full(6 + PLACES, -1), np.zeros((2, 1))
    local[11] = 0
    padded = (*k, *np.zeros(PLACES))[: PLACES - 4]
    (a, b), _ = compiled(float(len(table) - 1), u[1], v[1], padded, local, J)
    np.testing.assert_allclose((a, b), np.array(distortion.apply(u, v, k)[0])[:, 1], rtol=1e-14)
    np.testing.assert_allclose(J[:, 0], np.array(columns[1])[:, 1], rtol=1e-14)


@pytest.mark.parametrize("distortion", DISTORTIONS, ids=lambda d: d.apply.__name__)
def test_derivatives_of_every_distortion(distortion):
    check(distortion, K)


def test_fisheye_is_opencv_s():
    cv2 = pytest.importorskip("cv2")
    camera = Intrinsics("OPENCV_FISHEYE", PARAMS["OPENCV_FISHEYE"])
    x = np.random.default_rng(0).uniform(-2, 2, (20, 3)) + np.array([0, 0, 4])
    fx, fy, cx, cy, *k = PARAMS["OPENCV_FISHEYE"]
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    expected = cv2.fisheye.projectPoints(x[:, None], np.zeros(3), np.zeros(3), matrix, np.array(k))[0][:, 0]
    np.testing.assert_allclose(camera.project(x), expected, atol=1e-9)
    np.testing.assert_allclose(camera.project([[0.0, 0.0, 2.0]]), [[cx, cy]])


def test_a_camera_model_is_one_entry(monkeypatch, tmp_path):
    """The recipe of CONTRIBUTING.md, for a distortion that is there: adjusted, written and read."""
    monkeypatch.setitem(MODELS, "TANGENTIAL", CameraModel("f cx cy p1 p2"))
    monkeypatch.setitem(PARAMS, "TANGENTIAL", (700.0, 10.0, -5.0, 0.01, -0.02))
    truth = scene(C=4, P=200, noise=0.0, model="TANGENTIAL")
    start = perturbed(truth, 0.005, 0.01, 0.01)
    start = replace(start, intrinsics=(Intrinsics("TANGENTIAL", (690.0, 10.0, -5.0, 0.0, 0.0)),))
    found = bundle_adjustment(start, intrinsics=["focal", "distortion"]).model
    np.testing.assert_allclose(found.intrinsics[0].params, PARAMS["TANGENTIAL"], rtol=1e-5)
    write_colmap(found, tmp_path)
    assert read_colmap(tmp_path).intrinsics == found.intrinsics


def test_a_distortion_is_one_entry():
    """The recipe for a new one: three functions in one place; NumPy and compiled code come from them."""

    def division(u, v, k):
        s = 1.0 / (1.0 + k[0] * (u * u + v * v) + k[1])
        bend = -2.0 * k[0] * s * s
        return (u * s, v * s), (s + u * u * bend, u * v * bend, u * v * bend, s + v * v * bend)

    def by_coefficients(u, v, k, fx, fy):
        q = u * u + v * v
        s = -1.0 / (1.0 + k[0] * q + k[1]) ** 2
        return (fx * u * q * s, fy * v * q * s), (fx * u * s, fy * v * s)

    check(Distortion(("k1", "k2"), division, by_coefficients), np.array([-0.1, 0.2]))
    assert camera_models.CameraModel("f cx cy k2", Distortion(("k1", "k2"), division, by_coefficients)).places == (
        0, 0, 1, 2, -1, 3,
    )  # fmt: skip
