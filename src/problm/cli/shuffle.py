"""``problm shuffle``: a copy of a data set of any size in random order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import Debug, Json, Quiet, Seed, Voice


def command(
    data: Annotated[str, typer.Argument(help="Parquet file, folder or glob; .npy, .npz or .zarr.")],
    out: Annotated[Path, typer.Argument(help="Folder or file to create.")],
    columns: Annotated[
        str | None, typer.Option("--columns", help="Columns to copy, such as x,y; default: all.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option("--max-memory", help="Memory limit, such as 2GB; default: half of the free memory.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier copy.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace any file or folder except the data and the current folder.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a copy with the rows in random order, in two passes and within a memory limit.

    Fits of such a copy read less, because every chunk is a random sample.
    """
    from ..data.shuffle import shuffle

    voice = Voice(json, quiet)
    names = None if columns is None else [c.strip() for c in columns.split(",") if c.strip()]
    if (overwrite or force) and out.exists():
        voice.say(f"will replace {out}" + ("" if force else ", if it is an earlier copy"))
    rows = shuffle(data, out, columns=names, rng=seed, max_memory=max_memory, overwrite=overwrite, force=force)
    voice.say(f"wrote {out}: {rows:,} rows")
    voice.finish({"rows": rows, "out": str(out)})
