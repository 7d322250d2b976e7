"""Checkpoints: the state of a solve in a file, from which a killed solve resumes with the same bits.

Calls the solver, `problm.linalg` and `problm.support`. Start with `problm.solver.checkpoint.state`.
"""

from .state import Checkpoint

__all__ = ["Checkpoint"]
