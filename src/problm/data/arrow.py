"""Arrow columns as NumPy arrays. Arrow's own conversion loads pandas if it is installed, which takes half a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def float64_column(column: Any) -> NDArray[np.float64]:
    """The values of a ``pyarrow.ChunkedArray`` of float64; nulls become NaN.

    >>> import pyarrow as pa
    >>> float64_column(pa.chunked_array([[1.0, None], [3.0]]))
    array([ 1., nan,  3.])
    """
    parts = [_float64_array(chunk) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)


def _float64_array(chunk: Any) -> NDArray[np.float64]:
    valid, data = chunk.buffers()
    if len(chunk) == 0:
        return np.empty(0)
    values = np.frombuffer(data, dtype=np.float64, count=len(chunk), offset=8 * chunk.offset)
    if chunk.null_count:
        bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
        values = np.where(bits[chunk.offset : chunk.offset + len(chunk)] == 1, values, np.nan)
    return values
