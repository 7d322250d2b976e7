"""The front doors: least_squares, curve_fit, fit, separable_fit, check_jacobian, and checks of their arguments.

Calls every room below it. Start with `problm.api.least_squares`.
"""
