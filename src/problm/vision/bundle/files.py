"""Reconstructions from files of either format: BAL problems and COLMAP's text models."""

from __future__ import annotations

import os

from .bal import read_bal
from .colmap import read_colmap
from .reconstruction import Reconstruction


def read_reconstruction(path: str | os.PathLike[str]) -> Reconstruction:
    """Read a reconstruction: a folder as a COLMAP text model, a file as a BAL problem."""
    if os.path.isdir(path):
        return read_colmap(path)
    if os.path.isfile(path):
        return read_bal(path)
    raise FileNotFoundError(
        f"{os.fspath(path)}: no such file or folder; give a BAL file or the folder of a COLMAP model"
    )
