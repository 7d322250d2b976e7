"""Fits whose errors are not independent normal deviations of y alone: errors in x, limits, complex numbers.

Calls what `problm.api` may call. Start with `problm.api.likelihoods.errors_in_x`.
"""
