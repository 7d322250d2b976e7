"""Units of parameters, and the roles that follow from them."""

import numpy as np
import pytest

import problm
from problm import models
from problm.models.dimensions import parameter_units
from problm.models.guesses.parameter_roles import roles_of

X, Y, NONE = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
UNKNOWN = [np.nan, np.nan]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("a*exp(-b*x) + c", [Y, [-1.0, 0.0], Y]),
        ("a/(1 + ((x - m)/s)**2)", [Y, X, X]),
        ("a*sqrt(x**2 + s**2)", [[-1.0, 1.0], X]),
        ("a*sin(2*pi*x/P + p)", [Y, X, NONE]),
        ("a*log(x - 3 + b)", [UNKNOWN, UNKNOWN]),  # the logarithm of a length
        ("a*tanh((x - 3)/s)", [Y, X]),  # 3 has units
        ("where(x < m, a, b*x)", [X, Y, [-1.0, 1.0]]),
    ],
)
def test_units_follow_from_the_formula(text, units):
    body = problm.formula(text).body
    np.testing.assert_array_equal(parameter_units(body, len(units), 1), np.array(units))


def test_rotated_variables_have_the_same_units():
    body = problm.formula("a*exp(-((x*cos(q) + y*sin(q))/s)**2)", ("x", "y")).body
    np.testing.assert_array_equal(parameter_units(body, 3, 2), [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])


def test_units_decide_between_roles():
    for model, name, role in [
        (models.split_lorentzian(), "gamma_left", "width"),
        (models.exponential_gaussian(), "rate", "rate"),
        (models.doniach(), "asymmetry", "other"),
        (models.arrhenius(), "energy", "width"),
        (problm.formula("c + a*cos(2*pi*(x - t)/P)"), "P", "period"),
    ]:
        i = model.parameters.index(name)
        assert roles_of(model.body, len(model.parameters), 1, [i])[i].role == role, name
