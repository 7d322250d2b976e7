"""Moments and gradients of samples that came in clusters: the textbook's formulas, and what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problm.linalg.normal import Clusters, Normal
from problm.sampling.moments import Moments
from problm.solver.policies import confidence as bounds


def cluster_normal(jacobian, residual, starts):
    gradients = jacobian * residual[:, None]
    sums = np.add.reduceat(gradients, starts, axis=0)
    sizes = np.diff(starts, append=len(residual))
    clusters = Clusters(len(sums), float(sizes @ sizes), sizes @ sums)
    return Normal(
        len(residual), 0.5 * residual @ residual, gradients.sum(0), jacobian.T @ jacobian, sums.T @ sums, clusters
    )


def test_units_of_one_row_are_a_simple_sample():
    values = np.random.default_rng(0).standard_normal(50)
    single = Moments.clusters(values, np.arange(50))
    simple = Moments.of(values, extremes=True)
    assert (single.count, single.units, single.low, single.high) == (50, 50, simple.low, simple.high)
    assert single.mean == pytest.approx(simple.mean)
    assert single.sd == pytest.approx(simple.sd * math.sqrt(50 / 49))  # unbiased


def test_standard_error_of_clusters_is_that_of_repeated_draws():
    """Rows within a cluster share most of their value: the rows' own formula is four times too small."""
    rng = np.random.default_rng(1)
    population = rng.standard_normal((4000, 1)) + 0.2 * rng.standard_normal((4000, 16))
    means, errors, naive = [], [], []
    for _ in range(400):
        sample = population[rng.choice(4000, 40, replace=False)].ravel()
        m = Moments.clusters(sample, np.arange(0, 640, 16))
        means.append(m.mean)
        errors.append(m.sd / math.sqrt(m.units))
        naive.append(sample.std() / math.sqrt(640))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)
    assert np.mean(naive) < 0.3 * np.std(means)


def test_a_single_unit_tells_nothing():
    assert Moments.clusters(np.ones(5), np.array([0])).sd == math.inf
    assert bounds.student(1, 0.1) == math.inf


@pytest.mark.parametrize("n", [5, 30, 1000])
def test_student_widens_the_normal_radius_for_few_draws(n):
    from scipy import stats

    assert bounds.student(n, 0.1) == pytest.approx(stats.t.ppf(0.9, n - 1) / stats.norm.ppf(0.9))


@given(st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=9), min_size=1, max_size=5))
def test_merged_moments_are_those_of_the_union(parts):
    arrays = [np.array(p) for p in parts]
    merged = Moments.merge([Moments.of(a, True) for a in arrays])
    whole = Moments.of(np.concatenate(arrays), True)
    for name in ("count", "units", "mean", "sd", "low", "high"):
        assert getattr(merged, name) == pytest.approx(getattr(whole, name), abs=1e-7)


def test_covariance_of_clustered_gradients():
    rng = np.random.default_rng(2)
    starts = np.array([0, 3, 10, 12, 30])
    jacobian, residual = rng.standard_normal((40, 3)), rng.standard_normal(40)
    normal = cluster_normal(jacobian, residual, starts)
    gradients = jacobian * residual[:, None]
    sums, sizes = np.add.reduceat(gradients, starts, axis=0), np.diff(starts, append=40)
    centred = sums - sizes[:, None] * gradients.mean(0)
    np.testing.assert_allclose(normal.covariance(), centred.T @ centred / 40 * 5 / 4, atol=1e-13)
    parts = cluster_normal(jacobian[:10], residual[:10], np.array([0, 3])) + cluster_normal(
        jacobian[10:], residual[10:], np.array([0, 2, 20])
    )
    np.testing.assert_allclose(parts.covariance(), normal.covariance(), atol=1e-13)


def test_clusters_merge_with_rows_drawn_one_by_one():
    rng = np.random.default_rng(3)
    jacobian, residual = rng.standard_normal((20, 2)), rng.standard_normal(20)
    gradients = jacobian[:8] * residual[:8, None]
    rows = Normal(8, 1.0, gradients.sum(0), np.eye(2), gradients.T @ gradients)
    both = rows + cluster_normal(jacobian[8:], residual[8:], np.array([0, 6]))
    whole = cluster_normal(jacobian, residual, np.array([*range(8), 8, 14]))
    np.testing.assert_allclose(both.covariance(), whole.covariance(), atol=1e-13)
