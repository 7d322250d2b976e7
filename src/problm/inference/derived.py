"""Quantities calculated from the parameters of a fit."""

from __future__ import annotations

import numpy as np

from ..models import expression as ex
from ..models.derivatives import derivatives
from ..models.formula import formula
from ..support.suggest import suggest
from .estimate import Estimate, Parameter


def derived(fit: Estimate, expression: str) -> Parameter:
    """The value of an expression of the parameters, with its standard error by linear propagation.

    Parameters
    ----------
    fit
    expression : str
        For example ``"2.3548*sigma"`` or ``"amplitude*sigma*sqrt(2*pi)"``.
    """
    model = formula(expression, variables=())
    for name in model.parameters:
        if name not in fit.names:
            raise ValueError(
                f"expression: {name!r} is not a parameter; they are {', '.join(fit.names)}{suggest(name, fit.names)}"
            )
    assert model.body is not None
    places = [fit.names.index(name) for name in model.parameters]
    by = derivatives([model.body], len(places))[0]
    value, *slopes = ex.evaluate([model.body, *by], fit.values[places].tolist(), [])
    gradient = np.array(slopes, dtype=np.float64)
    variance = float(gradient @ fit.covariance[np.ix_(places, places)] @ gradient)
    freedom = next(iter(fit.params.values())).degrees_of_freedom
    fixed = all(fit.params[name].fixed for name in model.parameters)
    return Parameter(expression.strip(), float(value), float(np.sqrt(max(variance, 0.0))), freedom, fixed)
