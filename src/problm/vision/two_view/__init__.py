"""Geometry of two views: essential and fundamental matrices, homographies, robust estimation.

Calls no other room of vision. Start with `problm.vision.two_view.essential`.
"""
