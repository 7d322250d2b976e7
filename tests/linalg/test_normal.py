"""Normal equations: sums that merge, solves that do not depend on units, singular matrices that do not crash."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problm.linalg.dense import inverse_spd, solve_unit
from problm.linalg.normal import Normal


def solve_spd(matrix, vector):
    """As the solver uses `solve_unit`: in parameters scaled to a unit diagonal."""
    diagonal = matrix.diagonal()
    if not diagonal.max(initial=0.0) > 0.0:
        return np.zeros_like(vector), True
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, diagonal.max()))
    x, singular, _ = solve_unit(matrix * scale[:, None] * scale, scale * vector)
    return scale * x, singular


def random_spd(rng, d, condition):
    q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return (q * np.logspace(0, -np.log10(condition), d)) @ q.T


def sums(rng, n, d, outer=True):
    jacobian, residual = rng.standard_normal((n, d)), rng.standard_normal(n)
    gradients = jacobian * residual[:, None]
    return Normal(
        n,
        0.5 * residual @ residual,
        gradients.sum(axis=0),
        jacobian.T @ jacobian,
        gradients.T @ gradients if outer else None,
    )


@given(st.integers(1, 6), st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(0, 1000))
def test_merging_parts_gives_the_whole(d, sizes, seed):
    parts = [sums(np.random.default_rng(seed + i), n, d) for i, n in enumerate(sizes)]
    merged = Normal.zero(d, outer=True)
    for part in parts:
        merged = merged + part
    assert merged.count == sum(sizes)
    assert merged.cost == pytest.approx(sum(p.cost for p in parts))
    for name in ("gradient", "hessian", "outer"):
        np.testing.assert_allclose(getattr(merged, name), sum(getattr(p, name) for p in parts), atol=1e-12)
    other_way = parts[-1]
    for part in parts[-2::-1]:
        other_way = part + other_way
    np.testing.assert_allclose(other_way.hessian, merged.hessian, atol=1e-12)


def test_merging_without_outer_products():
    rng = np.random.default_rng(0)
    with_outer, without = sums(rng, 5, 2), sums(rng, 5, 2, outer=False)
    assert (with_outer + without).outer is None
    assert Normal.zero(3).outer is None
    fresh = Normal.zero(3, outer=True)
    fresh.hessian[0, 0] = 1.0
    assert fresh.outer[0, 0] == 0.0  # not the same memory


@pytest.mark.parametrize("d", [1, 2, 3, 8, 30])
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, 1e12])
def test_solve_and_inverse(d, condition):
    rng = np.random.default_rng(d)
    matrix = random_spd(rng, d, condition)
    x = rng.standard_normal(d)
    solved, singular = solve_spd(matrix, matrix @ x)
    assert not singular
    np.testing.assert_allclose(solved, x, rtol=0, atol=5e-15 * condition * d)
    inverse, singular = inverse_spd(matrix)
    assert not singular
    np.testing.assert_allclose(inverse @ matrix, np.eye(d), atol=1e-14 * condition * d)
    np.testing.assert_array_equal(inverse, inverse.T)


@given(st.integers(1, 8), st.integers(0, 10_000), st.floats(0, 140))
@settings(deadline=None)
def test_units_of_the_parameters_do_not_matter(d, seed, spread):
    # Scaling column j by s_j scales x_j by 1/s_j: exactly so for powers of two, over the whole range of numbers.
    rng = np.random.default_rng(seed)
    matrix = random_spd(rng, d, 1e6)
    vector = rng.standard_normal(d)
    s = 4.0 ** np.round(rng.uniform(-spread, spread, d))  # matrix diagonals are squares: keep their roots exact
    x, singular = solve_spd(matrix, vector)
    scaled, same = solve_spd(matrix * s[:, None] * s, vector * s)
    assert same == singular
    np.testing.assert_allclose(scaled * s, x, rtol=1e-9)
    inverse, _ = inverse_spd(matrix)
    np.testing.assert_allclose(inverse_spd(matrix * s[:, None] * s)[0] * s[:, None] * s, inverse, rtol=1e-7)


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_rank_deficient_gives_a_minimum_norm_solution(rank):
    rng = np.random.default_rng(rank)
    d = 5
    a = rng.standard_normal((20, rank)) @ rng.standard_normal((rank, d))
    matrix = a.T @ a
    vector = matrix @ rng.standard_normal(d)
    x, singular = solve_spd(matrix, vector)
    assert singular
    np.testing.assert_allclose(matrix @ x, vector, atol=1e-11)
    # Minimum norm in the units that make the diagonal one: no part of the solution lies in the null space there.
    root = np.sqrt(np.where(matrix.diagonal() > 0, matrix.diagonal(), 1.0))
    values, vectors = np.linalg.eigh(matrix / root[:, None] / root)
    np.testing.assert_allclose(vectors[:, values < 1e-10].T @ (root * x), 0, atol=1e-9)
    inverse, singular = inverse_spd(matrix)
    assert singular
    np.testing.assert_allclose(matrix @ inverse @ matrix, matrix, atol=1e-10)


def test_duplicated_and_constant_columns():
    rng = np.random.default_rng(3)
    j = rng.standard_normal((50, 3))
    j = np.column_stack([j, j[:, 0], np.zeros(50)])  # parameter 3 repeats parameter 0, parameter 4 does nothing
    x, singular = solve_spd(j.T @ j, j.T @ (j @ np.array([2.0, 1.0, -1.0, 0.0, 7.0])))
    assert singular
    np.testing.assert_allclose(x, [1.0, 1.0, -1.0, 1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (2, 2)])
def test_a_matrix_that_is_not_finite_is_told(bad, place):
    matrix = np.eye(3)
    matrix[place] = matrix[place[::-1]] = bad
    with np.errstate(invalid="ignore"):
        _, singular = solve_spd(matrix, np.ones(3))
        _, inverse_singular = inverse_spd(matrix)
    assert singular
    assert inverse_singular
