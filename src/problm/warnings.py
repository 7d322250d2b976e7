"""ProBLM's own warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class ProblmWarning(UserWarning):
    """Base class of all warnings of ProBLM."""


class ConvergenceWarning(ProblmWarning):
    """A fit did not converge; the values returned are the best found."""


if TYPE_CHECKING:

    class CovarianceWarning(ProblmWarning):
        """The covariance of the parameters could not be estimated."""


def __getattr__(name: str) -> Any:
    """Create `CovarianceWarning` on first use: it derives from SciPy's OptimizeWarning, whose import takes longer than
    most fits."""
    if name != "CovarianceWarning":
        raise AttributeError(f"module 'problm.warnings' has no attribute {name!r}")
    from scipy.optimize import OptimizeWarning

    text = "The covariance of the parameters could not be estimated."
    made = type(name, (ProblmWarning, OptimizeWarning), {"__module__": __name__, "__doc__": text})
    globals()[name] = made
    return made
