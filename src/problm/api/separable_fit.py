r"""Separable least squares: fit the non-linear parameters, and eliminate the linear ones.

Many models are linear in most of their parameters: ``y = sum_k c_k phi_k(x; alpha)``. A sum of exponentials is the
textbook case. Variable projection computes the coefficients c for every alpha by linear least squares and minimises
over alpha alone: fewer parameters, no start for the coefficients, fewer iterations.

`separable_fit` fits one curve, or very many that share alpha and have their own coefficients (global analysis of
decay curves or spectra). Each curve is then one residual block, and batches are drawn over curves.
`problm.problems.separable_linear.LinearSeparableProblem` is the problem behind it;
`problm.problems.separable_nonlinear.SeparableProblem` eliminates *non-linear* parameters of each block by a few
Gauss-Newton steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..losses import Loss, as_loss
from ..problems.separable_curve import SingleCurveProblem
from ..problems.separable_linear import Basis, LinearSeparableProblem
from ..problems.separable_nonlinear import SeparableProblem
from ..report.numbers import with_error
from ..solver.result import Result
from .arguments import column, limits, numbers, parameters

Array = NDArray[np.float64]

__all__ = ["LinearSeparableProblem", "SeparableFit", "SeparableProblem", "separable_fit"]


@dataclass(frozen=True, eq=False)
class SeparableFit:
    """Result of `separable_fit`: shared non-linear parameters, and the coefficients of every curve.

    Examples
    --------
    >>> import problm
    >>> x = np.linspace(0, 5, 50)
    >>> fit = problm.separable_fit(lambda x, rate: [np.exp(-rate[0] * x), 1.0], [1.0], x, 3 * np.exp(-0.4 * x) + 0.5)
    >>> fit.alpha.round(6), fit.coefficients.round(6)
    (array([0.4]), array([3. , 0.5]))
    """

    alpha: Array
    """(d,) non-linear parameters."""
    coefficients: Array
    """(n, k) coefficients; (k,) for a single curve."""
    cost: float
    """Half the sum of (robustified) squared residuals over all curves."""
    rmse: float
    """Root mean square of the residuals, in units of sigma if it was given."""
    degrees_of_freedom: int
    """Number of samples minus number of parameters, including the coefficients."""
    absolute_sigma: bool
    result: Result
    """Result of the solver: status, message, history."""
    problem: LinearSeparableProblem = field(repr=False)

    @property
    def variance(self) -> float:
        """Variance of the noise relative to sigma: 1 for absolute sigmas, else estimated from the residuals."""
        return 1.0 if self.absolute_sigma else 2.0 * self.cost / self.degrees_of_freedom

    @property
    def covariance(self) -> Array:
        """(d, d) covariance of alpha, with the coefficients free."""
        return self.variance * self.result.unscaled_covariance

    @property
    def standard_errors(self) -> Array:
        """(d,) standard errors of alpha."""
        return np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))

    def coefficient_errors(self) -> Array:
        """Standard errors of the coefficients, (n, k) or (k,), including the uncertainty of alpha."""
        variances = self.problem.coefficient_variances(self.alpha, self.result.unscaled_covariance)
        return np.sqrt(self.variance * variances).reshape(self.coefficients.shape)

    def __str__(self) -> str:
        r = self.result
        curves = 1 if self.coefficients.ndim == 1 else len(self.coefficients)
        counted = "1 curve" if curves == 1 else f"{curves} curves"
        lines = [f"separable fit: {counted}, {self.coefficients.shape[-1]} coefficients each", r.message]
        for i, (value, error) in enumerate(zip(self.alpha, self.standard_errors, strict=True)):
            lines.append(f"  alpha[{i}] = {with_error(value, error)}")
        lines.append(f"cost {self.cost:.6e}, rmse {self.rmse:.4g}; {r.nit} iterations, {r.seconds:.2f} s")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ..report.page import listing

        return listing(str(self))


def separable_fit(
    basis: Basis,
    alpha0: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    derivative: Basis | str = "3-point",
    sigma: ArrayLike | None = None,
    absolute_sigma: bool = False,
    bounds: Any = None,
    jacobian: str = "exact",
    loss: str | Loss = "linear",
    f_scale: float = 1.0,
    threads: int | None = None,
    rng: np.random.Generator | int | None = 0,
    **options: Any,
) -> SeparableFit:
    """Fit ``y = sum_k c_k phi_k(x; alpha)`` by variable projection: alpha is shared, coefficients are per curve.

    Parameters
    ----------
    basis
        ``basis(x, alpha)`` returns the basis functions phi_k at x along the last axis, (m, k), or as a list of k
        arrays (a number stands for a constant).
    alpha0
        (d,) start of the non-linear parameters. The coefficients need no start.
    x
        (m,) or (m, ...) if all curves share it; (n, m) or (n, m, ...) if each curve has its own. In the latter case
        ``basis`` gets the x of several curves at once, (b, m, ...), and returns (b, m, k).
    y
        (n, m) for n curves of m samples, or (m,) for one curve.
    derivative
        ``derivative(x, alpha)``, whose result has one more axis of length d than the basis; ``"3-point"`` for central
        differences, or ``"cs"`` for the complex step.
    sigma
        Standard deviations: a number, (m,) or (n, m); ``inf`` for a missing sample (whose y may be anything finite).
    absolute_sigma
        Whether sigma is known absolutely, as in SciPy's ``curve_fit``, or only relatively.
    bounds
        (lower, upper) bounds of alpha.
    jacobian
        ``"exact"`` (Golub and Pereyra), or the cheaper ``"kaufman"``, which leaves out a term that vanishes with the
        residuals.
    loss, f_scale
        Robust loss on the norm of a whole curve's residuals, and its scale: curves that do not fit are ignored. (For
        outlying samples of a single curve use `problm.curve_fit`.)
    threads
        Number of threads for curves with their own x or sigma; by default all cores that the process may use.
    rng
        Random seed for the order of the curves.
    **options
        Options of the solver: ``acceptance``, ``max_iter``, ``max_time``, ``ftol``, ``accuracy``, ``callback``, ...

    Returns
    -------
    SeparableFit

    Examples
    --------
    A sum of two exponentials with a background, from one curve. Only the two rates need a start:

    >>> def decays(x, rates):
    ...     return [np.exp(-rates[0] * x), np.exp(-rates[1] * x), 1.0]
    >>> x = np.linspace(0, 10, 200)
    >>> y = 3.0 * np.exp(-0.4 * x) + 2.0 * np.exp(-2.0 * x) + 0.5
    >>> fit = separable_fit(decays, [0.1, 1.0], x, y)
    >>> fit.alpha.round(6), fit.coefficients.round(6)
    (array([0.4, 2. ]), array([3. , 2. , 0.5]))

    Ten thousand curves that share the rates, each with its own amplitudes:

    >>> rng = np.random.default_rng(0)
    >>> amplitudes = rng.uniform(1, 3, (10_000, 3))
    >>> Y = amplitudes @ np.stack([np.exp(-0.4 * x), np.exp(-2.0 * x), np.ones_like(x)])
    >>> Y += 0.1 * rng.normal(size=Y.shape)
    >>> fit = separable_fit(decays, [0.1, 1.0], x, Y)
    >>> fit.coefficients.shape, bool(np.all(abs(fit.alpha - [0.4, 2.0]) < 4 * fit.standard_errors))
    ((10000, 3), True)
    """
    from ..linalg.space import Space
    from ..solver.loop import solve
    from ..support.threads import available_threads

    alpha = parameters("alpha0", alpha0)
    samples, Y = column("x", x), column("y", y)
    single = Y.ndim == 1
    Y = Y[None] if single else Y
    if Y.ndim != 2 or 0 in Y.shape:
        raise ValueError(f"y must have the shape (m,) or (curves, m), got {np.shape(y)}")
    if Y.dtype.kind not in "fiu":
        raise ValueError(f"y must hold real numbers, got dtype {Y.dtype}")
    own_x = samples.shape[:2] == Y.shape and not single
    if not own_x and samples.shape[:1] != (Y.shape[1],):
        raise ValueError(
            f"x must have {Y.shape[1]} samples along its first axis, like y, or one row per curve {Y.shape}; "
            f"got {samples.shape}"
        )
    if jacobian not in ("exact", "kaufman"):
        raise ValueError(f"jacobian={jacobian!r} is not known; choose 'exact' or 'kaufman'")
    if not callable(derivative) and derivative not in ("3-point", "cs"):
        raise ValueError(f"derivative must be a function, '3-point' or 'cs', got {derivative!r}")
    the_loss = as_loss(loss, f_scale)
    if len(Y) == 1 and not the_loss.is_linear:
        raise ValueError(
            f"loss={the_loss.name!r} acts on whole curves, and there is only one: use problm.curve_fit, whose losses "
            "act on samples"
        )
    deviations, used = _deviations(sigma, Y, single)
    _finite("y", Y)
    _finite("x", samples)
    alone = len(Y) == 1 and not own_x and (deviations is None or deviations.ndim == 1)
    problem = (SingleCurveProblem if alone else LinearSeparableProblem)(
        basis,
        samples,
        Y,
        len(alpha),
        derivative=derivative,
        sigma=deviations,
        own_x=own_x,
        exact=jacobian == "exact",
        loss=the_loss,
        threads=threads or available_threads(),
        rng=rng,
    )
    first = problem.phi(alpha) if not own_x else problem.phi(alpha, samples[:1], 1)[0]
    if first.shape[1] >= Y.shape[1]:
        raise ValueError(
            f"basis has {first.shape[1]} functions for {Y.shape[1]} samples per curve: too few to determine alpha"
        )
    if not np.isfinite(first).all():
        raise ValueError(f"basis is not finite at alpha0 = {alpha}: move the start or restrict x")
    between = limits(bounds, alpha, "alpha0")
    space = Space(len(alpha)) if between is None else Space(len(alpha), *between)
    result = solve(problem, alpha, space=space, **options)
    if isinstance(problem, SingleCurveProblem) and not problem.shares_no_column_at(result.x):
        problem.move_one_by_one()
        result = solve(problem, result.x, space=space, **options)
    coefficients = problem.coefficients(result.x)
    cost = problem.cost(result.x)
    plain = cost if the_loss.is_linear else 0.5 * float((problem.residuals(result.x) ** 2).sum())
    return SeparableFit(
        result.x,
        coefficients[0] if single else coefficients,
        cost,
        float(np.sqrt(2.0 * plain / used)),
        max(1, used - coefficients.size - len(alpha)),
        absolute_sigma,
        result,
        problem,
    )


def _deviations(sigma: ArrayLike | None, Y: NDArray[Any], single: bool) -> tuple[Array | None, int]:
    """sigma as (m,) or (n, m), and the number of samples that count."""
    if sigma is None:
        return None, Y.size
    deviations = numbers("sigma", sigma)
    if not deviations.ndim:  # one number for all samples
        deviations = np.full(Y.shape[1], deviations)
    if deviations.shape not in ((Y.shape[1],), Y.shape):
        raise ValueError(f"sigma must have the shape {(Y.shape[1],)} or {Y.shape}, got {deviations.shape}")
    if np.isnan(deviations).any() or (deviations <= 0).any():
        raise ValueError("sigma must be positive everywhere (inf for a missing sample)")
    count = int(np.isfinite(deviations).sum())
    return deviations, count * (len(Y) if deviations.ndim == 1 else 1)


def _finite(name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array.sum(dtype=np.float64)) and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} is not finite at {where}; for a missing sample set y to 0 and its sigma to inf")
