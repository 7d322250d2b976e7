"""Block matrices and their factor against dense ones."""

import numpy as np
import pytest

from problm.linalg.block_cholesky import Factor, Plan, minimum_degree
from problm.linalg.block_inverse import diagonal_blocks, held, inverse
from problm.linalg.blocks import BlockMatrix, Pattern


def matrix(nodes, seed=0, reach=6, hub=False):
    """A positive definite block matrix of a chain, and the same dense; ``hub``: the last node meets all others."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 10, nodes)
    present = np.zeros((nodes, nodes), dtype=bool)
    for a in range(nodes):
        present[min(nodes - 1, a + rng.integers(0, reach)), a] = True
    present[-1] |= hub
    pattern = Pattern(sizes, present)
    full = BlockMatrix(pattern, rng.normal(size=int(pattern.at[-1]))).toarray()
    full += full.T
    full += np.diag(np.abs(full).sum(axis=1) + rng.random(len(full)))
    values = [
        full[pattern.offset[a] : pattern.offset[a + 1], pattern.offset[b] : pattern.offset[b + 1]].ravel()
        for a, b in zip(pattern.row, pattern.column, strict=True)
    ]
    return BlockMatrix(pattern, np.concatenate(values)), full


@pytest.mark.parametrize(("nodes", "hub"), [(1, False), (2, False), (40, False), (40, True), (150, False), (150, True)])
def test_products_solutions_and_scales_are_those_of_the_dense_matrix(nodes, hub):
    blocks, full = matrix(nodes, nodes, hub=hub)
    rng = np.random.default_rng(1)
    x, scale = rng.normal(size=len(full)), rng.uniform(0.5, 2.0, len(full))
    np.testing.assert_array_equal(blocks.toarray(), full)
    np.testing.assert_array_equal(blocks.diagonal(), full.diagonal())
    np.testing.assert_allclose(blocks @ x, full @ x, atol=1e-12 * np.abs(full).max())
    np.testing.assert_allclose(blocks.scaled(scale, 3.0).toarray(), 3.0 * full * scale * scale[:, None])
    np.testing.assert_allclose((blocks + blocks * 2.0).toarray(), 3.0 * full)
    added = rng.random(len(full))
    factor = Factor(blocks, added)
    assert factor.regular
    np.testing.assert_allclose(factor.solve(x), np.linalg.solve(full + np.diag(added), x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(Factor(blocks).solve(np.eye(len(full))), np.linalg.inv(full), atol=1e-12)
    np.testing.assert_allclose(inverse(blocks), np.linalg.inv(full), atol=1e-12)
    np.testing.assert_allclose(inverse(blocks, diagonal=True), np.linalg.inv(full).diagonal(), atol=1e-12)


@pytest.mark.parametrize(("nodes", "hub"), [(1, False), (40, True), (150, False)])
def test_diagonal_blocks_of_the_inverse(nodes, hub):
    blocks, full = matrix(nodes, nodes, hub=hub)
    wanted, at = np.linalg.inv(full), blocks.pattern.offset
    for a, block in enumerate(diagonal_blocks(blocks)):
        mine = slice(at[a], at[a + 1])
        np.testing.assert_allclose(block, wanted[mine, mine], atol=1e-13)


def test_a_matrix_that_is_not_positive_definite_is_noticed():
    blocks, full = matrix(30)
    assert not Factor(blocks, -2.0 * full.diagonal()).regular


def test_null_directions_have_no_variance():
    blocks, full = matrix(20, 3)
    rng = np.random.default_rng(0)
    null = rng.normal(size=(len(full), 2))
    weight = np.linalg.qr(null)[0]
    dense = full - full @ weight @ np.linalg.solve(weight.T @ full @ weight, weight.T @ full)
    nodes = len(blocks.pattern.sizes)
    pattern = Pattern(blocks.pattern.sizes, np.ones((nodes, nodes), dtype=bool))
    values = [
        dense[pattern.offset[a] : pattern.offset[a + 1], pattern.offset[b] : pattern.offset[b + 1]].ravel()
        for a, b in zip(pattern.row, pattern.column, strict=True)
    ]
    found = inverse(BlockMatrix(pattern, np.concatenate(values), weight))
    root = np.sqrt(dense.diagonal())
    wanted = np.linalg.pinv(dense / root / root[:, None], rcond=1e-10, hermitian=True) / root / root[:, None]
    np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())
    at = pattern.offset
    for a, block in enumerate(diagonal_blocks(BlockMatrix(pattern, np.concatenate(values), weight))):
        np.testing.assert_allclose(block, found[at[a] : at[a + 1], at[a] : at[a + 1]], atol=1e-9 * np.abs(found).max())
    basis, fixed = held(null)
    assert np.linalg.cond(basis[fixed]) < 1e3


def test_a_chain_is_factored_without_fill():
    # Every node meets the two next ones: eliminated from the ends, nothing is added.
    n = 200
    near = [sum(1 << u for u in range(max(0, v - 2), min(n, v + 3)) if u != v) for v in range(n)]
    order, later = minimum_degree(near)
    assert sorted(order) == list(range(n))
    assert sum(s.bit_count() for s in later) == sum(s.bit_count() for s in near) // 2


def test_memory_is_that_of_the_blocks():
    nodes = 2000
    present = np.tri(nodes, k=0, dtype=bool) & ~np.tri(nodes, k=-13, dtype=bool)
    pattern = Pattern(np.full(nodes, 9), present)
    assert pattern.at[-1] < 13 * 81 * nodes
    plan = Plan.of(pattern)
    assert plan.at[-1] < 3 * pattern.at[-1]  # the factor; dense it would be 324 million entries
    assert sorted(plan.order) == list(range(9 * nodes))
