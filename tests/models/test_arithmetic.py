"""Sums, differences, products and convolutions of models."""

import pickle

import numpy as np
import pytest

import problm
from problm import models

X = np.linspace(0.1, 8.0, 60)
G, L = models.gaussian(), models.line()


def test_sums_and_differences_keep_their_terms():
    model = G + G * 0.5 - L
    theta = (2.0, 3.0, 0.5, 1.0, 5.0, 0.7, 0.1, 0.2)
    assert model.parameters == (
        "amplitude_1", "center_1", "sigma_1", "amplitude_2", "center_2", "sigma_2", "slope", "intercept",
    )  # fmt: skip
    expected = G(X, *theta[:3]) + 0.5 * G(X, *theta[3:6]) - L(X, *theta[6:])
    np.testing.assert_allclose(model(X, *theta), expected, rtol=1e-13)
    assert len(model.terms) == 3
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(X, *theta), model(X, *theta))  # noqa: S301


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (-G, lambda g: -g),
        (2 * G, lambda g: 2 * g),
        (G / 4, lambda g: g / 4),
        (G + 1, lambda g: g + 1),
        (1 - G, lambda g: 1 - g),
        (G - 1.5, lambda g: g - 1.5),
    ],
)
def test_numbers(model, expected):
    theta = (2.0, 3.0, 0.5)
    assert model.parameters == G.parameters
    np.testing.assert_allclose(model(X, *theta), expected(G(X, *theta)), rtol=1e-13)


def test_products_and_quotients():
    decay = models.exponential()
    theta = (2.0, 3.0, 0.5, 1.0, 0.3, 0.1)
    for model, op in ((G * decay, np.multiply), (G / decay, np.divide)):
        assert model.parameters == ("amplitude_1", "center", "sigma", "amplitude_2", "rate", "offset")
        np.testing.assert_allclose(model(X, *theta), op(G(X, *theta[:3]), decay(X, *theta[3:])), rtol=1e-13)


def test_prefixes():
    model = G.prefixed("left_") + G.prefixed("right_")
    assert model.parameters == tuple(f"{side}_{n}" for side in ("left", "right") for n in G.parameters)


def test_convolution_with_an_instrument():
    shifts = np.linspace(-0.9, 0.9, 13)
    weights = np.exp(-0.5 * (shifts / 0.3) ** 2)
    weights /= weights.sum()
    seen = G.convolved(shifts, weights)
    wide = G(X, 2.0 * 0.5 / np.hypot(0.5, 0.3), 3.0, np.hypot(0.5, 0.3))
    np.testing.assert_allclose(seen(X, 2.0, 3.0, 0.5), wide, atol=2e-3)
    fit = problm.fit(seen + L, X, seen(X, 2.0, 3.0, 0.5) + 0.1 * X - 0.2)
    np.testing.assert_allclose(fit.values, [2.0, 3.0, 0.5, 0.1, -0.2], rtol=1e-5)
    with pytest.raises(ValueError, match="the same length"):
        G.convolved([0.0, 1.0], [1.0])


def test_what_cannot_be_combined_says_so():
    function = problm.model(lambda x, a: a * x)
    for combine in (lambda: G + function, lambda: G * function, lambda: -function, lambda: function + 1.0):
        with pytest.raises(TypeError, match="inside the function"):
            combine()
    with pytest.raises(ValueError, match="different variables"):
        G + models.gaussian_2d()
    with pytest.raises(TypeError):
        G + "x"
