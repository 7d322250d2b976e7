"""Graduated non-convexity: levels, budgets, bookkeeping."""

import numpy as np
import pytest

from problm.losses import Loss
from problm.problems.numpy_function import FunctionProblem
from problm.solver.graduated import graduated
from problm.solver.loop import solve
from problm.solver.result import Status


def cluster(outliers=0.4, n=2000, seed=0):
    rng = np.random.default_rng(seed)
    k = int(outliers * n)
    return np.concatenate([rng.normal(0.0, 0.5, n - k), rng.uniform(15.0, 60.0, k)])


def maker(x, seen=None):
    def make(loss):
        if seen is not None:
            seen.append(loss.scale)
        return FunctionProblem(lambda theta, x: theta[0] - x, lambda theta, x: np.ones((len(x), 1)), [x], 1, loss)

    return make


@pytest.mark.parametrize("name", ["truncated", "tukey", "geman_mcclure", "welsch", "cauchy"])
def test_finds_the_cluster_from_afar(name):
    x = cluster()
    loss = Loss.named(name, 2.0)
    fit = graduated(maker(x), np.array([20.0]), loss)
    # The M-estimate from the right start is the reference.
    reference = solve(maker(x)(loss), np.array([0.0]))
    assert fit.success
    assert abs(fit.x[0] - reference.x[0]) < 1e-4
    assert abs(fit.cost - reference.cost) < 1e-6 * reference.cost


def test_without_levels_the_start_sees_nothing():
    x = cluster()
    alone = solve(maker(x)(Loss.named("truncated", 2.0)), np.array([20.0]))
    assert abs(alone.x[0]) > 10.0


def test_scales_of_the_levels():
    seen = []
    graduated(maker(cluster(), seen), np.array([5.0]), Loss.named("truncated", 1.5), levels=4, factor=3.0)
    assert np.allclose(seen, [1.5 * 27, 1.5 * 9, 1.5 * 3, 1.5])


def test_one_level_is_a_plain_solve():
    x = cluster()
    loss = Loss.named("cauchy", 1.0)
    one = graduated(maker(x), np.array([1.0]), loss, levels=1)
    plain = solve(maker(x)(loss), np.array([1.0]))
    assert one.x[0] == plain.x[0]
    assert len(one.history) == len(plain.history)


def test_history_and_passes_cover_all_levels():
    x = cluster()
    fit = graduated(maker(x), np.array([20.0]), Loss.named("truncated", 2.0), keep_path=True)
    h = fit.history
    lengths = {len(h.seconds), len(h.batch_size), len(h.cost), len(h.damping), len(h.decision), len(h.path)}
    assert len(lengths) == 1
    assert h.seconds == sorted(h.seconds)
    assert h.residual_passes == sorted(h.residual_passes)
    assert fit.residual_passes >= h.residual_passes[-1] > 4.0  # five levels, each to all residuals
    assert fit.seconds >= h.seconds[-1]


def test_early_stop_is_cheaper_and_off_by_default():
    x = cluster(outliers=0.2, n=50_000)
    loss = Loss.named("truncated", 2.0)
    exact = graduated(maker(x), np.array([10.0]), loss, acceptance="full")
    quick = graduated(maker(x), np.array([10.0]), loss, early_stop=True)
    assert quick.jacobian_passes < 0.5 * exact.jacobian_passes
    assert abs(quick.x[0] - exact.x[0]) < 1e-4


def test_budget_is_for_all_levels_together():
    x = cluster(n=200_000)
    fit = graduated(maker(x), np.array([20.0]), Loss.named("truncated", 2.0), levels=8, max_time=0.02)
    assert fit.seconds < 2.0
    assert fit.status in (Status.TIME, Status.GRADIENT, Status.COST, Status.STEP)


def test_callback_ends_all_levels():
    calls = []
    fit = graduated(
        maker(cluster()), np.array([20.0]), Loss.named("truncated", 2.0), callback=lambda s: calls.append(s) or True
    )
    assert fit.status is Status.STOPPED
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": 0}, "levels"),
        ({"levels": 2.5}, "levels"),
        ({"factor": 1.0}, "factor"),
        ({"factor": np.nan}, "factor"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        graduated(maker(cluster()), np.array([0.0]), Loss.named("truncated", 1.0), **arguments)


def test_squared_residuals_cannot_be_graduated():
    with pytest.raises(ValueError, match="no scale"):
        graduated(maker(cluster()), np.array([0.0]), Loss.named("linear"))
