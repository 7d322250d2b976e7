"""jaxopt's Levenberg-Marquardt and its undamped Gauss-Newton, jitted.

jaxopt's tolerance is absolute and does not scale with N: it is given the gradient norm that our own tolerance means
for this instance, which is the fairest reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..harness.run import Method, Outcome
from . import ended, timed, version_of


def _with(kind: str) -> Any:
    def run(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        import jax
        import jax.numpy as jnp
        import jaxopt

        from .jax_models import arrays, residuals

        data = arrays(instance)
        x0 = jnp.asarray(instance.starts[start])
        kept = instance.__dict__.setdefault("_jaxopt", {})
        if kind not in kept:
            model = residuals(instance.extra.name)
            tol = float(np.linalg.norm(data[1])) * 1e-6
            if kind == "gn":
                solver: Any = jaxopt.GaussNewton(model, maxiter=100, tol=tol, jit=True)
            else:
                solver = jaxopt.LevenbergMarquardt(
                    model, maxiter=200, tol=tol, xtol=1e-8, gtol=tol, materialize_jac=True, solver="cholesky", jit=True
                )
            kept[kind] = jax.jit(lambda x, data: solver.run(x, data))
            jax.block_until_ready(kept[kind](x0, data))
        (x, state), seconds = timed(lambda: jax.block_until_ready(kept[kind](x0, data)))
        return ended(np.array(x), seconds, n=instance.n, steps=int(state.iter_num))

    return run


GN = Method("jaxopt-gn", "jaxopt Gauss-Newton", _with("gn"), "#984ea3", version_of("jaxopt"), peer=True)
LM = Method("jaxopt-lm", "jaxopt LM", _with("lm"), "#c994c7", version_of("jaxopt"), peer=True)
