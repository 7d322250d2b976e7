"""Our methods: plain LM, the paper's variants, the default, and L-BFGS on the same cost.

All but the last are one call of the project's only loop with another acceptance policy. Starts, stopping rules and
available information are the same. Only the damping differs where the paper has its own (``lambda I``, multiplied or
divided by ten), and LM is run with both: with our trust region and extrapolated steps (``lm``), and as the paper has it
(``lm-tenfold``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from problm.linalg.normal import Normal
from problm.losses import Loss
from problm.solver.graduated import graduated
from problm.solver.loop import solve
from problm.solver.policies.paper_tests import Paper, RelaxedPaper
from problm.solver.problem import Problem, Wrapper
from problm.solver.result import Result

from .run import Method, Outcome, Run

LINEAR = Loss.named("linear")
JACOBIAN = 3.0
"""Cost of a row of the Jacobian in units of a residual evaluation."""


@dataclass
class Solvable:
    """An instance that the solver understands."""

    problem: Callable[[int, Loss], Problem]
    """``(seed, loss) -> problem``, fresh: its random order belongs to one solve."""
    starts: Sequence[Any]
    loss: Loss = LINEAR
    levels: int = 1
    """Levels of graduated non-convexity; 1 is a plain solve."""
    flat: Flat | None = None
    """The same cost in a flat space, for methods without manifolds."""
    extra: Any = None

    def __post_init__(self) -> None:
        self._judge = self.problem(0, self.loss)

    @property
    def n(self) -> int:
        return self._judge.n

    @property
    def dim(self) -> int:
        return self._judge.dim

    def cost(self, theta: Any) -> float:
        return float(self._judge.cost(theta))


@dataclass(frozen=True)
class Flat:
    """A flat parameterisation of a curved problem."""

    problem: Callable[[int, Loss], Problem]
    to_flat: Callable[[Any], np.ndarray]
    from_flat: Callable[[np.ndarray], Any]


def traced(result: Result) -> Outcome:
    """A result with its path as an outcome."""
    h = result.history
    return Outcome(
        seconds=h.seconds, path=h.path, batch=h.batch_size, residual_passes=h.residual_passes,
        jacobian_passes=h.jacobian_passes, status=int(result.status), total_seconds=result.seconds,
        total_residual_passes=result.residual_passes, total_jacobian_passes=result.jacobian_passes, x=result.x,
        extra={"iterations": len(h), "cosine": result.cosine},
    )  # fmt: skip


def solving(wrap: Callable[[Problem], Problem] = lambda p: p, *, batches: bool = True, **settings: Any) -> Run:
    """A method that is one solve with these settings.

    ``batches``: batches at any size, also where they would not pay, as the paper has them. Our default is run as users
    get it, without.
    """

    def made(instance: Solvable, seed: int, loss: Loss) -> Problem:
        problem = instance.problem(seed, loss)
        if batches:
            problem.few = 0
        return problem

    def run(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        theta, own = instance.starts[start], {**options, **settings, "rng": seed, "keep_path": True}
        if instance.levels > 1:
            return traced(
                graduated(lambda loss: made(instance, seed, loss), theta, instance.loss, instance.levels, **own)
            )
        return traced(solve(wrap(made(instance, seed, instance.loss)), theta, **own))

    return run


def lbfgs(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    """SciPy's L-BFGS-B on the mean cost over all residuals, with our gradient; memory of 10, SciPy's line search.

    The gradient comes from the pass that also sums J^T J, which it does not need: its seconds are up to a third too
    long for d = 8. Its numbers of evaluations are not affected.
    """
    from scipy.optimize import minimize

    flat = instance.flat or Flat(instance.problem, np.asarray, lambda x: x)
    problem = flat.problem(seed, instance.loss)
    n = problem.n
    seconds, path, passes = [], [], []
    count = 0

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += 1
        normal = problem.linearize(x, 0, n, outer=False, costs=None)
        return normal.cost / n, normal.gradient / n

    def note(x: np.ndarray) -> None:
        seconds.append(time.perf_counter() - began)
        path.append(x.copy())
        passes.append(float(count))
        if seconds[-1] > limit:
            raise StopIteration

    limit = float(options.get("max_time", math.inf))
    begin = np.array(flat.to_flat(instance.starts[start]), dtype=float)
    first = value(begin)[0]  # SciPy's tolerance on the gradient is absolute: relate it to the cost
    count = 0
    began = time.perf_counter()
    found = minimize(
        value, begin, jac=True, method="L-BFGS-B", callback=note,
        options={"maxiter": int(options.get("max_iter", 1000)), "maxfun": 10**5, "ftol": 1e-15, "gtol": 1e-12 * first},
    )  # fmt: skip
    total = time.perf_counter() - began
    points = [flat.from_flat(x) for x in path]
    return Outcome(
        seconds=seconds, path=points, batch=[n] * len(path), residual_passes=passes, jacobian_passes=passes,
        status=int(found.success), total_seconds=total, total_residual_passes=float(count),
        total_jacobian_passes=float(count), x=points[-1] if points else instance.starts[start],
        extra={"iterations": len(path)},
    )  # fmt: skip


class Padded(Wrapper):
    """The same problem with one extra block, so that its own N blocks never count as all blocks.

    With ``max_batch=N`` this runs Algorithm 1 *as printed*, which applies its test also at K = N: if the test fails
    there, the printed algorithm repeats the same rejected step forever, and the solve ends (status: batch limit). The
    extra block is never evaluated.
    """

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self.n = problem.n + 1

    def linearize(self, theta: Any, lo: int, hi: int, *, outer: bool, costs: Any) -> Normal:
        normal: Normal = self.inner.linearize(theta, lo, hi, outer=outer, costs=costs)
        if hi == self.inner.n and costs is not None:
            costs[:] = self.costs(theta, lo, hi)
        return normal

    def costs(self, theta: Any, lo: int, hi: int) -> Any:
        if hi < self.inner.n:
            return self.inner.costs(theta, lo, hi)
        # [0, N) is read in the natural order; the caller compares with costs in the random one.
        return self.inner.costs(theta, 0, hi)[self.inner.indices(lo, hi)]

    def cost(self, theta: Any) -> float:
        return float(self.inner.cost(theta))


def algorithm_1(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    """Algorithm 1 as printed, test at K = N included."""
    limit = {"acceptance": Paper(), "max_batch": instance.n}
    return solving(Padded, **limit)(instance, start, seed, options)  # type: ignore[arg-type]


# Colours that differ also for colour-blind eyes (Okabe and Ito).
LM = Method("lm", "LM (trust region)", solving(acceptance="full"), "#000000")
LM_TENFOLD = Method("lm-tenfold", "LM (λI, ×10)", solving(acceptance="full", damping="tenfold"), "#7f7f7f")
PAPER = Method("paper", "ProBLM, Eq. 13", solving(acceptance=Paper()), "#0072b2")
AUTHORS = Method("authors", "ProBLM, Eq. 13, α = 0", solving(acceptance=Paper(alpha=0.0)), "#56b4e9")
RELAXED = Method("relaxed", "ProBLM, Eq. 18 corrected", solving(acceptance=RelaxedPaper()), "#009e73")
RELAXED_0 = Method(
    "relaxed-0", "ProBLM, Eq. 18 corrected, α = 0", solving(acceptance=RelaxedPaper(alpha=0.0)), "#94c973"
)
PRINTED = Method("printed", "ProBLM, Eq. 18 as printed", solving(acceptance=RelaxedPaper(printed=True)), "#cc79a7")
DEFAULT = Method("default", "ProBLM, default", solving(batches=False), "#d55e00")
LBFGS = Method("lbfgs", "L-BFGS", lbfgs, "#b8860b")
ALGORITHM_1 = Method("algorithm-1", "Algorithm 1 as printed", algorithm_1, "#8b0000")

FIGURE = (LM, LM_TENFOLD, PAPER, RELAXED, PRINTED, DEFAULT)
"""Methods in the paper's figures, and ours."""
PAPERS_OWN = (LM_TENFOLD, PAPER, RELAXED, PRINTED, LBFGS)
"""What the paper compares: its LM, its method in both forms, the second also as printed, and L-BFGS."""
EVERYTHING = (LM, LM_TENFOLD, PAPER, AUTHORS, RELAXED, RELAXED_0, PRINTED, DEFAULT)
