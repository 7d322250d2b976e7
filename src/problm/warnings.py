"""ProBLM's own warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class ProblmWarning(UserWarning):
    """Base class of all warnings of ProBLM.

    Examples
    --------
    >>> import warnings, problm
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", problm.ProblmWarning)  # whatever ProBLM warns of ends the program
    """


class ConvergenceWarning(ProblmWarning):
    """A fit did not converge; the values returned are the best found.

    Examples
    --------
    >>> import warnings, problm
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", problm.ConvergenceWarning)
    ...     popt, _ = problm.curve_fit(lambda x, a, b: a * x**b, [1, 2, 3, 4], [1, 4, 9, 17], [1, 0], max_nfev=2)
    """


_COVARIANCE = """The covariance of the parameters could not be estimated.

    Examples
    --------
    >>> import warnings, numpy as np, problm
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     popt, pcov = problm.curve_fit(lambda x, a, b: a + b + x, np.arange(4.0), np.arange(4.0), [1.0, 1.0])
    >>> seen[0].category is problm.CovarianceWarning, bool(np.isinf(pcov).all())
    (True, True)
    """

if TYPE_CHECKING:

    class CovarianceWarning(ProblmWarning):
        """The covariance of the parameters could not be estimated."""


def __getattr__(name: str) -> Any:
    """Create `CovarianceWarning` on first use: it derives from SciPy's OptimizeWarning, whose import takes longer than
    most fits."""
    if name != "CovarianceWarning":
        raise AttributeError(f"module 'problm.warnings' has no attribute {name!r}")
    from scipy.optimize import OptimizeWarning

    made = type(name, (ProblmWarning, OptimizeWarning), {"__module__": __name__, "__doc__": _COVARIANCE})
    globals()[name] = made
    return made
