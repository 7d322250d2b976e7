"""What a fit says beyond its parameters: intervals, bands, profiles, bootstraps, comparisons, doubts.

Calls `problm.models`, `problm.report`, `problm.solver` and `problm.support`. Start with `problm.inference.fit`.
"""
