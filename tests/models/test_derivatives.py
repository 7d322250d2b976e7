"""Derivatives of expressions where values overflow."""

import numpy as np
import pytest

import problm


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a/(1+exp(-(x-m)/w))", (2.0, 1.0, 0.8)),
        ("a*exp(-exp(-(x-m)/w))", (2.0, 1.0, 0.8)),
        ("a/cosh((x-m)/w)", (2.0, 1.0, 0.8)),
        ("a/(1+(abs(x)/m)**(100/w))", (2.0, 3.0, 0.8)),
    ],
)
def test_derivatives_are_finite_where_a_part_of_the_curve_overflows(text, start):
    """Far from the centre of a steep curve exp overflows, the curve does not, and its derivatives vanish."""
    x = np.linspace(-900.0, 900.0, 4001)
    f = problm.formula(text)
    truth = np.array([start["amw".index(name)] for name in f.parameters])
    y = f(x, *truth) + 0.01 * np.sin(7.0 * x)
    assert np.isfinite(y).all()
    fit = problm.least_squares(f, truth * 1.05, data=(x, y))
    assert fit.success
    np.testing.assert_allclose(fit.x, truth, rtol=0.1)
