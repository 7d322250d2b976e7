"""Whether a point is a minimum, measured by the cost itself where the quadratic model may be wrong.

Calls `problm.linalg` and the state of the solve (`problm.solver.run`). Start with
`problm.solver.verification.measured`.
"""

from .escapes import leave_saddle, still_falls
from .exact import perfect, settled, sizes_at
from .measured import FAR, endless, errors_hide_a_direction, hidden_by_errors, verified
from .noise import made_up
from .valley import follow_valley

__all__ = [
    "FAR",
    "endless",
    "errors_hide_a_direction",
    "follow_valley",
    "hidden_by_errors",
    "leave_saddle",
    "made_up",
    "perfect",
    "settled",
    "sizes_at",
    "still_falls",
    "verified",
]
