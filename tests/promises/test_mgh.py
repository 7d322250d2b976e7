"""More-Garbow-Hillstrom: every problem from its standard start to a known minimum."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

import problm
from tests.helpers import mgh, zoo

FOLDER = Path(os.environ.get("PROBLM_DATA", "")) / "mgh"
PROBLEMS = {p.name: p for p in mgh.problems(FOLDER)} if os.environ.get("PROBLM_DATA") else {}
NAMES = PROBLEMS or [pytest.param("all", marks=pytest.mark.skip(reason="PROBLM_DATA does not name the folder of data"))]


def as_fit(problem):
    rows = np.arange(len(problem.fun(problem.x0)))
    return zoo.Fit(problem.name, lambda t, i: problem.fun(t)[i.astype(int)], problem.x0, (rows,))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("jac", ["2-point", "cs"])
def test_minimum(name, jac):
    problem = PROBLEMS[name]
    with np.errstate(all="ignore"):
        result = problm.least_squares(problem.fun, problem.x0, jac=jac)
        found = 2 * result.cost
        assert result.success, result.message
        assert found == pytest.approx(np.sum(problem.fun(result.x) ** 2), rel=1e-10, abs=1e-25)
        # Which of the known minima? They are printed to six digits: MINPACK polishes them from here.
        printed = min(problem.minima, key=lambda m: abs(m - found))
        assert found == pytest.approx(printed, rel=2e-5, abs=1e-12)
        polished = scipy.optimize.least_squares(
            problem.fun, result.x, jac="cs", method="lm", ftol=1e-15, xtol=1e-15, gtol=1e-15
        )
    if 2 * polished.cost > 0.999 * printed:  # MINPACK may leave a shallow minimum for another one
        assert found <= 2 * polished.cost * (1 + 1e-6) + 1e-12
    assert zoo.certificate(as_fit(problem), result.x).agrees()


@pytest.mark.parametrize("name", NAMES)
def test_formulas_take_complex_parameters(name):
    problem = PROBLEMS[name]
    x = problem.x0 * 1.01 + 0.003
    fit = as_fit(problem)
    scale = np.abs(fit.jacobian(x)).max()
    np.testing.assert_allclose(fit.jacobian(x), fit.jacobian(x, "3-point"), rtol=1e-5, atol=1e-6 * scale)
