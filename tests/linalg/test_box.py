"""The minimum of a quadratic over a box."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from problm.linalg.box import minimum_in_box
from problm.linalg.dense import solve_unit


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.3, 1.0]), st.booleans())
def test_no_coordinate_can_move_downwards(d, seed, independence, by_user):
    """At the minimum the slope vanishes, or points out of the box (Karush, Kuhn, Tucker)."""
    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((3 * d, 1)) + independence * rng.standard_normal((3 * d, d))
    columns /= np.linalg.norm(columns, axis=0)
    matrix, gradient = columns.T @ columns, 3.0 * rng.standard_normal(d)
    low, high = -rng.exponential(size=d) * rng.integers(0, 2, d), rng.exponential(size=d)
    high[rng.random(d) < 0.2] = np.inf

    def solve(moving, right):
        return solve_unit(matrix[np.ix_(moving, moving)], right)[0]

    y = minimum_in_box(matrix, gradient, low, high, solve if by_user else None)
    assert np.all((low <= y) & (y <= high))
    slope = gradient + matrix @ y
    inwards = np.where(y <= low, np.minimum(slope, 0.0), np.where(y >= high, np.maximum(slope, 0.0), slope))
    # The decrease that is left along any coordinate, against what the way here has gained.
    gained = -(y @ (gradient + 0.5 * matrix @ y))
    assert np.all(0.5 * inwards**2 / matrix.diagonal() <= 1e-9 * max(gained, 1e-300) + 1e-20)


def test_who_is_there_already_stays_though_no_bound_is_near():
    nowhere = np.full(2, np.inf)
    np.testing.assert_array_equal(minimum_in_box(np.eye(2), np.zeros(2), -nowhere, nowhere), [0.0, 0.0])
