"""Ceres on a bundle, through pyceres, if it is installed: with the cost in Python, or COLMAP's in C++."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from problm import Reconstruction, write_colmap

Array = NDArray[np.float64]


def by_python_cost(model: Reconstruction) -> list[dict[str, Any]]:
    """BAL's objective as a Python cost function: the same cost as ours to the last digit."""
    try:
        import pyceres
    except ImportError:
        return []
    from numba import njit

    @njit
    def project(cam, X, xy, r, by_cam, by_point, jacobian):  # type: ignore[no-untyped-def]
        w = cam[:3]
        square = w @ w
        angle = np.sqrt(square)
        s = np.sin(angle) / angle if angle > 1e-10 else 1.0
        c = (1.0 - np.cos(angle)) / square if angle > 1e-10 else 0.5
        e = (1.0 - s) / square if angle > 1e-5 else 1.0 / 6.0
        K = np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])
        K2 = K @ K
        R = np.eye(3) + s * K + c * K2
        turned = R @ X
        x = turned + cam[3:6]
        u, v = x[0] / x[2], x[1] / x[2]
        q = u * u + v * v
        f, k1, k2 = cam[6], cam[7], cam[8]
        radial, slope = 1.0 + q * (k1 + q * k2), k1 + 2.0 * q * k2
        r[0], r[1] = f * radial * u - xy[0], f * radial * v - xy[1]
        if jacobian:
            D = f * np.array(
                [[radial + 2 * u * u * slope, 2 * u * v * slope], [2 * u * v * slope, radial + 2 * v * v * slope]]
            )
            P = D @ np.array([[1.0 / x[2], 0.0, -u / x[2]], [0.0, 1.0 / x[2], -v / x[2]]])
            skew = np.array([[0.0, -turned[2], turned[1]], [turned[2], 0.0, -turned[0]], [-turned[1], turned[0], 0.0]])
            A, B = -P @ (skew @ (np.eye(3) + c * K + e * K2)), P @ R
            for i in range(2):
                a = u if i == 0 else v
                for k in range(3):
                    by_cam[9 * i + k], by_cam[9 * i + 3 + k], by_point[3 * i + k] = A[i, k], P[i, k], B[i, k]
                by_cam[9 * i + 6], by_cam[9 * i + 7], by_cam[9 * i + 8] = radial * a, f * q * a, f * q * q * a

    spare, spare3 = np.zeros(18), np.zeros(6)

    class Cost(pyceres.CostFunction):  # type: ignore[misc]
        def __init__(self, xy: Array) -> None:
            pyceres.CostFunction.__init__(self)
            self.set_num_residuals(2)
            self.set_parameter_block_sizes([9, 3])
            self.xy = xy

        def Evaluate(self, parameters: Any, residuals: Any, jacobians: Any) -> bool:
            if jacobians is None:
                project(parameters[0], parameters[1], self.xy, residuals, spare, spare3, False)
            else:
                by_cam = spare if jacobians[0] is None else jacobians[0]
                by_point = spare3 if jacobians[1] is None else jacobians[1]
                project(parameters[0], parameters[1], self.xy, residuals, by_cam, by_point, True)
            return True

    turns = Rotation.from_matrix(model.rotations).as_rotvec()
    cams = [
        np.array([*turns[i], *model.translations[i], *np.array(model.intrinsics[i].params)[[0, 3, 4]]])
        for i in range(len(turns))
    ]
    points = [p.copy() for p in model.points]
    problem, kept = pyceres.Problem(), []
    for m, j in enumerate(np.repeat(np.arange(len(points)), model.track_lengths)):
        kept.append(Cost(model.xy[m]))
        problem.add_residual_block(kept[-1], None, [cams[model.image[m]], points[j]])
    row = _run(problem, "DENSE_SCHUR", 100)
    inside = row.pop("evaluation")
    row["solver"] = "Ceres, DENSE_SCHUR, cost in Python"
    row["note"] = f"{inside:.1%} of it in the Python cost function"
    return [row]


def by_colmap(model: Reconstruction, repeats: int) -> list[dict[str, Any]]:
    """COLMAP's bundle adjuster: C++ costs, with and without its fixing of the gauge."""
    try:
        import pyceres
        import pycolmap
    except ImportError:
        return []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_colmap(model, folder)
        for solver in ("DENSE_SCHUR", "SPARSE_SCHUR"):
            for fixed in (False, True):
                runs = []
                for _ in range(max(1, repeats // 2)):
                    rec = pycolmap.Reconstruction(folder)
                    config = pycolmap.BundleAdjustmentConfig()
                    for image in rec.images:
                        config.add_image(image)
                    if fixed:
                        config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
                    options = pycolmap.BundleAdjustmentOptions()
                    options.ceres.auto_select_solver_type = False
                    options.ceres.solver_options.linear_solver_type = getattr(pyceres.LinearSolverType, solver)
                    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, rec)
                    runs.append(_run(adjuster.problem, solver, 200))
                row = sorted(runs, key=lambda r: r["seconds"])[len(runs) // 2]
                inside = row.pop("evaluation")
                row["solver"] = f"Ceres, {solver}, COLMAP's C++ cost{', two cameras fixed' if fixed else ''}"
                row["note"] = f"{inside:.0%} of it in cost functions"
                rows.append(row)
    return rows


def _run(problem: Any, solver: str, iterations: int) -> dict[str, Any]:
    import pyceres

    curve: list[tuple[float, float]] = []

    class Note(pyceres.IterationCallback):  # type: ignore[misc]
        def __call__(self, summary: Any) -> Any:
            curve.append((time.process_time() - began, summary.cost))
            return pyceres.CallbackReturnType.SOLVER_CONTINUE

    note = Note()
    options = pyceres.SolverOptions()
    options.linear_solver_type = getattr(pyceres.LinearSolverType, solver)
    options.num_threads = 1
    options.max_num_iterations = iterations
    # The default, 1e-6, ends in the valley before the minimum; ours is run with 1e-8 as well.
    options.function_tolerance = 1e-8
    options.gradient_tolerance = 1e-12
    options.parameter_tolerance = 1e-12
    options.callbacks = [note]
    summary = pyceres.SolverSummary()
    wall = time.perf_counter()
    began = time.process_time()
    pyceres.solve(options, problem, summary)
    wall = time.perf_counter() - wall
    evaluation = summary.residual_evaluation_time_in_seconds + summary.jacobian_evaluation_time_in_seconds
    return {
        "iterations": len(curve) - 1,
        "start cost": summary.initial_cost,
        "final cost": summary.final_cost,
        "seconds": time.process_time() - began,
        "evaluation": evaluation / wall,
        "curve": ([s for s, _ in curve], [c for _, c in curve]),
    }
