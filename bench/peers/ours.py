"""ProBLM by its front door: the whole public call on a formula, as users make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.instances import FORMULAS
from ..harness.methods import Solvable
from ..harness.run import Outcome, Run
from . import timed


def formula_of(instance: Solvable) -> Any:
    """The instance's curve as a compiled formula, made once: differentiating counts as compiling, excluded for all."""
    import problm

    kept = instance.__dict__
    if "_formula" not in kept:
        kept["_formula"] = problm.formula(FORMULAS[instance.extra.name])
    return kept["_formula"]


def fitting(**settings: Any) -> Run:
    """A method that is one public call on a formula: checks, solve, certificate."""

    def call(instance: Solvable, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        from problm.api.curve_fit import fit

        x, y = instance.extra.data
        model = formula_of(instance)
        result, seconds = timed(
            lambda: fit(model, x, y, instance.starts[start], threads=1, rng=seed, keep_path=True, **settings)
        )
        before = seconds - result.seconds
        h = result.history
        return Outcome(
            seconds=[s + before for s in h.seconds], path=h.path, batch=h.batch_size, residual_passes=h.residual_passes,
            jacobian_passes=h.jacobian_passes, status=int(result.status), total_seconds=seconds,
            total_residual_passes=result.residual_passes, total_jacobian_passes=result.jacobian_passes, x=result.x,
            extra={"certified": result.certified},
        )  # fmt: skip

    return call
