"""Steps taken in compiled code are the loop's own, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import problm
from problm.api.curve_fit import fit
from problm.manifolds import ROTATION
from problm.solver import loop as solver
from problm.vision.two_view.simulate import two_views

DECAY = problm.formula("a*exp(-b*x) + c")
PEAKS = problm.formula("a*exp(-0.5*((x-m)/s)**2) + b*exp(-0.5*((x-n)/t)**2) + k*x + c")
CURVES = {
    "decay": (DECAY, [2.0, 0.7, 0.3]),
    "peaks": (PEAKS, [2.0, 1.5, 0.4, 1.0, 3.5, 0.6, 0.1, 0.2]),
}


def data(curve: str, n: int, seed: int):
    model, true = CURVES[curve]
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, n)
    y = model(x, *true) + 0.1 * rng.standard_normal(n)
    return model, x, y, np.array(true) * rng.uniform(0.5, 2.0, len(true))


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("loss", ["linear", "soft_l1", "cauchy"])
@pytest.mark.parametrize("n", [12, 50, 5000])
def test_the_same_bits_as_step_by_step(curve, loss, n):
    for seed in range(6):
        model, x, y, start = data(curve, n, seed)
        at_once = fit(model, x, y, start, loss=loss, f_scale=0.3, max_iter=300)
        singly = fit(model, x, y, start, loss=loss, f_scale=0.3, max_iter=300, keep_path=True)
        assert at_once.status == singly.status
        np.testing.assert_array_equal(at_once.x, singly.x)
        np.testing.assert_array_equal(at_once.grad, singly.grad)
        assert at_once.cost == singly.cost
        assert at_once.history.decision == singly.history.decision
        assert at_once.history.damping == singly.history.damping
        assert at_once.history.cost == singly.history.cost
        rejected = at_once.history.decision.count("reject")
        assert singly.nfev <= at_once.nfev <= singly.nfev + rejected  # a trial that fails is made again by the loop


@pytest.mark.parametrize("parameterization", ["manifold", "angles"])
@pytest.mark.parametrize("n", [30, 2000])
def test_the_same_bits_on_a_manifold(parameterization, n):
    for seed in range(5):
        views = two_views(n, seed=seed)
        turned = ROTATION.retract(views.R.ravel(), np.array([0.1, -0.1, 0.1])).reshape(3, 3)
        settings = {"initial": (turned, views.t + 0.15), "robust": False, "parameterization": parameterization}
        at_once = problm.essential_matrix(views.x1, views.x2, views.K, **settings).result
        singly = problm.essential_matrix(views.x1, views.x2, views.K, keep_path=True, **settings).result
        assert at_once.problem.for_compiled_loop() is not None
        assert at_once.status == singly.status
        assert at_once.history.decision == singly.history.decision
        np.testing.assert_array_equal(at_once.x, singly.x)


@pytest.mark.parametrize(("start", "hard"), [([2.2, 0.6, 0.2], False), ([0.5, 6.0, 2.0], True)])
def test_steps_are_taken_at_once_damped_and_refused_ones_too(monkeypatch, start, hard):
    model, x, y, _ = data("decay", 200, 0)
    singly = []
    monkeypatch.setattr(solver.Loop, "descend", lambda run, system: singly.append(1))
    result = fit(model, x, y, start)
    assert result.success
    assert len(result.history) >= 3
    assert (max(result.history.damping) > 0.0) == ("reject" in result.history.decision) == hard
    assert not singly


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_limit_of_iterations_holds(limit):
    model, x, y, _ = data("decay", 200, 0)
    result = fit(model, x, y, [1.0, 0.3, 0.0], max_iter=limit)
    assert len(result.history) == limit
    assert not result.success


@pytest.mark.parametrize(
    "watched",
    [{"callback": lambda state: None}, {"keep_path": True}, {"max_time": 60.0}, {"bounds": (-9.0, 9.0)},
     {"fixed": [2]}, {"damping": "gain-ratio"}, {"x_scale": [1.0, 1.0, 1.0]}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_whoever_watches_the_steps_gets_them_one_by_one(monkeypatch, watched):
    model, x, y, _ = data("decay", 200, 0)
    calls = []
    monkeypatch.setattr(solver.Loop, "take_compiled_steps", lambda run, system: calls.append(1))
    assert fit(model, x, y, [2.2, 0.6, 0.2], **watched).success
    assert not calls


@pytest.mark.parametrize("loss", ["linear", "soft_l1"])
@pytest.mark.parametrize("given", [False, True], ids=["differences", "Jacobian"])
@pytest.mark.parametrize("n", [12, 50, 5000])
def test_the_same_bits_for_functions(loss, given, n):
    def f(x, a, b, c):
        return a * np.exp(-b * x) + c

    def jac(x, a, b, c):
        e = np.exp(-b * x)
        return np.stack([e, -a * x * e, np.ones_like(x)], axis=1)

    for seed in range(6):
        _, x, y, start = data("decay", n, seed)
        how = {"jac": jac if given else None, "loss": loss, "f_scale": 0.3, "max_iter": 300}
        at_once, singly = fit(f, x, y, start, **how), fit(f, x, y, start, keep_path=True, **how)
        assert at_once.status == singly.status
        np.testing.assert_array_equal(at_once.x, singly.x)
        np.testing.assert_array_equal(at_once.grad, singly.grad)
        assert at_once.history.decision == singly.history.decision
        assert at_once.history.damping == singly.history.damping
        assert at_once.history.cost == singly.history.cost
        rejected = at_once.history.decision.count("reject")
        assert singly.nfev <= at_once.nfev <= singly.nfev + rejected
        if at_once.nfev == singly.nfev:
            assert at_once.history.residual_passes == singly.history.residual_passes
            assert at_once.history.jacobian_passes == singly.history.jacobian_passes


def test_a_function_that_raises_or_is_interrupted_keeps_the_steps_so_far():
    _, x, y, start = data("decay", 50, 0)
    calls = []

    def interrupted(x, a, b, c):
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return a * np.exp(-b * x) + c

    result = fit(interrupted, x, y, start)
    assert result.status.name == "INTERRUPTED"
    assert len(result.history) >= 2
    assert result.cost < 0.5 * float(np.square(DECAY(x, *start) - y).sum())


def test_a_function_without_derivatives_at_the_next_point_goes_back():
    def f(x, a, b):
        return a * np.sqrt(np.maximum(b, 0.0) * x) if b > 0.5 else np.full_like(x, np.nan)

    x = np.linspace(1.0, 2.0, 30)
    assert fit(f, x, f(x, 2.0, 0.6), [1.0, 1.0], max_iter=50).cost < 1e-8
