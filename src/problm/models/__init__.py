"""Models of rows: ready-made curves, formulas, traced functions; their derivatives and first guesses.

Calls `problm.kernels`, `problm.losses`, `problm.jit` and `problm.support`, never the solver. Start with
`problm.models.formula`; the curves of `problm.models.ready_made` can be imported from here.

Examples
--------
>>> import problm
>>> peak = problm.models.gaussian()
>>> peak.parameters, float(peak(3.0, 2.0, 3.0, 0.5))  # at x = 3
(('amplitude', 'center', 'sigma'), 2.0)
"""

from typing import TYPE_CHECKING

from . import peaks, responses, steps  # noqa: F401  they register their curves
from .ready_made import CURVES as _CURVES

if TYPE_CHECKING:
    from .peaks import *  # noqa: F403
    from .ready_made import *  # noqa: F403
    from .responses import *  # noqa: F403
    from .steps import *  # noqa: F403

globals().update(_CURVES)
__all__ = list(_CURVES)
