"""Hostile input, in short: every fuzz target for a moment, bombs, names that are scripts, and the source itself.

``make fuzz`` tries every parser for ten minutes instead (`tests.hardship.fuzz`).
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import os
import re
import struct
import sys
import time
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import problm
import problm.support.npy
from problm.models.formula import MAX_LENGTH, FormulaError, formula
from tests.hardship.fuzz.driver import tries
from tests.hardship.fuzz.targets import TARGETS
from tests.helpers.scripts import only_our_script

SOURCE = Path(problm.__file__).parent


@pytest.mark.parametrize("name", TARGETS)
def test_every_parser(name):
    target = TARGETS[name]
    if target.needs and importlib.util.find_spec(target.needs) is None:
        pytest.skip(f"{target.needs} is not installed")
    assert tries(target, 25 if name == "arguments" else 80, 2026) > 10


@pytest.mark.parametrize("text", ["(", "-", "x", "1", "a*", "exp(", "9**", "x,", "\n", "\u00e9", "~", "'"])
def test_a_million_characters_are_refused_at_once(text):
    began = time.process_time()
    with pytest.raises(FormulaError, match=f"at most {MAX_LENGTH} are read"):
        formula(text * (1_000_000 // len(text)))
    assert time.process_time() - began < 0.1


def test_the_longest_formulas_take_no_time_worth_mentioning():
    """At the limits of length, depth and tokens: read, differentiated and evaluated."""
    for text in (
        "a*x" + "+b*x" * 490,
        "(" * 90 + "a*x" + ")" * 90,
        "exp(-(" * 45 + "a*x" + "))" * 45,
        "a" + "**x" * 90,
        "*".join(f"(a{i}+x)" for i in range(250)),
        "a*x+" + "9" * 9000,
    ):
        began = time.process_time()
        model = formula(text)
        with np.errstate(all="ignore"):
            assert model.jacobian(np.linspace(0, 1, 3), *([0.5] * len(model.parameters))).shape[0] == 3
        assert time.process_time() - began < 20.0, text[:50]


# --- bombs ---------------------------------------------------------------------------------------------------


def _png(width, height):
    """A file of 60 bytes that announces an image of any size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(1 << 15, 1 << 14), (1 << 30, 1 << 30), (2**31 - 1, 2**31 - 1)])
def test_absurd_images_are_refused_by_their_header(tmp_path, width, height):
    pytest.importorskip("PIL")
    from problm.vision.images.image import read_image

    (tmp_path / "bomb.png").write_bytes(_png(width, height))
    with pytest.raises(ValueError, match=r"image1.*(limit of \d+|cannot be read)"):
        read_image(tmp_path / "bomb.png", "image1")


@pytest.mark.parametrize("content", [b"P5\n24 2", b"P5\n24 2\0\n255\n" + b"\5" * 48])
def test_what_pillow_says_about_damaged_headers_is_put_into_a_sentence(tmp_path, content):
    """Found by the fuzzer: readers of single formats raise errors of their own kinds."""
    pytest.importorskip("PIL")
    from problm.vision.images.image import read_image

    (tmp_path / "bad.ppm").write_bytes(content)
    with pytest.raises(ValueError, match=r"image1: the file .*bad\.ppm' cannot be read as an image"):
        read_image(tmp_path / "bad.ppm", "image1")


def test_chunks_of_images_that_announce_too_much(tmp_path):
    """Pillow would ask the file for 4 GB; none are taken."""
    pytest.importorskip("PIL")
    resource = pytest.importorskip("resource")
    from problm.vision.images.image import read_image

    if not Path("/proc/self/statm").exists():
        pytest.skip("how much memory the process has cannot be told")
    sound, path = _png(24, 20), tmp_path / "picture.png"
    at = sound.index(b"IDAT")
    path.write_bytes(sound[: at - 4] + b"\xff\xff\xff\xfe" + sound[at:])
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    try:
        with pytest.raises(ValueError, match="image1 is constant"):  # it was read
            read_image(path, "image1")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_archives_that_unpack_to_too_much(tmp_path, monkeypatch):
    from problm.data.sources import open_source
    from problm.vision.two_view.matches import read_intrinsics, read_matches

    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x1=np.zeros((500_000, 2)), x2=np.zeros((500_000, 2)))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(problm.support.npy, "as_bytes", lambda value: 1_000_000)
    for read in (read_matches, open_source):
        with pytest.raises(ValueError, match=r"bomb\.npz: x1 takes 0\.008 GB unpacked, but at most 0\.001 GB"):
            read(path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"takes .* at most 0\.00105 GB"):
        read_intrinsics(path)


def test_headers_that_announce_too_much(tmp_path):
    from problm.vision.two_view.matches import read_matches

    path = tmp_path / "huge.npy"
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 4), }".ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ValueError, match=r"huge\.npy: array takes 3.2e\+04 GB"):
        read_matches(path)


def test_packed_reconstructions_that_unpack_to_too_much(tmp_path, monkeypatch):
    from problm.vision.bundle import bal as reconstruction_bal

    path = tmp_path / "bomb.txt.gz"
    noise = np.random.default_rng(0).bytes(15_000_000).hex().encode()
    path.write_bytes(gzip.compress(b"900000 900000 900000 " + noise, 1))
    monkeypatch.setattr(reconstruction_bal, "as_bytes", lambda value: 80_000_000)
    with pytest.raises(ValueError, match=r"bomb\.txt\.gz holds more than 0\.01 GB of text"):
        reconstruction_bal.read_bal(path)


# --- pages and paths -----------------------------------------------------------------------------------------


class _Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


@pytest.fixture
def program(monkeypatch, capsys):
    pytest.importorskip("typer")
    from problm.cli import main

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["problm", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code or 0, *capsys.readouterr()

    return call


@pytest.mark.skipif(sys.platform == "win32", reason="such names are not allowed there")
@pytest.mark.parametrize("command", ["fit", "homography", "align"])
def test_reports_about_files_that_are_named_like_scripts(program, tmp_path, command):
    """A folder and a file whose path holds ``<script>alert(1)</script>.csv``."""
    from problm.vision.two_view.simulate import two_views

    folder = tmp_path / "<script>alert(1)<"
    folder.mkdir()
    x = np.linspace(0, 3, 100)
    if command == "fit":
        np.savetxt(
            folder / "script>.csv",
            np.c_[x, np.exp(-x) + 0.01 * np.sin(50 * x)],
            delimiter=",",
            header="x,y",
            comments="",
        )
        args = [folder / "script>.csv", "-m", "y ~ a*exp(-b*x)"]
    elif command == "homography":
        views = two_views(200, seed=1)
        np.savetxt(folder / "script>.csv", np.c_[views.x1, views.x1 + 3], delimiter=",")
        args = [folder / "script>.csv"]
    else:
        image = pytest.importorskip("PIL.Image")
        y, x = np.mgrid[:64, :64]
        shade = np.rint(128 + 60 * np.sin(x / 5) * np.cos(y / 7)).astype(np.uint8)
        image.fromarray(shade).save(folder / "script>.png")
        args = [folder / "script>.png", folder / "script>.png", "-m", "translation"]
    code, _, err = program(command, *args, "-o", tmp_path / "out")
    assert code == 0, err
    text = (tmp_path / "out" / "report.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    _Tags(text)
    only_our_script(text)


@pytest.mark.parametrize("options", [["--peaks", "1"], ["-m", "c2 ~ a*exp(-b*c1)", "--group", "c3"]])
def test_control_characters_in_names_and_labels(program, tmp_path, options):
    """Names of columns and labels of groups that would colour a terminal, ring its bell or are no mathematics."""
    x = np.linspace(0, 3, 100)
    names = ["\x1b[31mx\x07", "$\\frac{$"] if len(options) == 2 else ["c1", "c2", "c3"]
    rows = [f"{a},{b}" for a, b in zip(x, np.exp(-((x - 1) ** 2)) + 0.01 * np.sin(50 * x), strict=True)]
    if len(options) > 2:
        rows = [f"{row},{('$_{', chr(27) + '[31m')[k % 2]}" for k, row in enumerate(rows)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    code, out, err = program("fit", tmp_path / "a.csv", *options, "-o", tmp_path / "out")
    assert code in (0, 1), err
    page = (tmp_path / "out" / "report.html").read_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out + err + page)


def test_names_inside_files_do_not_lead_out_of_the_output_folder(program, tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    np.savez(inside / "data.npz", **{"../../evil": np.arange(10.0), "/tmp/evil": np.arange(10.0), "x": np.ones(10)})  # noqa: S108
    code, _, err = program("shuffle", inside / "data.npz", inside / "out")
    assert code == 0, err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["b"]
    assert sorted(p.name for p in inside.iterdir()) == ["data.npz", "out"]
    assert len(list((inside / "out").glob("*.npy"))) == 3


# --- the source itself ---------------------------------------------------------------------------------------

_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "joblib"}
_CALLS = {"eval", "exec", "compile", "__import__"}
_ATTRIBUTES = {"system", "popen", "mktemp", "literal_eval", "extractall"}


def _faults(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"imports {a.name}" for a in node.names if a.name.split(".")[0] in _MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in _MODULES:
                yield f"imports {node.module}"
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            owner = node.func.value.id if method and isinstance(node.func.value, ast.Name) else ""
            given = {k.arg: k.value for k in node.keywords}
            if name in _CALLS:
                yield f"calls {name}"
            if method in _ATTRIBUTES and owner in ("os", "tempfile", "ast", "tarfile", "archive"):
                yield f"calls {owner}.{method}"
            if owner in ("np", "numpy") and method == "load":
                allowed = given.get("allow_pickle")
                if not (isinstance(allowed, ast.Constant) and allowed.value is False):
                    yield "np.load without allow_pickle=False"
            if isinstance(given.get("shell"), ast.Constant) and given["shell"].value:
                yield "shell=True"


def test_nothing_runs_what_it_reads():
    """No pickle, no yaml.load, no eval: walked in the syntax tree of every module."""
    found = [
        f"{path.relative_to(SOURCE)}: {fault}"
        for path in sorted(SOURCE.rglob("*.py"))
        for fault in _faults(ast.parse(path.read_text(encoding="utf-8")))
    ]
    # Machine code, which is code by nature; and a result that asks whether it can be pickled, and reads nothing.
    places = [("jit", "build.py"), ("jit", "cache.py"), ("solver", "result.py")]
    assert found == [f"{os.path.join(*place)}: imports pickle" for place in places]
    examples = "import pickle; eval('1'); np.load('a'); np.load('a', allow_pickle=True); os.system('x')"
    assert len(list(_faults(ast.parse(examples)))) == 5  # the walk sees what it looks for
