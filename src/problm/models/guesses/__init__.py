"""First guesses of the parameters of a model, for one curve or for many.

Calls the expressions of `problm.models`. Start with `problm.models.guesses.guess`.
"""
