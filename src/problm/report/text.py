"""A result as a page of text, in lmfit's spirit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .numbers import with_error
from .shown import ShownResult

_MOST_PARAMETERS = 30


def report(result: ShownResult, *, absolute: bool = False, goodness: Mapping[str, float] | None = None) -> str:
    """Outcome, fit statistics, parameters with standard errors, strong correlations, and the work done.

    Parameters
    ----------
    result
    absolute
        Residuals have unit variance (standard deviations were given in the response's units), so that errors are not
        scaled by the reduced chi square.
    goodness
        Further figures by name.
    """
    lines = [
        f"ProBLM: {result.message}",
        f"  residual blocks   {result.n:,}"
        + ("" if result.certified else f" (ended on a batch of {result.batch_size:,})"),
        f"  parameters        {len(result.grad)}",
        f"  cost              {result.cost:.10g}" + ("" if result.certified else " (estimated from the batch)"),
        f"  reduced chi2      {2 * result.cost / result.degrees_of_freedom:.6g}",
        *(f"  {name.replace('_', ' '):<17} {value:.6g}" for name, value in (goodness or {}).items()),
        f"  gradient          {result.optimality:.3g} (cosine {result.cosine:.2g}"
        + (", over all residuals)" if result.certified else ", over the batch)"),
        f"  iterations        {result.nit}, {result.seconds:.3g} s",
        f"  work              {result.residual_passes:.3g} residual and {result.jacobian_passes:.3g} Jacobian passes",
    ]
    if isinstance(result.x, np.ndarray) and result.x.shape == (len(result.grad),):
        lines += ["", *_parameters(result, absolute)]
    return "\n".join(lines)


def _parameters(result: ShownResult, absolute: bool) -> list[str]:
    covariance = result.unscaled_covariance if absolute else result.covariance
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    d = len(error)
    names = result.names or tuple(f"x{i}" for i in range(d))
    width = max(len(n) for n in names)
    written = [with_error(result.x[i], error[i]) for i in range(min(d, _MOST_PARAMETERS))]
    column = max(len(w) for w in written)
    lines = []
    for i in range(len(written)):
        percent = 100 * error[i] / abs(result.x[i]) if result.x[i] else np.nan
        share = f" ({percent:.2g} %)" if percent < 99.5 else f" ({percent:.0f} %)" if percent < 1e4 else ""
        held = {-1: "  at its lower bound", 1: "  at its upper bound"}.get(int(result.active_mask[i]), "")
        if result.fixed is not None and result.fixed[i]:
            lines.append(f"  {names[i]:<{width}}  {float(result.x[i])!r:>{column}} (fixed)")
            continue
        lines.append(f"  {names[i]:<{width}}  {written[i]:>{column}}{share}{held}")
    if d > _MOST_PARAMETERS:
        lines.append(f"  ... and {d - _MOST_PARAMETERS} more")
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / np.outer(error, error)
    pairs = [(correlation[i, j], i, j) for i in range(d) for j in range(i)]
    strong = sorted((p for p in pairs if abs(p[0]) > 0.5), key=lambda p: -abs(p[0]))[:8]
    if strong:
        lines += ["", "  correlations above 0.5"]
        lines += [f"    {names[j]}, {names[i]}  {c:+.3f}" for c, i, j in strong]
    return lines
