"""Search for rows that are not drawn yet, compiled: sorting and searching with NumPy takes longer than the draw."""

from __future__ import annotations

from ..jit import types
from ..jit.njit import njit


@njit(types.void(types.int64[::1], types.int64[::1], types.int64[::1]), nogil=True)
def by_walking(chosen, taken, union):  # type: ignore[no-untyped-def]
    """`problm.sampling.order.count_free` in one pass over both arrays."""
    wanted = len(union) > 0
    i = 0
    for j in range(len(chosen)):
        row = chosen[j] + i
        while i < len(taken) and taken[i] <= row:
            if wanted:
                union[i + j] = taken[i]
            i += 1
            row += 1
        chosen[j] = row
        if wanted:
            union[i + j] = row
    if wanted:
        for rest in range(i, len(taken)):
            union[rest + len(chosen)] = taken[rest]
