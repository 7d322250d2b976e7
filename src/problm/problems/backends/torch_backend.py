"""Residual functions written with PyTorch: forward-mode derivatives by ``torch.func``, on the default device.

``fun(theta, *rows)`` gets double-precision tensors of a batch of rows, or of a single row if it is written for one. The
device is that of ``torch.get_default_device()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss
from ...solver.problem import Theta
from ..rows import Columns
from .device import Array, DeviceRows, cost_and_weight

try:
    import torch
    from torch.func import jvp, vmap
except ImportError as error:
    raise ImportError("PyTorch is needed for this residual function: pip install 'problm[torch]'") from error


class Functions:
    """PyTorch for the rules of `problm.losses`: its own ``minimum`` and ``maximum`` take no numbers."""

    arctan, exp, expm1, log1p, sqrt = torch.arctan, torch.exp, torch.expm1, torch.log1p, torch.sqrt
    ones_like, where, minimum, maximum = torch.ones_like, torch.where, torch.clamp_max, torch.clamp_min


def torch_rows(
    fun: Callable[..., Any],
    few: Columns,
    start: Theta,
    dim: int,
    loss: Loss,
    move: Callable[[Theta, Array], Theta] | None = None,
) -> DeviceRows:
    """The model of a PyTorch function, of which ``few`` are the first rows of data."""
    batch, components = _as_batch(fun, few, start)
    passes = TorchPasses(batch, dim, components, loss, move)

    def moved(theta: Theta, delta: Array) -> Theta:
        assert move is not None
        return _array(move(_tensor(theta), _tensor(delta))).astype(np.float64, copy=False)

    recipe = (torch_rows, fun, few, start, dim, loss, move)
    return DeviceRows(passes, dim, components, loss, None if move is None else moved, recipe)


def _tensor(array: NDArray[Any]) -> Any:
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # PyTorch knows no arithmetic of longer unsigned integers
    if not (array.flags.writeable and array.flags.c_contiguous and array.dtype.isnative):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(np.atleast_1d(array)).to(torch.get_default_device())


def _array(tensor: Any) -> NDArray[Any]:
    found: NDArray[Any] = tensor.detach().cpu().numpy()
    return found


def _as_batch(fun: Callable[..., Any], few: Columns, start: Theta) -> tuple[Callable[..., Any], int]:
    """The function of a batch, (k,) or (k, p), and p; one that is written for a row is mapped over them."""
    theta = _tensor(np.asarray(start, dtype=np.float64))
    k = len(few[0])
    rows = [_tensor(c) for c in few]
    told = []
    for candidate in (fun, vmap(fun, in_dims=(None, *[0] * len(few)))):
        try:
            whole = candidate(theta, *rows)
            size = tuple(whole.shape)
            if len(size) not in (1, 2) or size[0] != k:
                told.append(f"shape {size}")
                continue
            first = candidate(theta, *(r[:1] for r in rows))
        except Exception as error:
            told.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        alone = tuple(first.shape) == (1, *size[1:]) and np.allclose(
            _array(whole)[:1], _array(first), rtol=1e-6, equal_nan=True
        )
        if candidate is fun and not alone:
            told.append("rows influence each other")
            continue
        return candidate, 1 if len(size) == 1 else int(size[1])
    raise ValueError(
        f"fun must return residuals of shape (k,) or (k, p) for k rows, or () or (p,) for one row; for a batch it gave "
        f"{told[0]}, mapped over single rows {told[1]}"
    )


class TorchPasses:
    """The passes over a chunk."""

    def __init__(
        self,
        batch: Callable[..., Any],
        dim: int,
        components: int,
        loss: Loss,
        move: Callable[[Theta, Array], Theta] | None,
    ) -> None:
        self._batch, self._move, self._loss = batch, move, loss
        self._dim, self._components = dim, components

    def linearize(self, theta: Any, count: int, rows: Columns, outer: bool) -> Any:
        tensors = [_tensor(c) for c in rows]
        point = _tensor(theta)

        def blocks(delta: Any) -> Any:
            return self._blocks(point + delta if self._move is None else self._move(point, delta), tensors)

        zero = torch.zeros(self._dim, dtype=torch.float64)
        r = blocks(zero)
        jacobian = vmap(lambda v: jvp(blocks, (zero,), (v,))[1])(torch.eye(self._dim, dtype=torch.float64))
        cost, weight = self._costs(r, count)
        weighted = jacobian * weight[:, None]
        hessian = weighted.reshape(self._dim, -1) @ jacobian.reshape(self._dim, -1).T
        each = (weighted * r).sum(dim=2)
        total = each @ each.T if outer else None
        return cost.sum(), each.sum(dim=1), 0.5 * (hessian + hessian.T), total, cost

    def costs(self, theta: Any, count: int, rows: Columns) -> Any:
        with torch.no_grad():
            cost, _ = self._costs(self.residuals(theta, rows), count)
            return cost.sum(), cost

    def residuals(self, theta: Any, rows: Columns) -> Any:
        return self._blocks(_tensor(theta), [_tensor(c) for c in rows])

    def fetch(self, value: Any) -> Any:
        return _array(value)

    def _blocks(self, point: Any, tensors: list[Any]) -> Any:
        return self._batch(point, *tensors).reshape(-1, self._components).to(torch.float64)

    def _costs(self, r: Any, count: int) -> Any:
        cost, weight = cost_and_weight(self._loss, (r * r).sum(dim=1), Functions)
        if count < len(cost):
            valid = torch.arange(len(cost)) < count
            cost, weight = torch.where(valid, cost, 0.0), torch.where(valid, weight, 0.0)
        return cost, weight
