"""Limits of the parameters: how far a step may lead."""

import numpy as np

import problm
from problm.linalg.space import Space


def test_a_step_goes_half_of_the_way_to_a_bound_until_it_is_near():
    space = Space(2, lower=np.zeros(2), upper=np.array([10.0, np.inf]), start=np.array([4.0, 2.0]))
    down, up = space.room(np.array([4.0, 1e-5]))
    np.testing.assert_array_equal(down, [-2.0, -1e-5])  # the second is near its bound, and may end on it
    np.testing.assert_array_equal(up, [3.0, np.inf])


def test_a_minimum_on_a_bound_is_found_there():
    x = np.linspace(0, 1, 200)
    fit = problm.least_squares(lambda t, x: t[0] + t[1] * x - (0.5 - x), [1.0, 1.0], data=(x,), bounds=(0, np.inf))
    assert fit.success
    assert fit.x[1] == 0.0
    assert fit.active_mask.tolist()[1] == -1
