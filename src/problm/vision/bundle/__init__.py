"""Bundle adjustment, perspective and affine; camera models; reconstructions and their files.

Calls no other room of vision. Start with `problm.vision.bundle.adjust`.
"""
