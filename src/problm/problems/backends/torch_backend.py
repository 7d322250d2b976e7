"""Residual functions written with PyTorch: exact derivatives by ``torch.func``, on the default device.

``fun(theta, *rows)`` gets double-precision tensors of a batch of rows, or of a single row if it is written for one. The
device is that of ``torch.get_default_device()``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...losses import Loss
from ...solver.problem import Theta
from ..rows import Columns
from .calling import Shape, error_text, way_of_calling
from .device import Array, Prepared, by_row, cost_and_weight

try:
    import torch
    from torch.func import jvp, vjp, vmap
except ImportError as error:
    raise ImportError("PyTorch is needed for this residual function: pip install 'problm[torch]'") from error


class Functions:
    """PyTorch functions for the rules of `problm.losses`: its own ``minimum`` and ``maximum`` do not take numbers."""

    arctan, exp, expm1, log1p, sqrt = torch.arctan, torch.exp, torch.expm1, torch.log1p, torch.sqrt
    ones_like, where, minimum, maximum = torch.ones_like, torch.where, torch.clamp_max, torch.clamp_min


def prepare(
    fun: Callable[..., Any],
    points: Sequence[Theta],
    columns: Columns,
    dim: int,
    loss: Loss,
    move: Callable[[Any, Any], Any] | None = None,
) -> Prepared:
    """Prepare a function for PyTorch by trying it at ``points`` (the start last) on rows of ``columns``."""
    mapped = vmap(fun, in_dims=(None, *[0] * len(columns)))

    def evaluate(theta: Theta, rows: Columns, function: Callable[..., Any] = fun) -> list[NDArray[Any]]:
        with torch.no_grad():
            return [_array(function(_tensor(np.asarray(theta, dtype=np.float64)), *(_tensor(c) for c in rows)))]

    def shape(single: bool, k: int) -> Shape:
        rows = tuple(np.resize(c[:k], (k, *c.shape[1:])) for c in columns)
        try:
            return tuple(evaluate(points[-1], rows, mapped if single else fun)[0].shape)
        except Exception as error:
            return error_text(error)

    way, components = way_of_calling(shape, evaluate, points, columns)
    batch = mapped if way == "single" else fun

    def together(theta: Theta, rows: Columns) -> list[NDArray[Any]]:
        return evaluate(theta, rows, batch)

    def moved(theta: Theta, delta: Array) -> Theta:
        assert move is not None
        return _array(move(_tensor(theta), _tensor(delta))).astype(np.float64, copy=False)

    passes = TorchPasses(batch, dim, components, loss, move, by_row=way != "whole" and by_row(dim, components))

    def for_all_rows() -> TorchPasses:
        return TorchPasses(fun if way == "batch" else batch, dim, components, loss, move, by_row=False)

    return Prepared(passes, for_all_rows, components, way == "whole", together, None if move is None else moved)


def _tensor(array: Any) -> Any:
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # PyTorch has no arithmetic for longer unsigned integers
    if not (array.flags.writeable and array.flags.c_contiguous and array.dtype.isnative):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(np.atleast_1d(array)).to(torch.get_default_device())


def _array(tensor: Any) -> NDArray[Any]:
    found: NDArray[Any] = tensor.detach().cpu().numpy()
    return found


class TorchPasses:
    """The passes over a chunk.

    With ``by_row``, residuals of a row are differentiated in reverse mode, all rows side by side. A function that
    PyTorch cannot differentiate so gets forward mode.
    """

    in_blocks = False

    def __init__(
        self,
        batch: Callable[..., Any],
        dim: int,
        components: int,
        loss: Loss,
        move: Callable[[Theta, Array], Theta] | None,
        by_row: bool,
    ) -> None:
        self._batch, self._move, self._loss = batch, move, loss
        self._dim, self._components, self._by_row = dim, components, by_row

    def linearize(self, theta: Any, count: int, rows: Columns, outer: bool) -> Any:
        d = self._dim
        r, jacobian = self._derivatives(_tensor(theta), [_tensor(c) for c in rows])
        cost, weight = self._costs(r, count)
        columns = torch.cat([jacobian, r[..., None]], dim=2)
        weighted = columns * weight[:, None, None]
        products = weighted.reshape(-1, d + 1).T @ columns.reshape(-1, d + 1)
        sums = [cost.sum()[None], products.reshape(-1)]
        if outer:
            each = (weighted[..., :d] * r[..., None]).sum(dim=1)
            sums.append((each.T @ each).reshape(-1))
        return torch.cat(sums), cost

    def _derivatives(self, point: Any, tensors: list[Any]) -> Any:
        """Residuals (rows, p) and Jacobian (rows, p, d)."""
        if self._by_row:
            try:
                return self._reverse(point, tensors)
            except Exception:
                self._by_row = False
        return self._forward(point, tensors)

    def _reverse(self, point: Any, tensors: list[Any]) -> Any:
        zero = torch.zeros(self._dim, dtype=torch.float64)
        each = torch.eye(self._components, dtype=torch.float64)[:, None]

        def of_row(*row: Any) -> Any:
            r, pull = vjp(lambda delta: self._moved(point, delta, [c[None] for c in row]), zero)
            return r[0], vmap(pull)(each)[0]

        return vmap(of_row)(*tensors)

    def _forward(self, point: Any, tensors: list[Any]) -> Any:
        zero = torch.zeros(self._dim, dtype=torch.float64)

        def blocks(delta: Any) -> Any:
            return self._moved(point, delta, tensors)

        columns = vmap(lambda v: jvp(blocks, (zero,), (v,))[1])(torch.eye(self._dim, dtype=torch.float64))
        return blocks(zero), columns.movedim(0, -1)

    def _moved(self, point: Any, delta: Any, tensors: list[Any]) -> Any:
        return self._blocks(point + delta if self._move is None else self._move(point, delta), tensors)

    def put(self, rows: Columns) -> Columns:
        return tuple(_tensor(c) for c in rows)

    def room(self, n: int) -> int:
        return n  # nothing is compiled

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
