"""Absolute pose: where a camera stands, from pixels of known points in space (resection, PnP).

Calls `vision.two_view` (statistics of errors, descent of candidates) and `vision.bundle` (camera models). Start with
`problm.vision.absolute_pose.estimate`.
"""
