"""Images as arrays: reading, pyramids, resampling, features.

Calls no other room of vision. Start with `problm.vision.images.image`.
"""
