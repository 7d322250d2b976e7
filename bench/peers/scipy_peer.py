"""SciPy's `least_squares` on curves, with the analytic Jacobian: MINPACK's lm and the trust-region trf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..harness.run import Method, Outcome
from . import ended, timed, version_of


def _with(method: str) -> Any:
    def run(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        from scipy.optimize import least_squares

        made = instance.extra
        x0 = instance.starts[start]
        tolerance = {k: float(options.get(k) or 1e-8) for k in ("ftol", "xtol", "gtol")}
        found, seconds = timed(
            lambda: least_squares(made.fun, x0, jac=made.jac, args=made.data, method=method, **tolerance)
        )
        njev = found.njev if found.njev is not None else 0
        return ended(found.x, seconds, n=instance.n, residuals=float(found.nfev), jacobians=float(njev),
                     success=bool(found.success))  # fmt: skip

    return run


LM = Method("scipy-lm", "SciPy lm", _with("lm"), "#e69f00", version_of("scipy"), peer=True)
TRF = Method("scipy-trf", "SciPy trf", _with("trf"), "#f0e442", version_of("scipy"), peer=True)
