"""Reconstructions from and to files: BAL problems, COLMAP's models, and PLY for points."""

from __future__ import annotations

import os

from ..points import write_ply
from .bal import read_bal, write_bal
from .colmap import read_colmap, write_colmap
from .reconstruction import Reconstruction


def read_reconstruction(path: str | os.PathLike[str]) -> Reconstruction:
    """Read a reconstruction: a folder as a COLMAP model, text or binary, a file as a BAL problem.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "tiny.txt")
    ...     _ = file.write_text("1 1 1  0 0 -10.0 20.0  0 0 0 0 0 0 100 0 0  0.1 -0.2 -1")
    ...     read_reconstruction(file)
    Reconstruction(1 images, 1 points, 1 observations, 1 cameras)
    """
    if os.path.isdir(path):
        return read_colmap(path)
    if os.path.isfile(path):
        return read_bal(path)
    raise FileNotFoundError(
        f"{os.fspath(path)}: no such file or folder; give a BAL file or the folder of a COLMAP model"
    )


def write_reconstruction(model: Reconstruction, path: str | os.PathLike[str], *, format: str | None = None) -> None:
    """Write a reconstruction.

    Parameters
    ----------
    model
        Cameras, points and observations.
    path
        A folder for COLMAP's formats, a file for the others.
    format
        ``"colmap"`` (binary), ``"colmap-text"``, ``"bal"``, or ``"ply"`` (points and colours only). None: by the
        suffix, ``.ply`` and ``.txt`` or ``.bal``; else COLMAP's binary form.

    Examples
    --------
    >>> import tempfile, pathlib, problm
    >>> camera = problm.Intrinsics("SIMPLE_PINHOLE", (500.0, 320.0, 240.0))
    >>> eye = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    >>> model = Reconstruction.from_arrays([eye], [[0, 0, 0]], camera, [[0, 0, 5]], [[0, 0, 320, 241]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_reconstruction(model, pathlib.Path(folder, "model"))
    ...     sorted(path.name for path in pathlib.Path(folder, "model").iterdir())
    ['cameras.bin', 'images.bin', 'points3D.bin']
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    kind = format or {".ply": "ply", ".txt": "bal", ".bal": "bal"}.get(suffix, "colmap")
    if kind == "ply":
        write_ply(path, model.points, model.colors)
    elif kind == "bal":
        write_bal(model, path)
    elif kind in ("colmap", "colmap-text"):
        write_colmap(model, path, binary=kind == "colmap")
    else:
        raise ValueError(f"format={format!r} is not known; choose colmap, colmap-text, bal or ply")
