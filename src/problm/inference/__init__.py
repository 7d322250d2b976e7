"""Inference from a fit: intervals, bands, profiles, bootstraps, comparisons, warnings.

Calls `problm.models`, `problm.report`, `problm.solver` and `problm.support`. Start with `problm.inference.fit`.
"""
