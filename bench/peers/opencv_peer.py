"""OpenCV: `findTransformECC` for alignment, RANSAC and MAGSAC++ for the essential matrix; one thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..harness.run import Method, Outcome
from . import ended, timed, version_of

_PACKAGE = "opencv-python-headless"


def ecc(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
    """Maximises correlation, not our cost; its final point is nevertheless judged by our cost."""
    import cv2

    cv2.setNumThreads(1)
    problem = instance.extra["problem"]
    first, second = (instance.extra[k].pixels for k in ("image1", "image2"))
    warp = problem.matrix(instance.starts[start]).astype(np.float32)
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 200, 1e-6)

    def call() -> Any:
        try:
            return cv2.findTransformECC(first, second, warp, cv2.MOTION_HOMOGRAPHY, criteria, None, 5)
        except cv2.error:
            return None  # it raises if it does not converge

    found, seconds = timed(call)
    if found is None:
        return ended(instance.starts[start], seconds, n=instance.n, success=False)
    return ended(problem.point(found[1].astype(float)), seconds, n=instance.n, correlation=float(found[0]))


def _essential(flag: str) -> Any:
    def run(instance: Any, start: int, seed: int, options: Mapping[str, Any]) -> Outcome:
        import cv2

        cv2.setNumThreads(1)
        cv2.setRNGSeed(seed)
        method = getattr(cv2, flag)
        matches, threshold = instance.matches, instance.threshold
        iterations = int(options.get("ransac_iterations", 1000))
        found, seconds = timed(
            lambda: cv2.findEssentialMat(
                matches.x1, matches.x2, matches.K, method=method, prob=0.999, threshold=threshold, maxIters=iterations
            )
        )
        E = None if found[0] is None else found[0][:3]
        return instance.judged(E, seconds)

    return run


ECC = Method("opencv-ecc", "OpenCV ECC", ecc, "#1b7837", version_of(_PACKAGE), peer=True)
RANSAC = Method("opencv-ransac", "OpenCV RANSAC", _essential("RANSAC"), "#1b7837", version_of(_PACKAGE), peer=True)
MAGSAC = Method(
    "opencv-magsac", "OpenCV MAGSAC++", _essential("USAC_MAGSAC"), "#7fbf7b", version_of(_PACKAGE), peer=True
)
