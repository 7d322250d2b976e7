"""Camera calibration: intrinsics from views of a board whose points are known.

Calls `vision.bundle` (camera models), `vision.absolute_pose` (views of points in no plane) and `vision.images`. Start
with `problm.vision.calibration.calibrate`.
"""
