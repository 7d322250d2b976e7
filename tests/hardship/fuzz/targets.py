"""One target for each parser: what is tried, and what may come of it.

A parser may return something sound, or raise a ValueError that names the file. Anything else is a bug: another kind
of exception, an endless loop, memory that the size of the file does not explain, or two readers of the same file that
disagree.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from . import isolated, seeds

# --- damage --------------------------------------------------------------------------------------------------

_WORDS = [
    b"nan", b"inf", b"-1", b"0", b"1e400", b"1e308", b"99999999999999999999", b"#", b'"', b"\n", b"\r", b"\0", b",",
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xef\xbb\xbf", b"\xc3\xa9", b" ", b"\t", b"_", b"0x10", b"../", b"<",
    b"{", b"[", b"null", b"\x80", b"\xfe\xff", b"1 2 3 4", b"\xd9\xa1", b"\x1c", b"\x0b", b"\x85", b"\xe2\x80\xa8",
]  # fmt: skip
_EDIT = st.tuples(
    st.sampled_from(["set", "delete", "insert", "word", "repeat", "cut", "flip", "copy"]),
    st.floats(0.0, 1.0),
    st.integers(0, 255),
    st.sampled_from(_WORDS),
)


def _edited(data: bytes, edits: list[tuple[str, float, int, bytes]]) -> bytes:
    out = bytearray(data)
    for kind, place, number, word in edits:
        at = min(int(place * len(out)), max(len(out) - 1, 0))
        if not out:
            out = bytearray(word)
        elif kind == "set":
            out[at] = number
        elif kind == "delete":
            del out[at : at + 1 + number // 8]
        elif kind == "insert":
            out[at:at] = bytes([number])
        elif kind == "word":
            out[at : at + number % 5] = word
        elif kind == "repeat":
            out[at:at] = word * (1 + number * number // 16)
        elif kind == "cut":
            del out[at:]
        elif kind == "flip":
            out[at] ^= 1 << number % 8
        else:
            out[at:at] = out[: 1 + number]
    return bytes(out)


def damaged(whole: list[bytes]) -> st.SearchStrategy[bytes]:
    """Sound files with a few edits, and now and then bytes that never were a file."""
    edited = st.builds(_edited, st.sampled_from(whole), st.lists(_EDIT, max_size=6))
    return st.one_of(edited, edited, edited, st.binary(max_size=200))


def named(files: list[tuple[str, bytes]]) -> st.SearchStrategy[tuple[str, bytes]]:
    """(ending, damaged content)."""
    return st.sampled_from(files).flatmap(lambda f: st.tuples(st.just(f[0]), damaged([f[1]])))


class Bug(AssertionError):
    """What a parser must not do."""


def _refused(call: Callable[[], Any], path: Path) -> Any:
    """What the call returns, or None where it refuses the file in a sentence that names it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return call()
    except ValueError as error:
        if path.name not in str(error):
            raise Bug(f"the error does not name the file: {error}") from error
        return None


# --- formulas ------------------------------------------------------------------------------------------------

_TOKENS = ["a", "b", "x", "x1", "pi", "1", "2.5", ".5e-3", "1e308", "+", "-", "*", "/", "**", "^", "%", "(", ")", ",",
           "exp(", "sin(", "voigt(", "where(", "max(", "clip(", "hypot(", "erf(", "<", "==", "~", "y", " ", "__class__",
           ".", "[", "'", "lambda", "\u00e9", "\u0663", "\u00b2", "\0", "9" * 400]  # fmt: skip
FORMULAS = st.one_of(
    st.lists(st.sampled_from(_TOKENS), max_size=40).map("".join),
    st.text(max_size=60),
    st.builds(lambda part, times: part * times, st.sampled_from(["(", "-", "a**", "x+", "exp(", "1/", "a(", ","]),
              st.integers(1, 1_000_000)),
    st.builds(lambda part, n: part * n + "a*x" + ")" * n * part.count("("),
              st.sampled_from(["(", "exp(", "sqrt(1+", "-(", "(x*", "sin(x)*("]), st.integers(1, 120)),
)  # fmt: skip


def formula(text: str, folder: Path) -> None:
    from problm.models.formula import FormulaError
    from problm.models.formula import formula as read
    from problm.models.model import Model

    try:
        model = read(text)
    except FormulaError:
        return
    if not isinstance(model, Model):
        raise Bug(f"a {type(model).__name__} came out of a formula")
    x = np.linspace(0.5, 2.0, 4)
    given = x if len(model.variables) == 1 else tuple([x] * len(model.variables))
    with np.errstate(all="ignore"):
        values = model(given, *([0.7] * len(model.parameters)))
        slopes = model.jacobian(given, *([0.7] * len(model.parameters)))
    if np.shape(values) != (4,) or slopes.shape != (4, len(model.parameters)) or values.dtype != np.float64:
        raise Bug(f"shapes {np.shape(values)}, {slopes.shape}")


# --- tables --------------------------------------------------------------------------------------------------


def table(case: tuple[str, bytes], folder: Path) -> None:
    """Columns of the same length; and the fast reader agrees with the strict one to the bit."""
    from problm.data import tables, text
    from problm.data.text import TextTable

    path = folder / f"data{case[0]}"
    path.write_bytes(case[1])
    text.SHORT = 0  # the fast reader is what is tried: by itself it leaves short files to the strict one
    columns = _refused(lambda: tables.read_columns(path), path)
    if columns is None:
        return
    if len({len(c) for c in columns.values()}) != 1 or any(
        c.ndim != 1 or c.dtype.kind not in "fiub" for c in columns.values()
    ):
        raise Bug(f"not columns: { {n: (c.shape, c.dtype) for n, c in columns.items()} }")
    if case[0] in (".npy", ".parquet"):
        return
    strict = TextTable(path, tables.MAX_BYTES).by_line(list(range(len(columns))))
    for (name, fast), slow in zip(columns.items(), strict, strict=True):
        if fast.tobytes() != slow.tobytes() and not np.array_equal(fast, slow, equal_nan=True):
            raise Bug(f"column {name!r}: {fast} and, line by line, {slow}")


def foreign(kind: str, ending: str) -> Callable[[Any, Path], None]:
    """A reader that runs in a process of its own."""

    def run(case: tuple[str | None, bytes], folder: Path) -> None:
        isolated.run(kind, case, folder / f"data{ending}", _refused, Bug)

    return run


def source(case: tuple[str, bytes], folder: Path) -> None:
    """The arrays that a large fit reads in parts."""
    from problm.data.sources import open_source

    path = folder / f"data{case[0]}"
    path.write_bytes(case[1])
    found = _refused(lambda: open_source(path), path)
    if found is not None and found.n * sum(c.row_bytes for c in found.columns) < 1 << 20:
        _refused(lambda: found.read(0, found.n), path)


def stored(case: tuple[str, bytes], folder: Path) -> None:
    """A Zarr group with one damaged file."""
    from problm.data.sources import open_source

    root = folder / case[0].partition("/")[0]
    for name, content in seeds.zarr().items():
        if name.startswith(root.name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    (folder / case[0]).write_bytes(case[1])
    found = _refused(lambda: open_source(root), root)
    if found is not None and found.n * sum(c.row_bytes for c in found.columns) < 1 << 20:
        _refused(lambda: found.read(0, found.n), root)


# --- cameras and matches -------------------------------------------------------------------------------------


def bal(case: tuple[str, bytes], folder: Path) -> None:
    from problm.vision.bundle.bal import read_bal

    path = folder / f"problem{case[0]}"
    path.write_bytes(case[1])
    model = _refused(lambda: read_bal(path), path)
    if model is not None and not np.isfinite(model.points).all():
        raise Bug("points that are not finite")


def colmap(case: tuple[str, bytes], folder: Path) -> None:
    from problm.vision.bundle.colmap import read_colmap

    for name, content in seeds.colmap(case[0].endswith(".bin")).items():
        (folder / name).write_bytes(content)
    path = folder / case[0]
    path.write_bytes(case[1])
    model = _refused(lambda: read_colmap(folder), folder)
    if model is not None and not np.isfinite(model.points).all():
        raise Bug("points that are not finite")


def cloud(case: tuple[str, bytes], folder: Path) -> None:
    from problm.vision.points import read_points

    path = folder / f"cloud{case[0]}"
    path.write_bytes(case[1])
    points = _refused(lambda: read_points(path), path)
    if points is not None and (points.ndim != 2 or points.shape[1] != 3):
        raise Bug(f"points of shape {points.shape}")


def matches(case: tuple[str, bytes], folder: Path) -> None:
    from problm.vision.two_view.matches import read_matches

    path = folder / f"matches{case[0]}"
    path.write_bytes(case[1])
    found = _refused(lambda: read_matches(path), path)
    if found is not None and not (found[0].shape == found[1].shape and found[0].shape[1:] == (2,)):
        raise Bug(f"shapes {found[0].shape}, {found[1].shape}")


def camera(case: tuple[str, bytes], folder: Path) -> None:
    from problm.vision.two_view.matches import read_intrinsics

    path = folder / f"K{case[0]}"
    path.write_bytes(case[1])
    found = _refused(lambda: read_intrinsics(path), path)
    if found is not None and not all(np.isfinite(k).all() and k.shape == (3, 3) for k in found):
        raise Bug(f"not camera matrices: {found}")


def image(case: tuple[str, bytes], folder: Path) -> None:
    from problm.vision.images.image import MAX_PIXELS, read_image

    path = folder / f"picture{case[0]}"
    path.write_bytes(case[1])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's remarks about damaged metadata
            found = read_image(path, "image1")
    except ValueError as error:
        if "image1" not in str(error):
            raise Bug(f"the error does not name the argument: {error}") from error
        return
    if found.pixels.size > MAX_PIXELS or not np.isfinite(found.values()).all():
        raise Bug(f"pixels {found.shape}")


# --- results and checkpoints ---------------------------------------------------------------------------------


def result(content: bytes, folder: Path) -> None:
    import problm

    path = folder / "result.json"
    path.write_bytes(content)
    try:
        found = problm.Result.load(path)
    except ValueError:
        return
    str(found)
    found._repr_html_()


def fit(content: bytes, folder: Path) -> None:
    import problm

    path = folder / "fit.json"
    path.write_bytes(content)
    try:
        with np.errstate(all="ignore"):
            found = problm.Fit.load(path)
            found.model(np.linspace(0.0, 1.0, 3), *(p.value for p in found.params.values()))
    except ValueError:
        return
    str(found)


def checkpoint(content: bytes, folder: Path) -> None:
    path = folder / "solve.npz"
    path.write_bytes(content)
    _refused(lambda: seeds.resume(path), path)


def state(content: bytes, folder: Path) -> None:
    """A checkpoint whose archive is sound and whose content is not: damage beyond what a checksum finds."""
    path = folder / "solve.npz"
    np.savez(path, **{**seeds.checkpoint_arrays(), "state": np.frombuffer(content, dtype=np.uint8)})
    with np.errstate(all="ignore"), contextlib.suppress(MemoryError):
        _refused(lambda: seeds.resume(path), path)


def record(content: bytes, folder: Path) -> None:
    """The record of a folder: whatever it says, files that are not in it as they are stay the user's."""
    from problm.support.written import RECORD, Written

    (folder / RECORD).write_bytes(content)
    (folder / "precious").write_text("mine")
    if Written(folder).foreign(["precious"]) != ["precious"]:
        raise Bug("a record of somebody else's made a file ours")


# --- the command line ----------------------------------------------------------------------------------------

_VALUES = st.one_of(
    st.sampled_from(["", "0", "-1", "nan", "inf", "1e400", "a=1", "a=nan", "b=inf", "a=0:1,b=:2", "a=1:0", "a=,b=", "=",
                     "a=1,a=1", "x", "y", "raise", "omit", "huber", "lm", "problm", "1GB", "-1GB", "\0", "--"]),
    st.text(max_size=12),
    st.floats().map(str),
    st.integers(-(2**70), 2**70).map(str),
)  # fmt: skip
_OPTIONS = ["--model", "--sigma", "--x-sigma", "--censored", "--variables", "--start", "--bounds", "--fix", "--loss",
            "--f-scale", "--accuracy", "--method", "--nan", "--max-iter", "--max-memory", "--threads",
            "--seed"]  # fmt: skip
ARGUMENTS = st.tuples(
    st.sampled_from(["fit", "fit", "fit", "homography", "fundamental", "shuffle", "align", "bundle"]),
    st.lists(st.tuples(st.sampled_from(_OPTIONS), _VALUES), max_size=4),
)


def _arguments() -> st.SearchStrategy[Any]:
    """The cases, once everything is compiled: that takes longer than a case may."""
    import problm.cli.app
    import problm.kernels.tape
    import problm.vision.alignment.align
    import problm.vision.bundle.adjust
    import problm.vision.two_view.fundamental
    import problm.vision.two_view.homography

    assert problm.cli.app is not None
    return ARGUMENTS


def arguments(case: tuple[str, list[tuple[str, str]]], folder: Path) -> None:
    """Options of the program: a documented exit code, no traceback, nothing outside of the output folder."""
    from problm.cli import main

    command, options = case
    data = folder / "data.csv"
    data.write_bytes(b"x,y\n" + b"".join(b"%g,%g\n" % (v / 8, 2 ** (-v / 8)) for v in range(24)))
    given = [command, str(data)]
    if command == "fit":
        given += ["--model", "y ~ a*exp(-b*x)", "--max-time", "5", "--no-output"]
    elif command in ("homography", "fundamental"):
        given += ["--no-output"]
    else:
        given += [str(folder / "out")]
    given += [word for pair in options for word in pair]
    out, err = io.StringIO(), io.StringIO()
    before, code = sys.argv, None
    sys.argv = ["problm", *given]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main()
    except SystemExit as leaving:
        code = leaving.code
    finally:
        sys.argv = before
    if code not in (0, 1, 2, 3, None):
        raise Bug(f"exit code {code}: {err.getvalue()[-500:]}")
    if "Traceback" in err.getvalue() or "\x1b]" in err.getvalue() or "\0" in err.getvalue():
        raise Bug(err.getvalue()[-500:])


# --- all of them ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Cases to try, and what is done with one, in a folder that is empty."""

    cases: Callable[[], st.SearchStrategy[Any]]
    run: Callable[[Any, Path], None]
    needs: str = ""
    """A package without which there is nothing to try."""


def _images() -> st.SearchStrategy[Any]:
    import problm.vision.images.image  # compiled outside of a case

    assert problm.vision.images.image is not None
    return named(seeds.images())


def _text(*endings: str) -> Callable[[], st.SearchStrategy[Any]]:
    return lambda: st.tuples(st.sampled_from(endings), damaged(seeds.CSV))


def _as(ending: str, whole: Callable[[], list[bytes]]) -> Callable[[], st.SearchStrategy[Any]]:
    return lambda: st.tuples(st.just(ending), damaged(whole()))


def _either(texts: list[bytes]) -> Callable[[], st.SearchStrategy[Any]]:
    def make() -> st.SearchStrategy[Any]:
        files = [(".csv", t) for t in texts]
        return named([*files, *((".npy", b) for b in seeds.npy()), *((".npz", b) for b in seeds.npz())])

    return make


TARGETS = {
    "formula": Target(lambda: FORMULAS, formula),
    "csv": Target(_text(".csv", ".tsv", ".txt", ".dat"), table),
    "packed text": Target(_as(".csv.gz", seeds.packed), table),
    "hdf5": Target(_as(".h5", seeds.hdf5), foreign("hdf5", ".h5"), "h5py"),
    "excel": Target(lambda: isolated.workbooks(damaged), foreign("excel", ".xlsx"), "openpyxl"),
    "fits": Target(_as(".fits", seeds.fits), foreign("fits", ".fits"), "astropy"),
    "tiff": Target(_as(".tif", seeds.pictures), foreign("picture", ".tif"), "PIL"),
    "npy": Target(_as(".npy", seeds.npy), table),
    "parquet": Target(_as(".parquet", seeds.parquet), table, "pyarrow"),
    "source": Target(lambda: named([*((".npy", b) for b in seeds.npy()), *((".npz", b) for b in seeds.npz())]), source),
    "row groups": Target(_as(".parquet", seeds.parquet), source, "pyarrow"),
    "zarr": Target(lambda: named(list(seeds.zarr().items())), stored, "zarr"),
    "bal": Target(lambda: named(seeds.bal()), bal),
    "colmap": Target(lambda: named(list(seeds.colmap().items())), colmap),
    "colmap binary": Target(lambda: named(list(seeds.colmap(binary=True).items())), colmap),
    "points": Target(lambda: named(seeds.clouds()), cloud),
    "matches": Target(_either(seeds.MATCHES), matches),
    "camera": Target(_either(seeds.INTRINSICS), camera),
    "image": Target(_images, image, "PIL"),
    "result": Target(lambda: damaged([seeds.result()]), result),
    "fit": Target(lambda: damaged([seeds.fit()]), fit),
    "checkpoint": Target(lambda: damaged([seeds.checkpoint()]), checkpoint),
    "state": Target(lambda: damaged([seeds.checkpoint_arrays()["state"].tobytes()]), state),
    "record": Target(lambda: damaged([seeds.RECORD]), record),
    "arguments": Target(_arguments, arguments, "typer"),
}
