"""The promise of the acceptance tests: of the steps that raise the cost over all residuals, at most delta pass.

Levenberg-Marquardt runs to convergence on small fixed batches, where late steps fit the batch's noise; every policy is
asked about every step, and the truth is the cost over everything. Counts are compared with the promise by exact
binomial limits, so that a run of bad luck is no failure and a broken test is. Rows that are alike within the chunks of
a file: `test_chunked.test_false_acceptance_stays_below_delta`. Larger counts: ``problm bench calibration``.
"""

from dataclasses import replace

import numpy as np
import pytest
from bench.data.instances import curve
from bench.data.problems import damped_sine, double_gaussian, exponential
from bench.paper.calibration import DELTA, run, upper_limit
from scipy.stats import beta

from problm.losses import as_loss

SIZE, STARTS = 10_000, 60
PROMISING = (
    "Eq. 13, α = 0.9 (paper)",
    "Eq. 13, α = 0",
    "hold-out, Hoeffding-Serfling",
    "hold-out, empirical Bernstein",
    "hold-out, normal (default)",
)


def smooth():
    return curve(exponential(SIZE, 1, starts=STARTS))


def many_parameters():
    return curve(double_gaussian(SIZE, 2, starts=STARTS))


def heavy_tails():
    return curve(damped_sine(SIZE, 3, starts=STARTS))


def robust():
    """One row in five is far off; a redescending loss."""
    made = exponential(SIZE, 4, starts=STARTS)
    x, y = made.data
    rng = np.random.default_rng(5)
    y = np.where(rng.random(SIZE) < 0.2, y + rng.uniform(-10, 10, SIZE), y)
    return replace(curve(replace(made, data=(x, y))), loss=as_loss("cauchy", 0.3))


def lower_limit(hits, trials, level=0.999):
    return 0.0 if hits == 0 else float(beta.ppf(1 - level, hits, trials - hits + 1))


@pytest.mark.parametrize("make", [smooth, many_parameters, heavy_tails, robust])
def test_false_acceptance(make):
    sums = {}
    for size in (100, 300):
        instance = replace(make(), extra=size)
        for start in range(STARTS):
            for name, counts in run(instance, start, start, {}).extra["counts"].items():
                sums[name] = np.add(sums.get(name, 0), counts)
    for name in PROMISING:
        passed, _, rose, _, _, fell = sums[name]
        assert rose > 50, "too few steps that raise the cost to say anything"
        assert fell > 50
        assert lower_limit(passed, rose) <= DELTA, f"{name}: {passed} of {rose}"
    passed, _, rose, good, _, fell = sums["hold-out, normal (default)"]
    assert passed <= DELTA * rose
    assert good > 0.3 * fell  # a test that rejects everything promises nothing
    assert upper_limit(passed, rose) < 2 * DELTA
