"""Ceres through pyceres on curves: all residuals in one block, evaluated by NumPy, dense QR or normal equations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..harness.run import Method, Outcome
from . import ended, timed, version_of


def run(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    import pyceres

    made = instance.extra
    n, dim = instance.n, instance.dim

    class Curve(pyceres.CostFunction):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.set_num_residuals(n)
            self.set_parameter_block_sizes([dim])
            self.calls = [0, 0]

        def Evaluate(self, parameters: Any, residuals: Any, jacobians: Any) -> bool:
            theta = np.asarray(parameters[0])
            self.calls[0] += 1
            residuals[:] = made.fun(theta, *made.data)
            if jacobians is not None and jacobians[0] is not None:
                self.calls[1] += 1
                jacobians[0][:] = made.jac(theta, *made.data).ravel()
            return True

    x = np.array(instance.starts[start], dtype=float)
    cost, problem = Curve(), pyceres.Problem()
    problem.add_residual_block(cost, None, [x])
    settings = pyceres.SolverOptions()
    settings.linear_solver_type = pyceres.LinearSolverType.DENSE_NORMAL_CHOLESKY
    settings.num_threads = 1
    settings.max_num_iterations = 500
    settings.function_tolerance = float(options.get("ftol") or 1e-8)
    settings.logging_type = pyceres.LoggingType.SILENT
    summary = pyceres.SolverSummary()
    _, seconds = timed(lambda: pyceres.solve(settings, problem, summary))
    return ended(x.copy(), seconds, n=n, residuals=float(cost.calls[0]), jacobians=float(cost.calls[1]))


METHOD = Method("pyceres", "Ceres (pyceres)", run, "#666699", version_of("pyceres"), peer=True)
