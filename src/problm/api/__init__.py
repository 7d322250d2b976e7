"""The front doors: least_squares, curve_fit, separable_fit, check_jacobian, and the checks of their arguments.

Calls every room below it. Start with `problm.api.least_squares`.
"""
