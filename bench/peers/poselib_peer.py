"""PoseLib: `refine_relative_pose` (loss TRIVIAL: plain squares) and `estimate_relative_pose` (LO-RANSAC)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..harness.run import Method, Outcome
from . import ended, timed, version_of


def _camera(K: np.ndarray) -> dict[str, Any]:
    params = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    return {"model": "PINHOLE", "width": int(2 * K[0, 2]), "height": int(2 * K[1, 2]), "params": params}


def refine(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    import poselib

    matches = instance.extra
    point = instance.starts[start]
    pose = poselib.CameraPose()
    pose.R, pose.t = point[:9].reshape(3, 3), point[9:12]
    camera = _camera(matches.K)
    settings = {"loss_type": "TRIVIAL", "max_iterations": 200, "gradient_tol": 1e-12, "step_tol": 1e-10}
    (found, info), seconds = timed(
        lambda: poselib.refine_relative_pose(matches.x1, matches.x2, pose, camera, camera, settings)
    )
    t = found.t / np.linalg.norm(found.t)
    return ended(np.concatenate([found.R.ravel(), t]), seconds, n=instance.n, iterations=int(info["iterations"]))


def estimate(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    import poselib

    matches = instance.matches
    camera = _camera(matches.K)
    settings = {
        "max_epipolar_error": instance.threshold, "seed": seed, "success_prob": 0.999,
        "max_iterations": int(options.get("ransac_iterations", 1000)),
        "min_iterations": 100,
    }  # fmt: skip
    (pose, _), seconds = timed(
        lambda: poselib.estimate_relative_pose(matches.x1, matches.x2, camera, camera, settings, {})
    )
    t = pose.t
    cross = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    return instance.judged(cross @ pose.R, seconds)


REFINE = Method("poselib", "PoseLib refine", refine, "#e69f00", version_of("poselib"), peer=True)
ESTIMATE = Method("poselib-ransac", "PoseLib LO-RANSAC", estimate, "#e69f00", version_of("poselib"), peer=True)
