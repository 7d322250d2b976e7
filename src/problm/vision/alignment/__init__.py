"""Dense alignment of two images: warps, photometric residuals, the search from coarse to fine.

Calls `problm.vision.images` and the rooms below vision. Start with `problm.vision.alignment.align`.
"""
