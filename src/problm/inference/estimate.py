"""Estimates: named parameters with their errors, statistics, residuals and bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.ties import Ties
from ..report.numbers import with_error
from ..support.array_kinds import refuse_units
from ..support.differences import derivatives, relative
from ..support.quantiles import student_quantile
from ..support.suggest import suggest

if TYPE_CHECKING:
    from ..solver.result import Result

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter."""

    name: str
    value: float
    error: float
    """Standard error; 0 if the parameter was fixed."""
    degrees_of_freedom: float
    """Degrees of freedom of the noise estimate; infinite if standard deviations were given in the units of the data."""
    fixed: bool = False
    tie: str | None = None
    """Expression that the parameter is tied to."""
    at_bound: bool = False

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval from the standard error; for strongly non-linear models see `Fit.profile`."""
        half = float(quantile(level, self.degrees_of_freedom)) * self.error
        return self.value - half, self.value + half

    def __str__(self) -> str:
        note = f" = {self.tie}" if self.tie else " (fixed)" if self.fixed else " at its bound" if self.at_bound else ""
        written = repr(self.value) if self.fixed else with_error(self.value, self.error)
        return f"{self.name} = {written}{note}"


class Band(NamedTuple):
    """A curve with an interval at each point; (k,) arrays."""

    value: Array
    lower: Array
    upper: Array


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Parameters of a fit and quantities derived from them and their covariance; see `problm.Fit`."""

    model: Any
    """The fitted model: a `problm.models.model.Model` or a function ``f(x, *parameters)``."""
    ties: Ties
    result: Result
    """Result of the solver, for the free parameters."""
    x: Any = None
    """Where the data were measured; None if they are not in memory."""
    y: Any = None
    sigma: Any = None
    absolute_sigma: bool = False
    loss: str = "linear"
    bounds: tuple[Array, Array] | None = None
    """(d,) lower and upper bounds of the free parameters."""
    warnings: tuple[str, ...] = ()
    """Reasons to doubt the fit; see `problm.inference.doubts`."""
    labels: tuple[str, ...] = ()
    """Names of the axes, variables before the response, as with units; those of the model if empty."""
    jac: Callable[..., Any] | None = field(default=None, repr=False)
    refit: Callable[..., Result] | None = field(default=None, repr=False)
    """``refit(start, x, y, sigma, fixed)`` repeats the fit with other data or other fixed parameters."""
    objective: Callable[[Array], float] | None = field(default=None, repr=False)
    """chi2 as a function of the free parameters, if it is not the sum of squares of ``(y - f(x)) / sigma``."""

    # --- parameters ---------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        return self.ties.names

    @cached_property
    def values(self) -> Array:
        """(p,) values of all parameters."""
        return self.ties.full(self.result.x)

    @cached_property
    def free_covariance(self) -> Array:
        """(d, d) covariance of the free parameters."""
        return self.result.unscaled_covariance if self.absolute_sigma else self.result.covariance

    @cached_property
    def covariance(self) -> Array:
        """(p, p) covariance of all parameters; errors are propagated to tied ones."""
        J = self.ties.jacobian(self.result.x)
        covariance: Array = J @ self.free_covariance @ J.T
        return covariance

    @property
    def correlation(self) -> Array:
        """(p, p) correlation of all parameters; NaN for fixed ones."""
        errors = self.errors
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation: Array = self.covariance / np.outer(errors, errors)
        return correlation

    @property
    def errors(self) -> Array:
        """(p,) standard errors; infinite for parameters that no residual depends on."""
        errors = np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))
        unseen = self.result.unseen
        if unseen.any():
            errors[self.ties.jacobian(self.result.x)[:, unseen].any(axis=1)] = np.inf
        return errors

    @property
    def params(self) -> dict[str, Parameter]:
        """The parameters by name."""
        result, free = self.result, self.ties.free
        dof = np.inf if self.absolute_sigma else float(result.degrees_of_freedom)
        found = {}
        for i, name in enumerate(self.names):
            k = free.index(name) if name in free else None
            found[name] = Parameter(
                name, float(self.values[i]), float(self.errors[i]), dof,
                fixed=k is not None and result.fixed is not None and bool(result.fixed[k]),
                tie=self.ties.texts.get(name),
                at_bound=k is not None and bool(result.active_mask[k]),
            )  # fmt: skip
        return found

    def free_index(self, name: str) -> int:
        """Index of a free parameter in ``result.x``."""
        if name not in self.ties.free:
            why = "is tied" if name in self.names else f"does not exist{suggest(name, self.ties.free)}"
            raise ValueError(f"parameter {name!r} {why}; the free ones are {', '.join(self.ties.free)}")
        k = self.ties.free.index(name)
        if self.result.fixed is not None and self.result.fixed[k]:
            raise ValueError(f"parameter {name!r} is fixed")
        return k

    # --- how good it is -----------------------------------------------------------------------------------------

    @property
    def success(self) -> bool:
        return self.result.success

    @property
    def n(self) -> int:
        """Number of points."""
        return self.result.n

    @property
    def n_free(self) -> int:
        """Number of parameters that were fitted."""
        return len(self.ties.free) - (0 if self.result.fixed is None else int(self.result.fixed.sum()))

    @property
    def degrees_of_freedom(self) -> int:
        return self.result.degrees_of_freedom

    @property
    def chi2(self) -> float:
        """Sum of squared residuals in units of sigma (sum of their losses for a robust fit)."""
        return 2.0 * self.result.cost

    @property
    def reduced_chi2(self) -> float:
        return self.chi2 / self.degrees_of_freedom

    @property
    def aic(self) -> float:
        """Akaike information criterion, up to a constant of the data: ``chi2 + 2 d`` if sigma is absolute, else as in
        lmfit."""
        return self.deviance + 2.0 * self.n_free

    @property
    def bic(self) -> float:
        """Bayesian information criterion, up to the same constant: ``log(n) d`` in place of ``2 d``."""
        return self.deviance + float(np.log(self.n)) * self.n_free

    @property
    def deviance(self) -> float:
        """-2 log likelihood, up to a constant of the data."""
        if self.absolute_sigma:
            return self.chi2
        return self.n * float(np.log(max(self.chi2, np.finfo(float).tiny) / self.n))

    @cached_property
    def r2(self) -> float:
        """Share of the variance of y, weighted as in the fit, that the model explains; NaN if y is constant."""
        y, weight = self.observed, 1.0 / self.deviations**2
        spread = float(np.sum(weight * (y - np.average(y, weights=weight)) ** 2))
        return 1.0 - float(np.sum(weight * self.residuals**2)) / spread if spread > 0.0 else float("nan")

    # --- rows ---------------------------------------------------------------------------------------------------

    def predict(self, x: Any) -> Array:
        """Values (k,) of the fitted curve at x: arrays as for the fit, or a table with the columns of the variables."""
        refuse_units("x", x)
        values: Array = np.asarray(self.model(self._places(x), *self.values), dtype=np.float64)
        return values

    def _places(self, x: Any) -> Any:
        """x as arrays, if it is a table that has the variables of the model."""
        variables = getattr(self.model, "variables", ())
        named = self.labels[: len(variables)] or variables
        columns = x if isinstance(x, Mapping) else getattr(x, "column_names", getattr(x, "columns", ()))
        if not named or any(name not in columns for name in named):
            return x
        found = [np.asarray(x[name], dtype=np.float64) for name in named]
        return found[0] if len(found) == 1 else np.stack(found)

    @cached_property
    def residuals(self) -> Array:
        """(n,) ``y - predict(x)``, in the units of y."""
        return self.observed - self.predict(self.in_memory(self.x)).ravel()

    @cached_property
    def leverage(self) -> Array:
        """(n,) diagonal of the hat matrix: how much each point pulls the curve towards itself. Its sum is d."""
        J = self.slopes(self.in_memory(self.x)) / self.deviations[:, None]
        return np.asarray(np.einsum("ni,ij,nj->n", J, self.result.unscaled_covariance, J))

    @property
    def studentized_residuals(self) -> Array:
        """(n,) residuals divided by their standard deviations, with the noise estimated without the point itself."""
        scaled = self.residuals / self.deviations
        room = np.maximum(1.0 - self.leverage, np.finfo(float).eps)
        if self.absolute_sigma:
            return np.asarray(scaled / np.sqrt(room))
        dof = self.degrees_of_freedom
        without = np.maximum(self.chi2 - scaled**2 / room, 0.0) / max(dof - 1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            studentized: Array = scaled / np.sqrt(without * room)
        return studentized

    def outliers(self, level: float = 0.05) -> NDArray[np.int64]:
        """Indices of outliers at a joint significance ``level`` for all n points (Bonferroni)."""
        dof = np.inf if self.absolute_sigma else max(self.degrees_of_freedom - 1, 1)
        return np.flatnonzero(np.abs(self.studentized_residuals) > quantile(1.0 - level / self.n, dof))

    def slopes(self, x: Any) -> Array:
        """(k, d) derivatives of the curve with respect to the free parameters."""
        theta = np.asarray(self.result.x, dtype=np.float64)
        curve = self.ties.apply(self.model)
        if self.jac is not None:
            return np.asarray(self.ties.apply_to_jacobian(self.jac)(x, *theta), dtype=np.float64)
        if hasattr(curve, "jacobian"):
            return np.asarray(curve.jacobian(x, *theta), dtype=np.float64)
        return derivatives(lambda t: np.ravel(np.asarray(curve(x, *t), dtype=np.float64)), theta, relative(theta)).T

    def confidence_band(self, x: Any, level: float = 0.95) -> Band:
        """Pointwise confidence band of the curve, from its derivatives and the covariance."""
        return self._band(x, level, 0.0)

    def prediction_band(self, x: Any, level: float = 0.95, sigma: Any = None) -> Band:
        """Pointwise band for a new measurement at x; its ``sigma`` is needed if the fit had one."""
        if sigma is None and self.sigma is not None:
            raise ValueError("sigma is needed for the new points, because the fit had standard deviations")
        noise = np.asarray(1.0 if sigma is None else sigma, dtype=np.float64) ** 2
        return self._band(x, level, noise * (1.0 if self.absolute_sigma else self.reduced_chi2))

    def _band(self, x: Any, level: float, noise: Any) -> Band:
        refuse_units("x", x)
        x = self._places(x)
        x = x if hasattr(x, "columns") else np.asarray(x, dtype=np.float64)
        value, J = self.predict(x).ravel(), self.slopes(x)
        variance = np.einsum("ni,ij,nj->n", J, self.free_covariance, J)
        dof = np.inf if self.absolute_sigma else self.degrees_of_freedom
        half = quantile(level, dof) * np.sqrt(np.maximum(variance, 0.0) + noise)
        return Band(value, value - half, value + half)

    def chi2_at(self, theta: Array) -> float:
        """`chi2` at a point of the free parameters."""
        if self.objective is not None:
            return self.objective(theta)
        curve = np.asarray(self.ties.apply(self.model)(self.x, *theta), dtype=np.float64).ravel()
        scaled = (self.observed - curve) / self.deviations
        return float(scaled @ scaled)

    @property
    def observed(self) -> Array:
        """(n,) y as numbers."""
        return np.asarray(self.in_memory(self.y), dtype=np.float64).ravel()

    @property
    def deviations(self) -> Array:
        """(n,) sigma, or ones."""
        if self.sigma is not None and np.ndim(self.sigma) > 1:
            raise ValueError("not available for data with a covariance matrix")
        return np.broadcast_to(np.asarray(1.0 if self.sigma is None else self.sigma, dtype=np.float64), (len(self.y),))

    def in_memory(self, values: Any) -> Any:
        """Return the values; raise an error if they are missing."""
        if values is None:
            raise ValueError("this needs the data in memory; pass them to Fit.load for a fit loaded from a file")
        return values


def quantile(level: float, degrees_of_freedom: float) -> float:
    """Half width of a two-sided interval in standard errors, by Student's t (normal if the freedom is infinite)."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    return student_quantile(0.5 * (1.0 + level), degrees_of_freedom)


def by_name(names: tuple[str, ...], values: Mapping[str, Any], argument: str) -> dict[int, Any]:
    """Turn a mapping by name into one by position, and check the names."""
    for name in values:
        if name not in names:
            raise ValueError(
                f"{argument}: there is no parameter {name!r}{suggest(name, names)}; there are {', '.join(names)}"
            )
    return {names.index(name): value for name, value in values.items()}
