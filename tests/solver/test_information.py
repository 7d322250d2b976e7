"""A batch knows which parameters it has too few rows for."""

from __future__ import annotations

import numpy as np
import pytest

import problm
from problm.solver.information import LEAST_ROWS, Information, inverse_root

LINE = problm.formula("a*exp(-0.5*((x-m)/s)**2) + b + c*x")


def spectrum(seed, n=100_000, share=2e-4, strength=100.0):
    """One line in a long spectrum, and a start half of its width away."""
    rng = np.random.default_rng([5, seed])
    x = np.linspace(0.0, 1.0, n)
    m, s = rng.uniform(0.2, 0.8), share / 4
    a = strength / np.sqrt(n * share / 2)
    y = LINE(x, a, m, s, 0.5, -1.0) + rng.standard_normal(n)
    return x, y, [a, m + 0.5 * share / 2, s, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["formula", "function"])
def test_a_line_of_few_channels_is_not_lost(kind):
    model = LINE if kind == "formula" else lambda x, a, m, s, b, c: LINE(x, a, m, s, b, c)
    for seed in range(8 if kind == "formula" else 2):
        x, y, start = spectrum(seed)
        found, covariance = problm.curve_fit(model, x, y, start)
        expected, _ = problm.curve_fit(LINE, x, y, start, acceptance="full")
        np.testing.assert_array_less(np.abs(found - expected), 0.1 * np.sqrt(covariance.diagonal()))


def test_parameters_of_one_group_in_a_thousand_do_not_move_by_noise():
    rng = np.random.default_rng(0)
    n, group = 200_000, 77
    x, g = rng.random(n), rng.integers(0, 1000, n)

    def residuals(t, x, g, y):
        return t[0] * np.exp(-t[1] * x) + np.where(g == group, t[2] * np.exp(-t[3] * x), 0.0) - y

    y = residuals([2.0, 1.0, 1.0, 5.0], x, g, 0.0) + 0.3 * rng.standard_normal(n)
    start = [1.0, 0.5, 0.8, 4.0]
    ours = problm.least_squares(residuals, start, data=(x, g, y))
    lm = problm.least_squares(residuals, start, data=(x, g, y), acceptance="full")
    assert ours.success
    assert ours.cost <= lm.cost * (1.0 + 1e-9)


class Rows:
    """A batch of rows of a linear model."""

    def __init__(self, jacobian):
        self.jacobian, self.asked = jacobian, 0

    def concentration(self, root):
        self.asked += 1
        white = self.jacobian @ root
        return (white * (white**2).sum(axis=1)[:, None]).T @ white

    def normal(self):
        from problm.linalg.normal import Normal

        return Normal(len(self.jacobian), 1.0, np.zeros(self.jacobian.shape[1]), self.jacobian.T @ self.jacobian)


def test_needed_rows_do_not_depend_on_how_parameters_are_mixed():
    rng = np.random.default_rng(1)
    jacobian = rng.standard_normal((500, 3))
    jacobian[5:, 2] = 1e-9  # five rows know the third parameter
    wanted = Information().needed(Rows(jacobian), Rows(jacobian).normal())
    assert wanted > LEAST_ROWS / 5
    for seed in range(5):
        mixed = jacobian @ (np.random.default_rng(seed).standard_normal((3, 3)) * [1e-6, 1.0, 1e6])
        batch = Rows(mixed)
        assert Information().needed(batch, batch.normal()) == pytest.approx(wanted, rel=1e-5)


def test_it_is_asked_once_per_batch_size():
    rng = np.random.default_rng(2)
    jacobian = rng.standard_normal((2000, 4))
    jacobian[45:, 3] = 0.0  # enough rows for the last parameter, but hardly
    batch, information = Rows(jacobian), Information()
    for _ in range(3):
        assert information.needed(batch, batch.normal()) == 1.0
    assert batch.asked == 1
    batch.jacobian = np.concatenate([jacobian, jacobian])
    information.needed(batch, batch.normal())
    assert batch.asked == 2


def test_a_batch_that_knows_plenty_is_the_last_one_asked():
    rng = np.random.default_rng(2)
    batch, information = Rows(rng.standard_normal((2000, 4))), Information()
    information.needed(batch, batch.normal())
    batch.jacobian = rng.standard_normal((4000, 4))
    assert information.needed(batch, batch.normal()) == 1.0
    assert batch.asked == 1


def test_a_parameter_without_any_rows_asks_for_more():
    jacobian = np.random.default_rng(3).standard_normal((400, 3))
    jacobian[:, 1] = 0.0
    root, regular = inverse_root(jacobian.T @ jacobian)
    assert not regular
    assert root.shape == (3, 2)
    assert Information().needed(Rows(jacobian), Rows(jacobian).normal()) > 1.0
