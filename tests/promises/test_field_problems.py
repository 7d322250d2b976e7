"""Claims on problems from more fields, polished by SciPy: all of them by ``bench.studies.trust``."""

import pytest

from tests.helpers import field_problems, random_problems, wild_problems, zoo
from tests.helpers.polish import judged, polished


@pytest.mark.parametrize("family", field_problems.FAMILIES)
def test_no_success_is_false(family):
    wild = field_problems.make(family, 1000)
    verdict, found = judged(wild.fit, wild_problems.solved(wild))
    assert verdict in ("right", "honest"), (wild.fit.name, found)


@pytest.mark.parametrize(("family", "seed"), [("pole", 2001), ("ratio", 2002)])
def test_redundant_parameters_with_one_of_them_on_a_bound_have_minima(family, seed):
    # What the Jacobian does not see turns with the parameters; nothing was lost.
    wild = field_problems.make(family, seed)
    outcome = wild_problems.solved(wild)
    assert outcome.success, outcome.message
    assert polished(wild.fit, outcome.x).distance == 0.0


def test_an_exact_fit_far_from_the_start_succeeds():
    fit = random_problems.make("square", 1029)  # parameters 18 times as large as at the start, residuals of 1e-14
    assert zoo.problm(fit).success
