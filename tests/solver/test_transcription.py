"""The paper's policies against a transcription of its algorithms: the same decisions, sizes, lambdas and points."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from problm.linalg.normal import Normal
from problm.losses import Loss
from problm.solver.loop import solve
from problm.solver.policies.paper_tests import Paper, RelaxedPaper
from problm.solver.problem import Problem
from tests.helpers.transcription import Trace, Transcript, algorithm_1, algorithm_2

TOLERANCE = 1e-6
N = 1500


@dataclass
class Model:
    """Residual blocks with derivatives, a start, and a loss."""

    residuals: Callable[[np.ndarray, np.ndarray], np.ndarray]
    jacobian: Callable[[np.ndarray, np.ndarray], np.ndarray]
    start: np.ndarray
    tau: float | None = None

    def in_units(self, unit: float) -> Model:
        """The same residuals in other units."""
        return Model(
            lambda t, rows: self.residuals(t, rows) / unit,
            lambda t, rows: self.jacobian(t, rows) / unit,
            self.start,
            None if self.tau is None else self.tau / unit,
        )


def decay(rng: np.random.Generator) -> Model:
    x = rng.uniform(0.0, 4.0, N)
    y = 3.0 * np.exp(-1.3 * x) + 0.1 * rng.standard_normal(N)

    def residuals(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return (t[0] * np.exp(-t[1] * x[rows]) - y[rows])[:, None]

    def jacobian(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        e = np.exp(-t[1] * x[rows])
        return np.stack([e, -t[0] * x[rows] * e], axis=1)[:, None, :]

    return Model(residuals, jacobian, np.array([1.0, -1.0]))


def similarity(rng: np.random.Generator) -> Model:
    """Blocks of two residuals: angle, scale and translation between two sets of points."""
    a = rng.standard_normal((N, 2))
    turn = np.array([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]])
    b = 1.5 * a @ turn.T + [0.3, -0.8] + 0.05 * rng.standard_normal((N, 2))

    def turned(t: np.ndarray, rows: np.ndarray, shift: float = 0.0) -> np.ndarray:
        c, s = math.cos(t[0] + shift), math.sin(t[0] + shift)
        return t[1] * a[rows] @ np.array([[c, -s], [s, c]]).T

    def residuals(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return turned(t, rows) + t[2:] - b[rows]

    def jacobian(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        j = np.zeros((len(rows), 2, 4))
        j[:, :, 0] = turned(t, rows, math.pi / 2)
        j[:, :, 1] = turned(t, rows) / t[1]
        j[:, 0, 2] = j[:, 1, 3] = 1.0
        return j

    return Model(residuals, jacobian, np.array([2.2, 0.4, 0.0, 0.0]))


def robust_line(rng: np.random.Generator) -> Model:
    """Eq. 22 with a fifth of outliers."""
    x = rng.uniform(-1.0, 1.0, N)
    y = 0.8 * x - 0.2 + 0.1 * rng.standard_normal(N)
    y[rng.random(N) < 0.2] += 5.0

    def residuals(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return (t[0] * x[rows] + t[1] - y[rows])[:, None]

    def jacobian(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.stack([x[rows], np.ones(len(rows))], axis=1)[:, None, :]

    return Model(residuals, jacobian, np.array([0.0, 0.5]), tau=2.0)


MODELS = [decay, similarity, robust_line]


class Rows(Problem):
    """The model as a problem of the solver, in a given order."""

    def __init__(self, model: Model, order: np.ndarray) -> None:
        self.model, self.order = model, order
        self.n, self.dim = len(order), len(model.start)
        self.loss = Loss.named("linear") if model.tau is None else Loss.named("truncated", model.tau)
        self.robust, self.cost_bound = model.tau is not None, self.loss.bound

    def indices(self, lo: int, hi: int) -> np.ndarray:
        return self.order[lo:hi]

    def linearize(self, theta, lo, hi, *, outer, costs):
        rows = self.order[lo:hi]
        r, j = self.model.residuals(theta, rows), self.model.jacobian(theta, rows)
        own, weights = self.loss.cost_and_weight(np.einsum("kp,kp->k", r, r))
        if costs is not None:
            costs[:] = own
        gradient = np.einsum("k,kpd,kp->d", weights, j, r)
        return Normal(hi - lo, float(own.sum()), gradient, np.einsum("k,kpd,kpe->de", weights, j, j))

    def costs(self, theta, lo, hi):
        r = self.model.residuals(theta, self.order[lo:hi])
        return self.loss.cost(np.einsum("kp,kp->k", r, r))


def both(
    make: Callable[[np.random.Generator], Model], seed: int, policy: Paper, unit: float = 1.0
) -> tuple[list[Trace], list[Trace]]:
    """What the solver did with this policy, and what the transcription does."""
    rng = np.random.default_rng([seed, 7])
    model, order = make(rng).in_units(unit), rng.permutation(N)
    result = solve(
        Rows(model, order), model.start, acceptance=policy, gtol=TOLERANCE, rng=seed, keep_path=True, max_iter=400
    )
    assert result.success
    h = result.history
    ours = [Trace(*t) for t in zip(h.decision, h.batch_size, h.damping, h.path, strict=True)]
    relaxed = isinstance(policy, RelaxedPaper)
    # The paper's cost is twice ours, and so are the constants that bound its changes.
    twice = 1.0 if model.tau is not None else 2.0
    own = policy.group_bounds
    paper = Transcript(
        model.residuals, model.jacobian, order, policy.first_batch(N, len(model.start)), TOLERANCE, model.tau,
        policy.delta, policy.alpha, policy.eta if relaxed else 0.5,
        None if isinstance(policy.upper, str) else twice * policy.upper, policy.exponent, policy.groups,
        None if own is None else {label: (twice * a, twice * b) for label, (a, b) in own.items()},
        policy.printed if relaxed else False,
    )  # fmt: skip
    return ours, algorithm_2(paper, model.start, seed) if relaxed else algorithm_1(paper, model.start)


def assert_same(ours: list[Trace], theirs: list[Trace]) -> None:
    assert [t.decision for t in ours] == [t.decision for t in theirs]
    assert [t.size for t in ours] == [t.size for t in theirs]
    np.testing.assert_allclose([t.damping for t in ours], [t.damping for t in theirs], rtol=1e-9)
    np.testing.assert_allclose([t.theta for t in ours], [t.theta for t in theirs], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("make", MODELS)
def test_algorithm_1(make, alpha, seed):
    assert_same(*both(make, seed, Paper(alpha=alpha)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("make", MODELS)
def test_algorithm_2(make, alpha, seed):
    assert_same(*both(make, seed, RelaxedPaper(alpha=alpha)))


@pytest.mark.parametrize("unit", [1.0, 10.0, 30.0, 100.0])  # on which the printed test depends
@pytest.mark.parametrize("make", MODELS)
def test_algorithm_2_with_equation_18_as_printed(make, unit):
    for seed, alpha in enumerate((0.9, 0.5, 0.0)):
        assert_same(*both(make, seed, RelaxedPaper(printed=True, alpha=alpha, eta=0.2), unit))


@pytest.mark.parametrize(("make", "constant"), [(similarity, 5.0), (robust_line, 10.0)])
def test_the_bound_follows_the_distance_from_t0(make, constant):
    for seed in range(3):
        assert_same(*both(make, seed, RelaxedPaper(alpha=0.0, eta=0.9, upper=constant)))


def far_off(rng: np.random.Generator) -> Model:
    """A model that does not fit: large residuals at the minimum, and slow convergence."""
    x = rng.uniform(0.0, 4.0, N)
    y = 2.0 + 4.0 * np.cos(3.0 * x) + 0.5 * x

    def residuals(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return (t[0] * np.exp(t[1] * x[rows]) - y[rows])[:, None]

    def jacobian(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        e = np.exp(t[1] * x[rows])
        return np.stack([e, t[0] * x[rows] * e], axis=1)[:, None, :]

    return Model(residuals, jacobian, np.array([1.0, 0.0]))


@pytest.mark.parametrize("make", [decay, far_off])
def test_tenfold_on_all_rows_is_the_papers_lm(make):
    model = make(np.random.default_rng(3))
    order = np.arange(N)
    result = solve(
        Rows(model, order),
        model.start,
        acceptance="full",
        damping="tenfold",
        gtol=TOLERANCE,
        keep_path=True,
        max_iter=400,
    )
    h = result.history
    ours = [Trace(*t) for t in zip(h.decision, h.batch_size, h.damping, h.path, strict=True)]
    paper = Transcript(model.residuals, model.jacobian, order, N, TOLERANCE)
    assert_same(ours, algorithm_1(paper, model.start))
    assert len(ours) >= 6


LABELS = np.arange(N) % 3
VARIANTS = {
    "Lipschitz": {"upper": 2.0, "alpha": 0.2},
    "Hoelder": {"upper": 1.0, "exponent": 0.5, "alpha": 0.2},
    "groups": {"groups": LABELS, "group_bounds": {0: (-2.0, 1.0), 1: (-1.0, 2.0), 2: (-0.3, 0.3)}, "alpha": 0.0},
    "strict": {"delta": 1e-6, "alpha": 0.0, "first": 0.05},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("policy", [Paper, RelaxedPaper])
def test_variants(policy, make, variant):
    for seed in range(2):
        assert_same(*both(make, seed, policy(**VARIANTS[variant])))


def test_the_traces_show_everything():
    """The comparison means something: all decisions, and several batch sizes, occur."""
    seen: list[Trace] = []
    for make in MODELS:
        for policy in (Paper(alpha=0.5), RelaxedPaper(alpha=0.0), RelaxedPaper(**VARIANTS["Lipschitz"])):
            seen += both(make, 0, policy)[0]
    assert {t.decision for t in seen} == {"accept", "reject", "grow", "undo, grow"}
    assert len({t.size for t in seen if t.size < N}) >= 4
    assert sum(t.decision == "accept" and t.size < N for t in seen) >= 10
