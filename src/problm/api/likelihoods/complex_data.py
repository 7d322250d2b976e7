"""Complex data, such as impedances: real and imaginary parts are fitted together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...inference.fit import Fit
from ..arguments import column, numbers


@dataclass(frozen=True, eq=False, repr=False)
class ComplexFit(Fit):
    """A `problm.Fit` of complex data.

    Its rows are the real parts, then the imaginary parts; x has a second row, 0 or 1, that says which. `curve` gives
    complex values.
    """

    function: Callable[..., Any] = field(default=np.asarray, repr=False)
    """The complex function ``f(x, *parameters)``."""

    def curve(self, x: Any) -> NDArray[np.complex128]:
        """Complex values of the fitted function at x."""
        values: NDArray[np.complex128] = np.asarray(self.function(np.asarray(x), *self.values), dtype=np.complex128)
        return values


def stacked(
    function: Callable[..., Any], x: Any, y: Any, sigma: Any, names: tuple[str, ...]
) -> tuple[Callable[..., Any], Any, Any, Any]:
    """A real function of (x, part), and the data that it fits.

    Each row depends on its own x only, if that is so for the function.
    """
    x, y = numbers("x", x), column("y", y)
    if x.ndim != 1 or y.shape != x.shape:
        raise ValueError(f"x and y must have the same length for complex data, got {x.shape} and {y.shape}")

    def parts(points: Any, *parameters: float) -> Any:
        at = np.asarray(points, dtype=np.float64)
        values = np.asarray(function(at[0], *parameters))
        return np.where(at[1] == 0.0, values.real, values.imag)

    parts.__name__ = getattr(function, "__name__", "function")
    parts.parameters = names  # type: ignore[attr-defined]
    part = np.repeat([0.0, 1.0], len(x))
    spread = sigma
    if sigma is not None and (np.ndim(sigma) or np.iscomplexobj(sigma)):
        both = np.broadcast_to(column("sigma", np.atleast_1d(sigma)), y.shape)
        spread = np.concatenate([both.real, both.imag if np.iscomplexobj(both) else both])
    return parts, np.stack([np.tile(x, 2), part]), np.concatenate([y.real, y.imag]).astype(np.float64), spread


def as_complex(found: Fit, function: Callable[..., Any]) -> ComplexFit:
    """The fit of stacked data as one of complex data."""
    fields = {name: getattr(found, name) for name in Fit.__dataclass_fields__}
    return replace(ComplexFit(**fields), function=function)
