"""First guesses of the parameters, from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .fitmodel import Model

Array = NDArray[np.float64]


def start(model: Model, x: Any, y: Any) -> Array:
    """A start for the model's parameters: ones, as SciPy does."""
    return np.ones(len(model.parameters))
