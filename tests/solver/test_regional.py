"""Covariance over regions of an image: true for noise that changes, and for neighbours that share their errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from problm.api.curve_fit import fit
from problm.models.formula import formula
from problm.sampling.regions import Regions
from problm.solver.regional import regional_covariance, scores_covariance

N = 800
PLANE = formula("a + b*x + c*y", variables=("x", "y"))


class TestRegions:
    @pytest.mark.parametrize("n", [1, 7, 40, 100, 5000])
    def test_every_point_is_in_one_part(self, n):
        found = Regions.of(np.random.default_rng(n).normal(size=(n, 2)))
        assert np.array_equal(np.sort(found.order), np.arange(n))
        assert found.edges[0] == 0
        assert found.edges[-1] == n
        assert (np.diff(found.edges) > 0).all()
        assert set(found.regions) <= set(found.tiles) <= set(range(len(found.edges) - 1))

    def test_tiles_are_compact(self):
        points = np.random.default_rng(0).uniform(size=(6400, 2))
        found = Regions.of(points)
        bounds = np.append(found.edges[found.tiles], 6400)
        sides = [np.ptp(points[found.order[lo:hi]], axis=0).max() for lo, hi in pairwise(bounds)]
        assert max(sides) < 0.25  # 64 squares of a side of 1/8

    def test_equal_points(self):
        assert len(Regions.of(np.zeros((100, 2))).order) == 100


def plane_fit(x, y, z, **options):
    """Fit of a plane over the image, its covariance by regions, and that of independent rows."""
    result = fit(PLANE, np.stack([x, y]), z, [1.0, 2.0, -1.0], **options)
    points = np.stack([x, y], axis=1)
    return result.x, regional_covariance(result.problem, result.x, points, 1.0), result.covariance


def z_values(noise, runs=150):
    """z of the three parameters over runs: by regions, and for independent rows."""
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        x, y = rng.uniform(-1, 1, (2, N))
        theta, regional, independent = plane_fit(x, y, 1.0 + 2.0 * x - y + noise(rng, x, y))
        d = theta - [1.0, 2.0, -1.0]
        found.append([d / np.sqrt(np.diag(C)) for C in (regional, independent)])
    return np.array(found).transpose(1, 0, 2)


def rms(z):
    return float(np.sqrt((z**2).mean()))


def test_independent_noise():
    z, _ = z_values(lambda rng, x, y: rng.normal(size=N))
    assert 0.88 < rms(z) < 1.1
    assert 0.92 < (np.abs(z) < 1.96).mean() < 0.98


def test_noise_that_changes_over_the_image():
    z, independent = z_values(lambda rng, x, y: (0.1 + x**2 + y**2) * rng.normal(size=N))
    assert 0.88 < rms(z) < 1.12
    assert rms(independent) > 1.1


def test_errors_that_neighbours_share():
    def noise(rng, x, y):
        cells = (np.floor(6 * x) + 100 * np.floor(6 * y)).astype(int) + 1000
        return rng.normal(size=3000)[cells] + 0.5 * rng.normal(size=N)

    z, independent = z_values(noise)
    assert 0.85 < rms(z) < 1.2
    assert rms(independent) > 1.8


def test_the_curvature_counts():
    """A robust loss whose scale is that of the noise: J^T W J is not the curvature of its cost."""
    found = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x, y = rng.uniform(-1, 1, (2, N))
        theta, C, _ = plane_fit(x, y, 1.0 + 2.0 * x - y + rng.standard_t(3, size=N), loss="cauchy")
        found.append((theta - [1.0, 2.0, -1.0]) / np.sqrt(np.diag(C)))
    assert 0.88 < rms(np.array(found)) < 1.12


def test_a_direction_that_is_not_determined():
    x = np.linspace(0.0, 1.0, N)
    assert plane_fit(x, x, np.sin(x))[1] is None


def test_scores_of_independent_parts():
    """Whatever the number of points, the sum over tiles is right on average."""
    rng = np.random.default_rng(4)
    for n in (40, 400):
        found = Regions.of(rng.uniform(size=(n, 2)))
        m, sums = len(found.edges) - 1, []
        for _ in range(300):
            scores = rng.normal(size=(m, 2)) / np.sqrt(m)
            scores -= scores.mean(axis=0)
            shares = np.broadcast_to(np.eye(2) / m, (m, 2, 2))
            sums.append(np.trace(scores_covariance(scores, shares, found)) / 2)
        assert 0.95 < np.mean(sums) < 1.3
