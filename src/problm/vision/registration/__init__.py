"""Registration of point clouds: the rigid motion or similarity that moves one cloud onto another.

Calls no other room of vision. Start with `problm.vision.registration.register`.
"""
