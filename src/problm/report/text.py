"""A result as a page of text, similar to lmfit's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .numbers import with_error
from .shown import ShownResult

Array = NDArray[np.float64]
_MOST_PARAMETERS = 30


def report(result: ShownResult, *, absolute: bool = False, goodness: Mapping[str, float] | None = None) -> str:
    """Outcome, fit statistics, parameters with standard errors, strong correlations, and the work done.

    Parameters
    ----------
    result
    absolute
        Whether residuals have unit variance (standard deviations were given in the units of the response), so that
        errors are not scaled by the reduced chi square.
    goodness
        Further numbers by name.
    """
    lines = [
        f"ProBLM: {result.message}",
        f"  residual blocks   {result.n:,}"
        + ("" if result.complete else f" (ended on a batch of {result.batch_size:,})"),
        f"  parameters        {len(result.grad)}",
        f"  cost              {result.cost:.10g}" + ("" if result.complete else " (estimated from the batch)"),
        f"  reduced chi2      {2 * result.cost / result.degrees_of_freedom:.6g}",
        *(f"  {name.replace('_', ' '):<17} {value:.6g}" for name, value in (goodness or {}).items()),
        f"  gradient          {result.optimality:.3g} (cosine {result.cosine:.2g}"
        + (", over all residuals)" if result.complete else ", over the batch)"),
        f"  iterations        {result.nit}, {result.seconds:.3g} s",
        f"  work              {result.residual_passes:.3g} residual and {result.jacobian_passes:.3g} Jacobian passes",
    ]
    if lists_parameters(result):
        lines += ["", *_parameters(result, absolute)]
    return "\n".join(lines)


def lists_parameters(result: ShownResult) -> bool:
    """Whether the parameters are numbers, and not so many that the errors of all of them take longer than the fit."""
    numbers = isinstance(result.x, np.ndarray) and result.x.shape == (len(result.grad),)
    return numbers and isinstance(result.hessian, np.ndarray)


def _parameters(result: ShownResult, absolute: bool) -> list[str]:
    covariance = result.unscaled_covariance if absolute else result.covariance  # handles absolute sigmas as well
    names = result.names or tuple(f"x{i}" for i in range(len(covariance)))
    fixed = np.zeros(len(names), dtype=bool) if result.fixed is None else result.fixed
    bound = {-1: "at its lower bound", 1: "at its upper bound"}
    notes = ["fixed" if fixed[i] else bound.get(int(result.active_mask[i]), "") for i in range(len(names))]
    errors = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    return [
        *parameter_lines(names, result.x, np.where(result.unseen, np.inf, errors), notes),
        *correlation_lines(names, covariance),
    ]


def parameter_lines(names: Sequence[str], values: Array, errors: Array, notes: Sequence[str]) -> list[str]:
    """One line per parameter: value and error, their ratio, and a note; fixed parameters have no error."""
    shown = range(min(len(names), _MOST_PARAMETERS))
    width = max(len(names[i]) for i in shown)
    written = [repr(float(values[i])) if notes[i] == "fixed" else with_error(values[i], errors[i]) for i in shown]
    column = max(len(w) for w in written)
    lines = []
    for i in shown:
        percent = 100 * errors[i] / abs(values[i]) if values[i] and notes[i] != "fixed" else np.nan
        share = f" ({percent:.2g} %)" if percent < 99.5 else f" ({percent:.0f} %)" if percent < 1e4 else ""
        note = f"  {notes[i]}" if notes[i] and notes[i] != "fixed" else " (fixed)" * bool(notes[i])
        lines.append(f"  {names[i]:<{width}}  {written[i]:>{column}}{share}{note}")
    if len(names) > _MOST_PARAMETERS:
        lines.append(f"  ... and {len(names) - _MOST_PARAMETERS} more")
    return lines


def correlation_lines(names: Sequence[str], covariance: Array) -> list[str]:
    """The strongest correlations, if there are any."""
    strong = strong_correlations(covariance)
    if not strong:
        return []
    return ["", "  correlations above 0.5", *(f"    {names[j]}, {names[i]}  {c:+.3f}" for c, i, j in strong)]


def strong_correlations(covariance: Array, least: float = 0.5, most: int = 8) -> list[tuple[float, int, int]]:
    """``(rho, i, j)``, i > j, the strongest first."""
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / np.outer(error, error)
    pairs = [(float(correlation[i, j]), i, j) for i in range(len(error)) for j in range(i)]
    return sorted((p for p in pairs if abs(p[0]) > least), key=lambda p: -abs(p[0]))[:most]
