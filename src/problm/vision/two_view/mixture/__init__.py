"""Right and wrong matches as a mixture, and the model on which noise, memberships and depths agree.

Calls the rest of `problm.vision.two_view`, `problm.kernels` and `problm.jit`. Start with
`problm.vision.two_view.mixture.membership`.
"""
