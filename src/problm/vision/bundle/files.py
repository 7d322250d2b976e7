"""Files of reconstructions, whichever their format: BAL problems and COLMAP's text models.

Both are plain text that may come from anywhere, so nothing in them is trusted: counts are checked against what is
there before anything is allocated, every number must be finite, every reference must lead somewhere, and an error
names the file, the line and what was expected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .reconstruction import Reconstruction

Array = NDArray[np.float64]
T = TypeVar("T")


def read_reconstruction(path: str | os.PathLike[str]) -> Reconstruction:
    """Read whatever is there: a folder as a COLMAP text model, a file as a BAL problem."""
    from .bal import read_bal
    from .colmap import read_colmap

    if os.path.isdir(path):
        return read_colmap(path)
    if os.path.isfile(path):
        return read_bal(path)
    raise FileNotFoundError(
        f"{os.fspath(path)}: no such file or folder; give a BAL file or the folder of a COLMAP model"
    )


def whole_numbers(values: Array) -> NDArray[np.int64] | None:
    """Floats as integers, or None where one is not whole (or too large to tell)."""
    if not (np.abs(values) < 2.0**53).all() or (values != np.floor(values)).any():
        return None
    return values.astype(np.int64)


def named(path: object, where: str, make: Callable[[], T]) -> T:
    """What ``make`` returns; its error says where the bad value came from."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{path}, {where}: {error}") from None
