"""Each acceptance policy alone, against cases computed by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import problm
from problm.solver.policies import POLICIES, as_acceptance
from problm.solver.policies import confidence as bounds
from problm.solver.policies.acceptance import FullBatch, Holdout, Step, Verdict
from problm.solver.policies.paper_tests import Paper, RelaxedPaper, best_lower_bound, sum_test


@dataclass
class FakeProblem:
    cost_bound: float = math.inf
    robust: bool = False
    far: float | None = None

    def distance(self, theta: object, other: object) -> float | None:
        return self.far


@dataclass
class FakeBatch:
    """The part of a batch that policies see, with given changes."""

    inside: np.ndarray
    outside: np.ndarray = field(default_factory=lambda: np.empty(0))
    n: int = 1000
    problem: FakeProblem = field(default_factory=FakeProblem)
    theta: object = "here"
    trial_point: object = "there"
    asked: int = 0

    @property
    def size(self) -> int:
        return len(self.inside)

    @property
    def costs(self) -> np.ndarray:
        return np.zeros(self.size)

    @property
    def change(self) -> float:
        return float(self.inside.mean())

    def changes(self) -> np.ndarray:
        return self.inside

    def trial_costs(self) -> np.ndarray:
        return self.inside

    def held_out(self, count: int) -> np.ndarray:
        self.asked = count
        return self.outside[:count]

    def rows(self) -> np.ndarray:
        return np.arange(self.size)


def step_on(batch: FakeBatch, seed: int = 0, step: tuple[float, ...] = (3.0, 4.0)) -> Step:
    return Step(batch, np.array(step), lambda: np.random.default_rng(seed))  # type: ignore[arg-type]


# Eq. 13 with Y = (-4, -2, 1), b = 1: S(-4) = -5, width 5; S(-2) = -2 - 2 + 1 = -3, width 3. Both ratios are 1.
def test_search_for_a_by_hand():
    a, total = best_lower_bound(np.array([1.0, -4.0, -2.0]), 1.0)
    assert (a, total) in {(-4.0, -5.0), (-2.0, -3.0)}
    assert -total / (1.0 - a) == pytest.approx(1.0)
    assert best_lower_bound(np.array([0.0, 2.0]), 2.0) == (0.0, 0.0)


@given(
    st.lists(st.floats(-10, 10, allow_subnormal=False).map(lambda v: round(v, 6)), min_size=1, max_size=40),
    st.floats(0.0, 10.0),
)
def test_search_for_a_is_the_best_of_all(values, b):
    y = np.array(values)
    a, total = best_lower_bound(y, b)
    if not (y < 0).any():
        assert (a, total) == (0.0, 0.0)
        return
    assert total == pytest.approx(np.maximum(a, y).sum(), abs=1e-9)
    ratios = [-np.maximum(c, y).sum() / (b - c) for c in y[y < 0] if b - c > 0]
    assert -total / (b - a) >= max(ratios) - 1e-9


def test_equation_13_by_hand():
    # K = 8 equal changes of -1 with b = 1 (Eq. 14): S = -8, b - a = 2, threshold 2 sqrt(8 ln(10) / 2) / (1 - alpha).
    y = np.full(8, -1.0)
    needed = 2.0 * math.sqrt(8 * math.log(10.0) / 2)
    assert needed == pytest.approx(6.0697, abs=1e-3)
    assert sum_test(y, 1.0, 0.1, 0.0, 1000).accept
    refused = sum_test(y, 1.0, 0.1, 0.9, 1000)
    assert not refused.accept
    # Eq. 16: K^2 (b-a)^2 ln(1/delta) / (2 S^2 (1-alpha)^2) = 64 * 4 * ln 10 / (2 * 64 * 0.01) = 460.5.
    assert refused.grow_to == 461


def test_the_papers_constants_cannot_pass_below_460():
    # With b = max|Y| the best possible sample (all changes equal) still fails for K < 2 ln(1/delta)/(1-alpha)^2 = 460.
    for k in (100, 459):
        assert not sum_test(np.full(k, -1.0), 1.0, 0.1, 0.9, 10**6).accept
    assert sum_test(np.full(461, -1.0), 1.0, 0.1, 0.9, 10**6).accept


def test_growth_is_at_least_one_and_at_most_n():
    y = np.array([-1.0, 1.0, -0.01])
    assert sum_test(y, 1.0, 0.1, 0.9, 50).grow_to == 50
    assert sum_test(np.array([1.0, 2.0]), 2.0, 0.1, 0.9, 50).grow_to == 50


def test_upper_bound_from_sample_loss_and_lipschitz():
    y = np.full(600, -1.0)
    accepted = Paper(upper="sample").judge(step_on(FakeBatch(y)))
    assert accepted.accept
    # A loss that is bounded by 50 makes the test harder: b - a = 51.
    bounded = FakeBatch(y, problem=FakeProblem(50.0))
    assert not Paper().judge(step_on(bounded)).accept
    # L ||step|| = 0.2 * 5 = 1: the same as the sample's largest change.
    assert Paper(upper=0.2).judge(step_on(FakeBatch(y))).accept
    assert not Paper(upper=20.0).judge(step_on(FakeBatch(y))).accept


def test_groups_with_their_own_bounds():
    y = np.concatenate([np.full(500, -1.0), np.full(100, -0.01)])
    labels = np.array([0] * 500 + [1] * 9500)
    # sum (b-a)^2 = 500 * 4 + 100 * 4e-4, S = -501, needed = sqrt(2000.04 ln 10 / 2) = 47.99 at alpha = 0.
    policy = Paper(alpha=0.0, groups=labels, group_bounds={0: (-1.0, 1.0), 1: (-0.01, 0.01)})
    assert policy.judge(step_on(FakeBatch(y, n=10_000))).accept
    strict = Paper(alpha=0.95, groups=labels, group_bounds={0: (-1.0, 1.0), 1: (-0.01, 0.01)})
    verdict = strict.judge(step_on(FakeBatch(y, n=10_000)))
    needed = math.sqrt((500 * 4 + 100 * 4e-4) * math.log(10) / 2) / 0.05
    assert not verdict.accept
    assert verdict.grow_to == math.ceil(600 * (needed / 501) ** 2)
    with pytest.raises(ValueError, match="group_bounds go together"):
        Paper(groups=labels)


def test_groups_that_do_not_fit_are_refused():
    labels = np.array([0, 0, 1, 2])
    for policy in (Paper, RelaxedPaper):
        with pytest.raises(ValueError, match="no bounds for the groups 1, 2"):
            policy(groups=labels, group_bounds={0: (-1.0, 1.0)})
        with pytest.raises(ValueError, match="a must be below b"):
            policy(groups=np.zeros(4, int), group_bounds={0: (1.0, -1.0)})
        short = policy(groups=np.zeros(4, int), group_bounds={0: (-1.0, 1.0)})
        with pytest.raises(ValueError, match="one label per block, 1000, got 4"):
            short.judge(step_on(FakeBatch(np.full(4, -1.0))))
    with pytest.raises(ValueError, match="printed"):
        RelaxedPaper(printed=True, groups=np.zeros(4, int), group_bounds={0: (-1.0, 1.0)})


def test_relaxed_groups_count_from_t0():
    # 100 blocks in [-2, 2]: needed = sqrt(100 * 16 * ln(10) / 2) = 42.9 at alpha = 0.
    bounds_of_all = {0: (-2.0, 2.0)}
    policy = RelaxedPaper(alpha=0.0, eta=0.0, groups=np.zeros(1000, int), group_bounds=bounds_of_all)
    batch = FakeBatch(np.full(100, -0.42))
    refused = policy.judge(step_on(batch))
    assert (refused.accept, refused.grow_to) == (False, math.ceil(100 * (math.sqrt(800 * math.log(10)) / 42) ** 2))
    batch.inside = np.full(100, -0.44)  # since t0: costs were zero there
    assert policy.judge(step_on(batch)).accept


def test_hoelder_bound():
    y = np.full(600, -1.0)
    # ||step|| = 5: L 5^h = 1 with L = 0.2 and h = 1, or L = 1 / sqrt(5) and h = 1/2.
    for constant, exponent in ((0.2, 1.0), (1.0 / math.sqrt(5.0), 0.5)):
        batch = FakeBatch(y)
        step = step_on(batch)
        policy = Paper(upper=constant, exponent=exponent)
        assert policy.bound(batch, y, policy.power(step.step)) == pytest.approx(1.0)
        assert policy.judge(step).accept
    with pytest.raises(ValueError, match="exponent"):
        Paper(upper=1.0, exponent=1.5)
    for wrong in ("samples", -1.0, math.nan):
        with pytest.raises(ValueError, match="upper"):
            Paper(upper=wrong)


def test_relaxed_bounds_by_the_distance_since_t0():
    # K = 100, alpha = 0: changes of -1 pass with b = 0.2 * 5 = 1 (needed 2 * 10.7), and fail with b = 0.2 * 50 = 10.
    near, far = (FakeBatch(np.full(100, -1.0), problem=FakeProblem(far=d)) for d in (5.0, 50.0))
    assert RelaxedPaper(alpha=0.0, eta=0.0, upper=0.2).judge(step_on(near)).accept
    assert not RelaxedPaper(alpha=0.0, eta=0.0, upper=0.2).judge(step_on(far)).accept
    # Without a distance it is the length of the way: 5 after the first step, 10 after the second, ...
    curved = FakeBatch(np.full(100, -1.0))
    policy = RelaxedPaper(alpha=0.0, eta=0.0, upper=0.2)
    # b = 1, 2, ..., 8: -100 <= -(b + 1) 10.73 holds up to b = 8.
    assert [policy.judge(step_on(curved)).accept for _ in range(9)] == [True] * 8 + [False]


def test_delta_of_the_footnote():
    assert bounds.delta_per_step(1e-4, 100) == pytest.approx(1e-6, rel=1e-4)
    assert (1.0 - bounds.delta_per_step(0.3, 7)) ** 7 == pytest.approx(0.7)
    assert bounds.delta_per_step(1e-18, 10) == pytest.approx(1e-19)
    for bad in ((0.0, 10), (1.0, 10), (0.1, 0)):
        with pytest.raises(ValueError, match="must"):
            bounds.delta_per_step(*bad)


def test_relaxed_is_cumulative_since_t0():
    policy = RelaxedPaper(alpha=0.0, eta=0.0)
    batch = FakeBatch(np.full(100, -0.01) + 0.0)
    batch.inside[0] = 1.0  # one large rise: fails
    assert not policy.judge(step_on(batch)).accept
    batch.inside = np.full(100, -1.0)  # the same batch, costs now far below those at t0
    assert policy.judge(step_on(batch)).accept


def test_relaxed_coin():
    batch = FakeBatch(np.array([1.0] + [-0.02] * 99))
    verdicts = [RelaxedPaper(eta=0.5).judge(step_on(batch, seed)) for seed in range(400)]
    share = np.mean([v.accept for v in verdicts])
    assert 0.4 < share < 0.6
    assert all(v.grow_to == 0 for v in verdicts if v.accept)
    assert all(v.grow_to > 100 for v in verdicts if not v.accept)


@pytest.mark.parametrize("restore", ["t", "certified", "t0"])
def test_relaxed_restores(restore):
    policy = RelaxedPaper(alpha=0.0, eta=0.0, restore=restore)
    batch = FakeBatch(np.full(100, -1.0), theta="start", trial_point="first")
    assert policy.judge(step_on(batch)).accept
    batch.theta, batch.inside = "first", np.array([1.0] + [-0.001] * 99)
    batch.trial_point = "second"
    verdict = policy.judge(step_on(batch))
    assert not verdict.accept
    assert verdict.restores == (restore != "t")
    if restore != "t":
        assert verdict.restore == {"certified": "first", "t0": "start"}[restore]


def test_printed_equation_18_is_not_scale_invariant():
    y = np.concatenate([np.full(50, -1.0), np.full(50, 0.9)])
    verdicts = [sum_test(s * y, s * 1.0, 0.1, 0.9, 1000, printed=True).accept for s in (1e-3, 1e3)]
    assert verdicts == [False, True]
    assert [sum_test(s * y, s * 1.0, 0.1, 0.9, 1000).accept for s in (1e-3, 1e3)] == [False, False]


def test_printed_equation_18_searches_its_own_a():
    # Y = (-4, -2, 1), b = 1: -S(a) (b - a) is 5 * 5 at a = -4 and 3 * 3 at a = -2; -S(a) / (b - a) is 1 at both.
    assert best_lower_bound(np.array([1.0, -4.0, -2.0]), 1.0, printed=True) == (-4.0, -5.0)


@given(st.lists(st.floats(-10, 10).map(lambda v: round(v, 3)), min_size=1, max_size=30), st.floats(0.01, 10.0))
def test_printed_search_is_the_best_of_all(values, b):
    y = np.array(values)
    a, total = best_lower_bound(y, b, printed=True)
    products = [-np.maximum(c, y).sum() * (b - c) for c in y[y < 0]]
    assert -total * (b - a) >= max(products, default=0.0) - 1e-9


def test_printed_equation_18_has_the_papers_cost():
    # K = 100 changes of -x, b = x: passes if 100 x (2 x) >= 0.1 sqrt(50 ln 10), i.e. x >= 0.0732 in the paper's units.
    least = math.sqrt(0.1 * math.sqrt(50.0 * math.log(10.0)) / 200.0)
    for robust, unit in ((False, 2.0), (True, 1.0)):  # ||r||^2 is twice our cost, a robust loss is the same
        for share, expected in ((0.99, False), (1.01, True)):
            batch = FakeBatch(np.full(100, -share * least / unit), problem=FakeProblem(robust=robust))
            assert RelaxedPaper(printed=True, eta=0.0).judge(step_on(batch)).accept == expected


def test_holdout_by_hand():
    # K = 100, N = 1000: m = 0.1 * (-1) + 0.9 * mean_B; radius = 0.9 z sd sqrt((1 - 100/900) / 100).
    inside = np.full(100, -1.0)
    outside = np.tile([-1.0, 0.8], 50)  # mean -0.1, sd 0.9
    batch = FakeBatch(inside, outside)
    radius = 0.9 * 1.2815515655 * 0.9 * math.sqrt((1 - 100 / 900) / 100)
    mean = -0.1 - 0.09
    assert mean + radius < 0
    assert Holdout().judge(step_on(batch)) == Verdict(True, 0)
    assert batch.asked == 100
    doubtful = FakeBatch(inside * 0.1, np.tile([-1.0, 0.99], 50))  # falls, but not significantly
    assert Holdout().judge(step_on(doubtful)) == Verdict(True, None)
    rising = FakeBatch(inside, np.tile([-1.0, 1.5], 50))
    assert Holdout().judge(step_on(rising)) == Verdict(False, None)


def test_holdout_takes_all_that_is_left():
    batch = FakeBatch(np.full(900, -1.0), np.full(100, -1.0))
    assert Holdout().judge(step_on(batch)).accept
    assert batch.asked == 100


def test_a_change_that_is_not_a_number_is_not_accepted():
    batch = FakeBatch(np.full(100, -1.0), np.array([math.nan] * 100))
    assert Holdout().judge(step_on(batch)) == Verdict(False, None)


@pytest.mark.parametrize("bound", ["hoeffding-serfling", "empirical-bernstein"])
def test_rigorous_bounds_use_the_range(bound):
    # A narrow hold-out block passes with its own range and not with a loss bounded by 1000.
    inside, outside = np.full(400, -1.0), np.tile([-1.0, -0.9], 200)
    assert Holdout(bound=bound).judge(step_on(FakeBatch(inside, outside))).grow_to == 0
    wide = FakeBatch(inside, outside, problem=FakeProblem(1000.0))
    assert Holdout(bound=bound).judge(step_on(wide)).grow_to is None


def test_bounds_by_hand():
    assert bounds.serfling_factor(10, 100) == pytest.approx(0.91)
    assert bounds.serfling_factor(80, 100) == pytest.approx(0.2 * (1 + 1 / 80))
    assert bounds.serfling_factor(100, 100) == 0.0
    assert bounds.normal(2.0, 0.0, 25, 10**9, 0.1) == pytest.approx(1.2815515655 * 2 / 5)
    assert bounds.hoeffding_serfling(0.0, 2.0, 50, 10**12, 0.1) == pytest.approx(2 * math.sqrt(math.log(10) / 100))
    expected = math.sqrt(2 * math.log(50) / 50) + (7 / 3 + 3 / math.sqrt(2)) * 2 * math.log(50) / 50
    assert bounds.empirical_bernstein(1.0, 2.0, 50, 10**12, 0.1) == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["normal", "hoeffding_serfling", "empirical_bernstein"]))
def test_bounds_cover(seed, name):
    """The mean of the population stays below the bound in all but a share delta of samples."""
    rng = np.random.default_rng(seed)
    population = rng.exponential(1.0, 2000)
    population = np.minimum(population, 6.0)
    radius = getattr(bounds, name)
    misses = 0
    for _ in range(200):
        sample = rng.choice(population, 200, replace=False)
        r = radius(float(sample.std()), 6.0, 200, 2000, 0.1)
        misses += population.mean() > sample.mean() + r
    assert misses <= 200 * 0.1 + 4 * math.sqrt(200 * 0.1 * 0.9) + (6 if name == "normal" else 0)


def test_first_batches():
    assert FullBatch().first_batch(1000, 5) == 1000
    assert FullBatch().judge(step_on(FakeBatch(np.full(3, -1.0)))).accept
    assert Holdout().first_batch(10**6, 3) == 200
    assert Holdout().first_batch(10**6, 8) == 320
    assert Paper().first_batch(1001, 5) == 101
    assert RelaxedPaper().first_batch(10, 5) == 5


def test_names_and_mistakes():
    for name in POLICIES:
        assert hasattr(as_acceptance(name), "judge")
    with pytest.raises(ValueError, match="did you mean 'paper-relaxed'"):
        as_acceptance("paper-relax")
    for bad in ({"delta": 0.0}, {"delta": 1.0}, {"bound": "chernoff"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Holdout(**bad)
    for bad in ({"alpha": 1.0}, {"first": 0.0}, {"delta": 2.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Paper(**bad)
    for bad in ({"eta": 1.0}, {"restore": "t1"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            RelaxedPaper(**bad)


def test_policies_are_copied():
    policy = RelaxedPaper()
    assert as_acceptance(policy) is not policy


class Trusting:
    """A policy of one's own: the recipe of CONTRIBUTING.md."""

    noise_rule = True
    damping = "trust-region"

    def __init__(self) -> None:
        self.judged = 0

    def first_batch(self, n: int, dim: int) -> int:
        return 300

    def judge(self, step: Step) -> Verdict:
        self.judged += 1
        return Verdict(step.batch.changes().mean() < 0.0, None)


def trusting(step: Step) -> Verdict:
    return Verdict(step.batch.changes().mean() < 0.0, None)


@pytest.mark.parametrize("policy", [Trusting(), trusting, "trusting"])
def test_a_policy_is_one_class_or_one_function(policy, monkeypatch):
    monkeypatch.setitem(POLICIES, "trusting", Trusting)
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, 50_000)
    y = 2.0 * np.exp(-1.5 * x) + 0.1 * rng.standard_normal(len(x))
    fit = problm.least_squares(lambda t, x, y: t[0] * np.exp(-t[1] * x) - y, [1.0, 1.0], data=(x, y), acceptance=policy)
    assert fit.success
    np.testing.assert_allclose(fit.x, [2.0, 1.5], atol=0.02)
    assert fit.history.batch_size[0] < len(x)
