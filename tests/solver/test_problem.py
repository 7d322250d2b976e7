"""The contract of a problem: one class with all hooks, which nobody gets around."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import problm
from problm.kernels.kernel import Kernel, evaluator
from problm.linalg.normal import Normal
from problm.problems.compiled import CompiledProblem
from problm.problems.secant import SecantProblem
from problm.solver import Problem, solve
from problm.solver.batch import Batch
from problm.solver.problem import Wrapper

HOOKS = {name for name in (*vars(Problem), *Problem.__annotations__) if not name.startswith("_")}
BYPASS = {"make_batch", "for_compiled_loop", "in_place", "runs", "second_order", "carried"}
ROOT = Path(problm.__file__).parent


class Line(Problem):
    """The least that a problem defines: residuals ``a + b x - y`` of rows in their given order."""

    def __init__(self, n: int = 400) -> None:
        self.n, self.dim = n, 2
        self.x = np.random.default_rng(0).uniform(size=n)
        self.y = 1.0 + 2.0 * self.x

    def costs(self, theta, lo, hi):
        return 0.5 * (theta[0] + theta[1] * self.x[lo:hi] - self.y[lo:hi]) ** 2

    def linearize(self, theta, lo, hi, *, outer, costs):
        r = theta[0] + theta[1] * self.x[lo:hi] - self.y[lo:hi]
        jacobian = np.stack([np.ones(hi - lo), self.x[lo:hi]], axis=1)
        if costs is not None:
            costs[:] = 0.5 * r**2
        each = jacobian * r[:, None]
        return Normal(
            hi - lo, 0.5 * float(r @ r), jacobian.T @ r, jacobian.T @ jacobian, each.T @ each if outer else None
        )


@pytest.mark.parametrize("n", [400, 50_000])
def test_two_methods_make_a_problem(n):
    result = solve(Line(n), np.zeros(2))
    assert result.success
    assert result.certified
    np.testing.assert_allclose(result.x, [1.0, 2.0], atol=1e-8)


def test_what_a_problem_does_not_give_is_said():
    result = solve(Line(), np.zeros(2))
    with pytest.raises(RuntimeError, match="does not provide the residuals"):
        result.fun  # noqa: B018
    with pytest.raises(RuntimeError, match="does not provide the Jacobian"):
        result.jac  # noqa: B018
    with pytest.raises(TypeError, match="which rows a batch holds"):
        Batch(result.problem, result.x, 10).rows()
    with pytest.raises(NotImplementedError, match="Nothing must define costs"):
        type("Nothing", (Problem,), {})().costs(None, 0, 1)


def test_a_problem_is_derived_from_the_class():
    with pytest.raises(TypeError, match=r"problm\.solver\.Problem, got object"):
        solve(object(), np.zeros(2))


def test_every_hook_says_what_it_means():
    for name in HOOKS:
        if inspect.isfunction(vars(Problem).get(name)):
            assert inspect.getdoc(getattr(Problem, name)), name


def test_a_wrapper_passes_every_hook_on():
    inner = Line()
    values = {"components": 3, "few": 7, "least_batch": 8, "largest_batch": 9, "jump": 0.125, "fused": True,
              "learns": True, "cost_bound": 5.0}  # fmt: skip
    for name, value in values.items():
        setattr(inner, name, value)
    wrapper = Wrapper(inner)
    for name in HOOKS - BYPASS:
        if inspect.isfunction(vars(Problem).get(name)):
            assert name in vars(Wrapper), name
        else:
            assert getattr(wrapper, name) == getattr(inner, name), name
    assert not BYPASS & set(vars(Wrapper))


def test_a_problem_with_batches_of_its_own_cannot_be_wrapped():
    class Elsewhere(Line):
        def make_batch(self, theta, size):
            return Batch(self, theta, size)

    with pytest.raises(TypeError, match="its own batches"):
        Wrapper(Elsewhere())


def test_a_wrapped_problem_is_asked_for_every_step():
    """Compiled steps on the problem inside would bypass the wrapper."""

    @evaluator
    def line(theta, rows, m, program, constants, jacobian, out):
        for i in range(m):
            out[0, i] = theta[0] * rows[0, i] - rows[1, i]
            out[1, i] = rows[0, i]

    x = np.linspace(1.0, 2.0, 50)
    problem = CompiledProblem(Kernel(line, 1, 1), [x, 3.0 * x], fused=True)
    assert problem.for_compiled_loop() is not None
    assert SecantProblem(problem).for_compiled_loop() is None


def test_no_hook_is_looked_up_by_name():
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("getattr", "hasattr")
            ):
                about = ast.unparse(node.args[0])
                name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
                if name in HOOKS - {"jacobian"} or about.rpartition(".")[2] in ("problem", "inner"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)
