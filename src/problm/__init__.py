"""ProBLM: non-linear least squares for very many residuals and few parameters.

Progressive-batching Levenberg-Marquardt: steps are computed on a small random batch, taken when a statistical test
says that the cost over *all* residuals falls, and the batch grows until it is everything, so that the answer is the
one that LM gives, for a fraction of the work.

Names are loaded when they are first used, so that ``import problm`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "least_squares": "scipy_api",
    "curve_fit": "curves",
    "check_jacobian": "check",
    "formula": "formulas",
    "model": "formulas",
    "models": "models",
    "Result": "result",
    "Status": "result",
    "Loss": "losses",
    "Options": "options",
    "ProblmWarning": "warnings",
    "ConvergenceWarning": "warnings",
    "CovarianceWarning": "warnings",
}

__all__ = ["__version__", *sorted(_WHERE)]

if TYPE_CHECKING:
    from . import models as models
    from .check import check_jacobian as check_jacobian
    from .curves import curve_fit as curve_fit
    from .formulas import formula as formula, model as model
    from .losses import Loss as Loss
    from .options import Options as Options
    from .result import Result as Result, Status as Status
    from .scipy_api import least_squares as least_squares
    from .warnings import ConvergenceWarning as ConvergenceWarning, CovarianceWarning as CovarianceWarning, ProblmWarning as ProblmWarning


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'problm' has no attribute {name!r}")
    module = importlib.import_module(f".{_WHERE[name]}", __name__)
    value = module if name == _WHERE[name] and name == "models" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
