"""The result of a solve: status, certificate, history."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.dense import inverse_spd
from .mapping import ScipysResult

Array = NDArray[np.float64]


class Status(IntEnum):
    """Outcome of a solve; positive values are successes. ``message`` is the text for the user.

    Examples
    --------
    >>> Status.GRADIENT > 0, Status.TIME > 0
    (True, False)
    >>> Status.GRADIENT.message
    'Converged: the gradient over all residuals vanishes.'
    """

    GRADIENT = 1
    COST = 2
    STEP = 3
    ACCURACY = 5
    MAX_ITER = 0
    STALLED = -1
    STOPPED = -2
    TIME = -3
    INTERRUPTED = -4
    BATCH_LIMIT = -5
    RUNS_AWAY = -6
    NOT_DETERMINED = -7

    @property
    def message(self) -> str:
        return _MESSAGES[self]


_MESSAGES = {
    Status.GRADIENT: "Converged: the gradient over all residuals vanishes.",
    Status.COST: "Converged: no step lowers the cost over all residuals any further.",
    Status.STEP: "Converged: the remaining step over all residuals is below xtol.",
    Status.ACCURACY: "Accurate enough, by a statistical certificate on a batch, not on all residuals.",
    Status.MAX_ITER: "Not converged: max_iter reached.",
    Status.STALLED: "Not converged: no step lowers the cost; is the Jacobian right, or the problem rough?",
    Status.STOPPED: "Stopped by the callback.",
    Status.TIME: "Not converged: max_time reached.",
    Status.INTERRUPTED: "Interrupted; this is the best point so far.",
    Status.BATCH_LIMIT: "Stopped: the batch reached max_batch.",
    Status.RUNS_AWAY: "Not converged: parameters run to infinity, where the model no longer depends on them.",
    Status.NOT_DETERMINED: "Not converged: here no residual depends on some parameter (every residual exceeds the loss "
    "scale, or a peak has no width); start elsewhere or widen the loss.",
}


@dataclass(frozen=True, slots=True)
class State:
    """What a callback sees after an iteration."""

    iteration: int
    seconds: float
    batch_size: int
    n: int
    cost: float
    """Mean cost over the batch, times n: an estimate of the total cost."""
    damping: float
    decision: str
    x: Any
    seconds_left: float
    """Rough estimate of the remaining seconds, from the passes so far; NaN if unknown."""


@dataclass(slots=True)
class History:
    """One entry per iteration, in columns; scalars only (and theta with ``keep_path``)."""

    seconds: list[float] = field(default_factory=list)
    batch_size: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    """Mean cost over the batch at the end of the iteration, times n."""
    damping: list[float] = field(default_factory=list)
    decision: list[str] = field(default_factory=list)
    """``accept``, ``reject`` (the batch's cost rose), ``grow``, ``accept, grow`` or ``undo, grow``."""
    residual_passes: list[float] = field(default_factory=list)
    """Residual evaluations so far, in units of n."""
    jacobian_passes: list[float] = field(default_factory=list)
    path: list[Any] = field(default_factory=list)

    def add(
        self, seconds: float, batch_size: int, cost: float, damping: float, decision: str, residual_passes: float,
        jacobian_passes: float,
    ) -> None:  # fmt: skip
        """Record an iteration."""
        self.seconds.append(seconds)
        self.batch_size.append(batch_size)
        self.cost.append(cost)
        self.damping.append(damping)
        self.decision.append(decision)
        self.residual_passes.append(residual_passes)
        self.jacobian_passes.append(jacobian_passes)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def iteration(self) -> list[int]:
        return list(range(1, len(self) + 1))

    def as_dict(self) -> dict[str, list[Any]]:
        """The columns by name, as plain lists (without the path)."""
        names = ("seconds", "batch_size", "cost", "damping", "decision", "residual_passes", "jacobian_passes")
        return {"iteration": self.iteration, **{name: list(getattr(self, name)) for name in names}}


@dataclass(repr=False, eq=False)
class Result(ScipysResult):
    """Outcome of a solve, with SciPy's names where SciPy has them.

    An instance of `scipy.optimize.OptimizeResult`: SciPy's fields are available as attributes and by key.

    Examples
    --------
    >>> import problm
    >>> x = np.linspace(0, 4, 100)
    >>> result = problm.least_squares(lambda p: p[0] * np.exp(-p[1] * x) - 2 * np.exp(-x), [1, 0.5])
    >>> result.success, result.x.round(6), result["x"] is result.x
    (True, array([2., 1.]), True)
    """

    x: Array
    """The best point found: (d,), or a point of the manifold."""
    cost: float
    """Half the sum of (robustified) squared residuals: over all residuals if ``complete``, else estimated."""
    status: Status
    message: str
    n: int
    """Number of residual blocks."""
    batch_size: int
    """Size of the last batch; n if the solve ended on all blocks."""
    grad: Array
    """(d,) gradient of the cost at x, a sum like the cost; one step before x with the certificate ``"bound"``."""
    optimality: float
    """Largest absolute entry of the gradient, without parameters held by an active bound."""
    cosine: float
    """sqrt(decrement / cost): cosine between the residuals and the tangent space; dimensionless."""
    hessian: Array
    """(d, d) Gauss-Newton matrix at x, a sum like the cost; sparse for a sparse Jacobian of many parameters."""
    singular: bool
    """Whether the Gauss-Newton matrix is rank-deficient at x."""
    history: History
    nfev: int
    """Evaluations of residuals on a batch (of any size)."""
    njev: int
    """Evaluations of the Jacobian on a batch (of any size)."""
    residual_passes: float
    """Residual evaluations in units of n."""
    jacobian_passes: float
    """Jacobian evaluations in units of n."""
    seconds: float
    """Without those in which functions were compiled."""
    active_mask: NDArray[np.int64]
    """(d,) -1 where a lower bound is active, 1 where an upper one is, 0 elsewhere."""
    distance: float = math.nan
    """Distance to the minimum in standard errors of the parameters, from the quadratic model over all residuals at x,
    or an upper bound of it; NaN if the solve ended on a batch."""
    certificate: str = "none"
    """Why x is known to be a minimum: ``"gradient"`` (the gradient over all residuals vanishes there), ``"bound"`` (it
    nearly vanished one short step before, and the previous steps bound what is left), ``"measured"`` (evaluations show
    that the cost cannot be lowered), or ``"none"`` if that is not known."""
    residuals_per_block: int = 1
    covariance_root: Array | None = field(default=None, repr=False)
    """B with ``B B^T = (J^T J)^-1``, if the normal equations have lost too many digits."""
    robust_covariance: Array | None = field(default=None, repr=False)
    """(d, d) covariance of a robust fit, once it was asked for."""
    fixed: NDArray[np.bool_] | None = field(default=None, repr=False)
    """(d,) true for fixed parameters; None if none was fixed."""
    names: tuple[str, ...] = ()
    row_wise: bool | None = None
    """False if residuals depend on other rows, so that the function was called with all rows in every step; None if
    that was not checked, because rows were few or the model is compiled."""
    f_scale: float | None = None
    """Scale of a robust loss, given or found; None for least squares."""
    left: float = math.nan
    """Squared distance from the minimum of the batch that the solve ended on, relative to the expected one of that from
    the minimum of all rows; NaN if it was not measured."""
    absolute: bool = False
    """Whether residuals have unit variance, because standard deviations were given in the units of the data: the
    covariance is then not scaled by the residuals."""
    problem: Any = field(default=None, repr=False)

    @property
    def success(self) -> bool:
        """Whether the solve converged or reached the requested accuracy."""
        return self.status > 0

    @property
    def complete(self) -> bool:
        """Whether cost and gradient are those over all residuals."""
        return self.batch_size == self.n

    @property
    def certified(self) -> bool:
        """Whether x is known to be a minimum over all residuals, by any ``certificate``."""
        return self.certificate != "none"

    @property
    def nit(self) -> int:
        return len(self.history)

    @property
    def degrees_of_freedom(self) -> int:
        free = len(self.grad) - (0 if self.fixed is None else int(self.fixed.sum()))
        return max(self.n * self.residuals_per_block - free, 1)

    @property
    def covariance(self) -> Array:
        """(d, d) covariance of the parameters: ``2 cost / (N - d) (J^T J)^-1``, or ``(J^T J)^-1`` if ``absolute``, with
        the pseudo-inverse if singular. For a robust loss that of an M-estimator (`problm.solver.sandwich`)."""
        if (robust := self._sandwich()) is not None:
            return self.batch_factor * robust
        return self.unscaled_covariance * self._variance()

    @property
    def batch_factor(self) -> float:
        """How many times as uncertain as those of all rows the parameters of a batch are."""
        if self.complete:
            return 1.0
        # The parameters are fitted to the rows of the batch: they are as uncertain, and not quite at the minimum.
        left = self.left
        if math.isnan(left):
            left = self.batch_size * self.residuals_per_block * self.cosine**2 / max(len(self.grad), 1)
        return self.n / self.batch_size * (1.0 + left)

    def _variance(self) -> float:
        """Variance of the residuals by which ``(J^T J)^-1`` is scaled."""
        return self.batch_factor * (1.0 if self.absolute else 2.0 * self.cost / self.degrees_of_freedom)

    def _sandwich(self) -> Array | None:
        """The covariance of a robust fit, computed on first access; None for other fits."""
        if self.robust_covariance is None and self.problem is not None and self.problem.robust:
            from .sandwich import sandwich

            scale = math.sqrt(2.0 * self.cost / self.degrees_of_freedom)
            self.robust_covariance = sandwich(self.problem, self.x, self.hessian, scale, self.fixed)
        return self.robust_covariance

    @property
    def unscaled_covariance(self) -> Array:
        """(d, d) ``(J^T J)^-1``, the covariance if residuals have unit variance; zero for fixed parameters."""
        if self.covariance_root is not None:
            return self.covariance_root @ self.covariance_root.T
        hessian: Any = self.hessian
        if not isinstance(hessian, np.ndarray):
            from ..linalg.sparse import inverse

            return inverse(hessian, self.fixed)
        if self.fixed is None:
            return inverse_spd(hessian)[0]
        free = np.ix_(~self.fixed, ~self.fixed)
        covariance = np.zeros_like(hessian)
        covariance[free] = inverse_spd(hessian[free])[0]
        return covariance

    @property
    def standard_errors(self) -> Array:
        """(d,) square roots of the diagonal of the covariance; infinite for parameters that no residual depends on."""
        if not isinstance(self.hessian, np.ndarray):  # of many parameters
            from ..linalg.sparse import inverse

            return np.sqrt(inverse(self.hessian, self.fixed, diagonal=True) * self._variance())
        errors = np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))
        errors[self.unseen] = np.inf
        return errors

    @property
    def unseen(self) -> NDArray[np.bool_]:
        """(d,) mask of free parameters that no residual depends on at x."""
        unseen = np.asarray(self.hessian.diagonal() == 0.0)
        return unseen if self.fixed is None else unseen & ~self.fixed

    @property
    def fun(self) -> Array:
        """Residuals of all blocks at x in the user's order, (n,) or (n, p), computed on access."""
        if self.problem is None:
            raise RuntimeError(
                "a result that was loaded from a file, or pickled without its function (such as a lambda), has no "
                "data: its residuals cannot be computed"
            )
        residuals: Array | None = self.problem.residuals(self.x)
        if residuals is None:
            raise RuntimeError("this problem does not provide the residuals of all rows, only cost and gradient")
        return residuals[:, 0] if residuals.ndim == 2 and residuals.shape[1] == 1 else residuals

    @property
    def jac(self) -> Array:
        """Jacobian of all residuals at x, (n, d) or (n, p, d), without the weights of a loss, computed on access.

        It has N d numbers; nothing else in the result needs it.
        """
        jacobian: Array | None = None if self.problem is None else self.problem.jacobian(self.x)
        if jacobian is None:
            raise RuntimeError("this problem does not provide the Jacobian of all rows, only hessian and covariance")
        return jacobian[:, 0] if jacobian.ndim == 3 and jacobian.shape[1] == 1 else jacobian

    def __getstate__(self) -> dict[str, Any]:
        """All fields; without the problem, like a result from a file, if its function cannot be pickled."""
        state = dict(self.__dict__)
        try:
            pickle.dumps(self.problem)
        except Exception:
            state["problem"] = None
        return state

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (type(self),), self.__getstate__()

    def __copy__(self) -> Result:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Result:
        """Copy the numbers; the problem, which never changes, is shared."""
        copied = self.__copy__()
        copied.__dict__.update({n: deepcopy(v, memo) for n, v in self.__dict__.items() if n != "problem"})
        return copied

    def report(self) -> str:
        """Return a page of text: outcome, parameters with errors and correlations, work done."""
        from ..report.text import report

        return report(self)

    def plot(self, **options: Any) -> Any:
        """Plot cost and batch size over time; return a Matplotlib figure (needs the extra ``plot``)."""
        from ..report.plots import plot_result

        return plot_result(self, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the data as numbers, text, lists and dicts that JSON can hold."""
        from .saved import to_dict

        return to_dict(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as JSON atomically (see `problm.solver.saved`)."""
        from .saved import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a result that `save` wrote."""
        from .saved import read_json

        content = read_json(path)
        try:
            return cls.from_dict(content)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Inverse of `to_dict`, without the problem: residuals cannot be computed."""
        from .saved import fields_of

        known = fields_of(data, Status.__members__)
        return cls(**{**known, "status": Status[known["status"]], "history": History(**known["history"])})

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        point = np.array2string(self.x, precision=6, threshold=12) if isinstance(self.x, np.ndarray) else repr(self.x)
        return (
            f"<problm.Result {self.status.name.lower()}: x={point}, cost={self.cost:.8g}, n={self.n:,}, "
            f"{self.nit} iterations in {self.seconds:.3g} s>"
        )

    def _repr_html_(self) -> str:
        from ..report.html import result_html

        return result_html(self)
