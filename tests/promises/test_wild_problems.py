"""Claims on problems from forty families of formulas, polished by SciPy: all of them by ``bench.studies.trust``."""

import numpy as np
import pytest

from problm.solver.result import Status
from tests.helpers import wild_problems
from tests.helpers.polish import judged, polished

FALSE_ONCE = (
    ("power with offset", 42),  # next to the edge of where the model is defined, one derivative is 1e45
    ("step only", 44),  # a step so steep that no point sees its slope
    ("ellipse", 8011),  # a half axis of 10^7, along which errors of the differences exceed the derivatives
    ("saturated", 4_009_029),  # the cost falls along what the Jacobian does not see, more often than saddles are left
    ("nearly collinear", 8011),  # next to a bound, where normal equations lose a direction
)


@pytest.mark.parametrize("family", wild_problems.FAMILIES)
def test_no_success_is_false(family):
    for seed in (*range(1000, 1003), *(s for f, s in FALSE_ONCE if f == family)):
        wild = wild_problems.make(family, seed)
        verdict, found = judged(wild.fit, wild_problems.solved(wild))
        assert verdict in ("right", "honest"), (wild.fit.name, found)


@pytest.mark.parametrize(
    ("family", "seed", "status"),
    [
        ("edge", 14, Status.RUNS_AWAY),  # two parameters, whose difference stays
        ("two Lorentzians", 10, Status.NOT_DETERMINED),  # a peak between two points, of no width
    ],
)
def test_what_lost_its_influence_is_no_success(family, seed, status):
    wild = wild_problems.make(family, seed)
    outcome = wild_problems.solved(wild)
    assert outcome.result.status is status
    assert outcome.result.certificate == "none"


@pytest.mark.parametrize(("family", "seed"), [("sum of rates", 12), ("sum of rates", 25), ("hinge", 47)])
def test_redundant_parameters_on_a_bound_and_kinks_have_minima(family, seed):
    wild = wild_problems.make(family, seed)
    outcome = wild_problems.solved(wild)
    assert outcome.success
    assert polished(wild.fit, outcome.x).distance == 0.0


def test_the_judge_refutes_what_is_no_minimum():
    wild = wild_problems.make("logistic growth", 1000)
    outcome = wild_problems.solved(wild)
    assert outcome.success
    errors = outcome.result.standard_errors
    assert polished(wild.fit, outcome.x + errors * np.array([0.0, 0.5, 0.0])).refutes
    assert not polished(wild.fit, outcome.x).refutes
