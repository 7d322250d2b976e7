r"""Robust losses on the norm of a residual block: value, weight and bound.

A block's cost is ``0.5 * s**2 * rho(||r||**2 / s**2)`` with the scale ``s`` (SciPy's ``f_scale``), so that
every loss behaves as ``0.5 ||r||**2`` near zero. Three things are needed of a loss:

``rho(z)``
    the value;
``rho'(z)``
    the weight of the block in an IRLS step: the gradient of the cost is exactly ``rho'(z) J^T r``;
``bound``
    the least upper bound of ``rho``; times ``s**2 / 2`` it bounds the change of one block's cost, which is
    what the paper's acceptance test asks for (its ``b``, section 4.2). ``inf`` when there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LossFunction = Callable[[Array], tuple[Array, Array]]


def _linear(z: Array) -> tuple[Array, Array]:
    return z, np.ones_like(z)


def _huber(z: Array) -> tuple[Array, Array]:
    root = np.sqrt(np.maximum(z, 1.0))
    return np.where(z <= 1.0, z, 2.0 * root - 1.0), 1.0 / root


def _soft_l1(z: Array) -> tuple[Array, Array]:
    # 2 (sqrt(1 + z) - 1) cancels for small z: below 1e-16 it is zero, and a zero-residual fit would see no
    # decrease any more. The other form keeps all digits, but is inf/inf for an infinite residual.
    root = np.sqrt(1.0 + z)
    small = np.minimum(z, 1.0)
    return np.where(z < 1.0, 2.0 * small / (1.0 + root), 2.0 * (root - 1.0)), 1.0 / root


def _cauchy(z: Array) -> tuple[Array, Array]:
    return np.log1p(z), 1.0 / (1.0 + z)


def _arctan(z: Array) -> tuple[Array, Array]:
    capped = np.minimum(z, 1e150)  # the square must not overflow
    return np.arctan(z), 1.0 / (1.0 + capped * capped)


def _geman_mcclure(z: Array) -> tuple[Array, Array]:
    q = 1.0 / (1.0 + z)
    return np.where(z < 1.0, np.minimum(z, 1.0) * q, 1.0 - q), q * q  # z q is inf * 0 at infinity


def _welsch(z: Array) -> tuple[Array, Array]:
    return -np.expm1(-z), np.exp(-z)


def _tukey(z: Array) -> tuple[Array, Array]:
    # (1 - (1 - z)^3) / 3, written without its cancellation at small z.
    z = np.minimum(z, 1.0)
    q = 1.0 - z
    return np.where(z < 0.5, z * (1.0 - z * (1.0 - z / 3.0)), (1.0 - q * q * q) / 3.0), q * q


def _truncated(z: Array) -> tuple[Array, Array]:
    # Eq. 22 of the paper: psi(r) = tau^2/4 (1 - max(0, 1 - r^2/tau^2)^2), with s = tau.
    # In z = r^2/tau^2 that is rho = (1 - max(0, 1 - z)^2) / 2, written without its cancellation at small z.
    z = np.minimum(z, 1.0)
    return z * (1.0 - 0.5 * z), 1.0 - z


# name: (function, bound of rho, code in the compiled kernels)
_BUILT_IN: dict[str, tuple[LossFunction, float, int]] = {
    "linear": (_linear, math.inf, 0),
    "huber": (_huber, math.inf, 1),
    "soft_l1": (_soft_l1, math.inf, 2),
    "cauchy": (_cauchy, math.inf, 3),
    "arctan": (_arctan, math.pi / 2, 4),
    "geman_mcclure": (_geman_mcclure, 1.0, 5),
    "welsch": (_welsch, 1.0, 6),
    "tukey": (_tukey, 1.0 / 3.0, 7),
    "truncated": (_truncated, 0.5, 8),
}
LOSSES = tuple(_BUILT_IN)
USER_CODE = -1


@dataclass(frozen=True)
class Loss:
    """A robust loss with its scale.

    Examples
    --------
    >>> loss = Loss.named("huber", scale=2.0)
    >>> cost, weight = loss.cost_and_weight(np.array([1.0, 16.0]))  # squared norms of two blocks
    >>> cost, weight
    (array([0.5, 6. ]), array([1. , 0.5]))
    """

    name: str
    function: LossFunction
    """``z -> (rho, rho')``, vectorised."""
    rho_bound: float
    """Least upper bound of rho, ``inf`` if there is none."""
    code: int
    """Which branch of the compiled kernels computes it; -1 for a loss of the user's."""
    scale: float = 1.0

    @classmethod
    @lru_cache(maxsize=64)
    def named(cls, name: str, scale: float = 1.0) -> Loss:
        function, bound, code = _BUILT_IN[name]
        return cls(name, function, bound, code, float(scale))

    @property
    def is_linear(self) -> bool:
        return self.code == 0

    @property
    def bound(self) -> float:
        """Upper bound of one block's cost: ``scale**2 / 2 * rho_bound``."""
        return 0.5 * self.scale**2 * self.rho_bound

    def cost_and_weight(self, squared_norm: Array) -> tuple[Array, Array]:
        """Cost and IRLS weight of blocks with the given ``||r||**2``, shape (k,) each."""
        s2 = self.scale**2
        value, weight = self.function(squared_norm / s2)
        return 0.5 * s2 * value, weight

    def cost(self, squared_norm: Array) -> Array:
        """Cost of blocks with the given ``||r||**2``, shape (k,)."""
        if self.code == 0:
            return 0.5 * squared_norm
        return self.cost_and_weight(squared_norm)[0]

    def scaled(self, factor: float) -> Loss:
        """The same loss with its scale multiplied, as graduated non-convexity does."""
        return replace(self, scale=self.scale * factor)


def as_loss(loss: str | Loss | Callable[..., Any], f_scale: float = 1.0) -> Loss:
    """Make a `Loss` of a name, a `Loss`, or a SciPy-style callable ``z -> (rho, rho', rho'')``."""
    scale = float(f_scale)
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"f_scale must be a positive number, got {f_scale!r}")
    if isinstance(loss, Loss):
        if scale != 1.0:
            raise ValueError(
                f"f_scale={f_scale!r} came with a Loss that has the scale {loss.scale!r} of its own; "
                "leave f_scale out, or pass loss.scaled(f_scale)"
            )
        return loss
    if isinstance(loss, str):
        if loss not in _BUILT_IN:
            from .support.suggest import suggest

            raise ValueError(f"loss={loss!r} is not known{suggest(loss, LOSSES)}; choose one of {', '.join(LOSSES)}")
        return Loss.named(loss, scale)
    if callable(loss):
        return Loss(getattr(loss, "__name__", "user"), _checked(loss), math.inf, USER_CODE, scale)
    raise TypeError(f"loss must be a name, a problm.Loss or a callable, got {type(loss).__name__}")


def _checked(function: Callable[..., Any]) -> LossFunction:
    def rho(z: Array) -> tuple[Array, Array]:
        values = function(z)
        if len(values) < 2 or np.shape(values[0]) != z.shape or np.shape(values[1]) != z.shape:
            raise ValueError(
                "loss: a callable must return rho(z) and rho'(z) (SciPy's rho''(z) may follow), "
                f"each of the shape {z.shape} of z"
            )
        return np.asarray(values[0], dtype=np.float64), np.asarray(values[1], dtype=np.float64)

    rho.__wrapped__ = function  # type: ignore[attr-defined]  # for backends with arrays of their own
    return rho
