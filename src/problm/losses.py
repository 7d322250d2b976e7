r"""Robust losses on the norm of a residual block: value, weight, curvature and bound.

A block's cost is ``0.5 * s**2 * rho(||r||**2 / s**2)`` with the scale ``s`` (SciPy's ``f_scale``), so that
every loss behaves as ``0.5 ||r||**2`` near zero. A loss is described by four quantities:

``rho(z)``
    the value;
``rho'(z)``
    the weight of the block in an IRLS step: the gradient of the cost is exactly ``rho'(z) J^T r``;
``rho''(z)``
    the curvature, for Newton steps (the points of bundle adjustment);
``bound``
    the least upper bound of ``rho``, ``inf`` if there is none. Times ``s**2 / 2`` it bounds the change of one block's
    cost, which the paper's acceptance test needs (its ``b``, section 4.2).

Each loss is one entry of `RULES`, written for any array library ``xp``: NumPy here, scalars of compiled code in
`problm.kernels.robust`, JAX and PyTorch in `problm.problems.backends`. A rule may use ``sqrt``, ``exp``, ``expm1``,
``log1p``, ``arctan``, ``ones_like``, ``where(condition, yes, no)``, which evaluates both sides, ``minimum(z, number)``
and ``maximum(z, number)``. Its value and weight must not overflow or divide by zero for any finite ``z >= 0``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LossFunction = Callable[[Array], tuple[Array, Array]]


class Rule(NamedTuple):
    """One loss, for the arrays of any library."""

    value_and_weight: Callable[..., tuple[Any, Any]]
    """``z, xp -> (rho, rho')``; ``xp`` defaults to NumPy."""
    curvature: Callable[..., Any]
    """``z, xp -> rho''``"""
    bound: float
    """Least upper bound of rho."""
    width: float
    """Recommended scale for noise of unit standard deviation: about 95 % efficient for Gaussian noise."""


RULES: dict[str, Rule] = {}
"""Losses by name. The position of a loss is its number in compiled code."""


def robust_loss(
    *, curvature: Callable[..., Any], bound: float = math.inf, width: float = 1.0
) -> Callable[[Callable[..., tuple[Any, Any]]], LossFunction]:
    """Register a function of ``z`` and ``xp`` in `RULES` under its own name."""

    def enter(value_and_weight: Callable[..., tuple[Any, Any]]) -> LossFunction:
        RULES[value_and_weight.__name__.removeprefix("_")] = Rule(value_and_weight, curvature, bound, width)
        return value_and_weight

    return enter


@robust_loss(curvature=lambda z, xp: 0.0 * xp.ones_like(z))
def _linear(z: Any, xp: Any = np) -> tuple[Any, Any]:
    return z, xp.ones_like(z)


def _huber_curvature(z: Any, xp: Any = np) -> Any:
    far = xp.maximum(z, 1.0)
    return xp.where(z > 1.0, -0.5 / (far * xp.sqrt(far)), 0.0)


@robust_loss(curvature=_huber_curvature, width=1.345)
def _huber(z: Any, xp: Any = np) -> tuple[Any, Any]:
    root = xp.sqrt(xp.maximum(z, 1.0))
    return xp.where(z <= 1.0, z, 2.0 * root - 1.0), 1.0 / root


@robust_loss(curvature=lambda z, xp: -0.5 / ((1.0 + z) * xp.sqrt(1.0 + z)), width=1.345)
def _soft_l1(z: Any, xp: Any = np) -> tuple[Any, Any]:
    # 2 (sqrt(1 + z) - 1) cancels for small z: below 1e-16 it is zero, so a zero-residual fit would see no decrease.
    # The other form keeps all digits, but is inf/inf for an infinite residual.
    root = xp.sqrt(1.0 + z)
    return xp.where(z < 1.0, 2.0 * xp.minimum(z, 1.0) / (1.0 + root), 2.0 * (root - 1.0)), 1.0 / root


@robust_loss(curvature=lambda z, xp: -1.0 / ((1.0 + z) * (1.0 + z)), width=2.385)
def _cauchy(z: Any, xp: Any = np) -> tuple[Any, Any]:
    return xp.log1p(z), 1.0 / (1.0 + z)


@robust_loss(curvature=lambda z, xp: -2.0 * z / ((1.0 + z * z) * (1.0 + z * z)), bound=math.pi / 2, width=2.385)
def _arctan(z: Any, xp: Any = np) -> tuple[Any, Any]:
    capped = xp.minimum(z, 1e150)  # the square must not overflow
    return xp.arctan(z), 1.0 / (1.0 + capped * capped)


@robust_loss(curvature=lambda z, xp: -2.0 / ((1.0 + z) * (1.0 + z) * (1.0 + z)), bound=1.0, width=3.0)
def _geman_mcclure(z: Any, xp: Any = np) -> tuple[Any, Any]:
    q = 1.0 / (1.0 + z)
    return xp.where(z < 1.0, xp.minimum(z, 1.0) * q, 1.0 - q), q * q  # z q is inf * 0 at infinity


@robust_loss(curvature=lambda z, xp: -xp.exp(-z), bound=1.0, width=2.985)
def _welsch(z: Any, xp: Any = np) -> tuple[Any, Any]:
    return -xp.expm1(-z), xp.exp(-z)


@robust_loss(curvature=lambda z, xp: -2.0 * (1.0 - xp.minimum(z, 1.0)), bound=1.0 / 3.0, width=4.685)
def _tukey(z: Any, xp: Any = np) -> tuple[Any, Any]:
    # (1 - (1 - z)^3) / 3, written without its cancellation at small z.
    near = xp.minimum(z, 1.0)
    q = 1.0 - near
    return xp.where(near < 0.5, near * (1.0 - near * (1.0 - near / 3.0)), (1.0 - q * q * q) / 3.0), q * q


@robust_loss(curvature=lambda z, xp: xp.where(z < 1.0, -1.0, 0.0), bound=0.5, width=4.0)
def _truncated(z: Any, xp: Any = np) -> tuple[Any, Any]:
    # Eq. 22 of the paper: psi(r) = tau^2/4 (1 - max(0, 1 - r^2/tau^2)^2), with s = tau.
    # In z = r^2/tau^2 that is rho = (1 - max(0, 1 - z)^2) / 2, written without its cancellation at small z.
    near = xp.minimum(z, 1.0)
    return near * (1.0 - 0.5 * near), 1.0 - near


LOSSES = tuple(RULES)
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
    """Number of the loss in compiled kernels; -1 for a user-defined loss."""
    scale: float = 1.0

    @classmethod
    @lru_cache(maxsize=64)
    def named(cls, name: str, scale: float = 1.0) -> Loss:
        rule = RULES[name]
        return cls(name, rule.value_and_weight, rule.bound, tuple(RULES).index(name), float(scale))

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

    def curvature(self, squared_norm: Array) -> Array:
        """``rho''`` of blocks with the given ``||r||**2``, shape (k,); only of a loss by name."""
        made: Array = RULES[self.name].curvature(squared_norm / self.scale**2, np)
        return made

    def cost(self, squared_norm: Array) -> Array:
        """Cost of blocks with the given ``||r||**2``, shape (k,)."""
        if self.code == 0:
            return 0.5 * squared_norm
        return self.cost_and_weight(squared_norm)[0]

    def scaled(self, factor: float) -> Loss:
        """The same loss with its scale multiplied by ``factor``, for graduated non-convexity."""
        return replace(self, scale=self.scale * factor)


def as_loss(loss: str | Loss | Callable[..., Any], f_scale: float | str = 1.0) -> Loss:
    """Make a `Loss` of a name, a `Loss`, or a SciPy-style callable ``z -> (rho, rho', rho'')``."""
    if isinstance(f_scale, str):
        raise ValueError(f'f_scale must be a positive number (or "auto", for fits of rows), got {f_scale!r}')
    scale = float(f_scale)
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"f_scale must be a positive number, got {f_scale!r}")
    if isinstance(loss, Loss):
        if scale != 1.0:
            raise ValueError(
                f"f_scale={f_scale!r} was given with a Loss that already has the scale {loss.scale!r}; "
                "leave f_scale out, or pass loss.scaled(f_scale)"
            )
        return loss
    if isinstance(loss, str):
        if loss not in RULES:
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
