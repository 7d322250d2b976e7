"""``f_scale="auto"``: the scale of a robust loss from the data.

The noise is the normalised median of the sizes of the residuals, ``median |r| / 0.6745``, at a robust fit: Huber's loss
with the scale of the noise, from the user's start, repeated until the noise no longer changes. Nearly half of the rows
may be outliers. The scale is the noise times the width that gives the loss 95 % efficiency for Gaussian noise
(`problm.losses.RULES`).

Ten thousand rows are enough for a scale to two per cent: of more, a random sample is used, unless the function needs
all of them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..losses import RULES, Loss
from ..problems.rows import Columns, FunctionModel, RowModel
from ..solver.problem import FEW, Theta
from ..support.scipy_extensions import gammaincinv
from .fit_rows import fit_rows, nearby
from .settings import Settings

_ROUNDS = 10
_SETTLED = 0.02
"""Relative change of the noise at which it is known."""


def refuse_auto(loss: Any) -> None:
    """Raise a ValueError if there is no scale to find for this loss."""
    if isinstance(loss, str) and loss in RULES and loss != "linear":
        return
    named = "linear" if loss == "linear" else f"{loss!r}" if isinstance(loss, str) else type(loss).__name__
    raise ValueError(
        f'f_scale="auto" needs a robust loss by name ({", ".join(n for n in RULES if n != "linear")}), got loss={named}'
    )


def chosen_scale(
    model: RowModel, data: Any, start: Theta, settings: Settings, *, stored: bool = False
) -> tuple[float, Theta]:
    """The scale for the loss of a model, and where to start with it.

    A bounded loss starts where the robust fit ended: at the user's start every residual may lie beyond the scale. So
    does every loss if the robust fit was of all rows.
    """
    rows, everything = _sampled(model, data, start, settings, stored)
    quiet = replace(settings, callback=None, progress=False, acceptance="full", client=None, options={"max_iter": 0})
    found = fit_rows(model, rows, start, quiet)
    noise = _spread(found.fun, len(found.grad))
    quiet = replace(quiet, options={"max_iter": 100})
    theta = start
    for _ in range(_ROUNDS):
        huber = model.with_loss(Loss.named("huber", RULES["huber"].width * noise))
        found = fit_rows(huber, rows, theta, quiet)
        theta, last, noise = found.x, noise, _spread(found.fun, len(found.grad))
        if abs(noise - last) <= _SETTLED * last:
            break
    near = everything or math.isfinite(model.loss.rho_bound)
    return RULES[model.loss.name].width * noise, theta if near else start


def _sampled(model: RowModel, data: Any, start: Theta, settings: Settings, stored: bool) -> tuple[Columns, bool]:
    """Rows for the robust fit, and whether they are all."""
    if stored:
        from ..data.sources import open_source
        from .stored import sample

        source = open_source(data)
        return sample(source, FEW, settings.rng), source.n <= FEW
    if not data or len(data[0]) <= FEW:
        return data, True
    if isinstance(model, FunctionModel):
        points = [*nearby(start, settings.space), start]
        if model.with_loss(model.loss).prepared(points, data, together=False).whole:
            return data, True
    chosen = np.sort(np.random.default_rng(0).choice(len(data[0]), FEW, replace=False))
    return tuple(c[chosen] for c in data), False


def _spread(residuals: NDArray[Any], dim: int) -> float:
    """Standard deviation of Gaussian residuals (n,) or (n, p) with the same median of their sizes."""
    sizes = np.abs(residuals) if residuals.ndim == 1 else np.linalg.norm(residuals, axis=1)
    p = 1 if residuals.ndim == 1 else residuals.shape[1]
    finite = sizes[np.isfinite(sizes)]
    middle = float(np.median(finite)) if finite.size else math.nan
    noise = middle / math.sqrt(2.0 * gammaincinv(0.5 * p, 0.5))
    noise *= math.sqrt(residuals.size / max(residuals.size - dim, 1))
    if not (noise > 0.0 and math.isfinite(noise)):
        raise ValueError(
            'f_scale="auto" found no noise: half of the residuals vanish, or none is finite; give f_scale as a number'
        )
    return noise
