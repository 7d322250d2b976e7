"""Direct RGB-D odometry: the rigid motion between two views from their pixels and a depth map.

Reads images like alignment, and shares its compiled lookups. Start with `problm.vision.rgbd.align_rgbd`.
"""
