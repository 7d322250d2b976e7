"""Compiled code on disk: found again when nothing has changed, and only then."""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import shutil
import subprocess
import sys

import pytest

import problm.jit.njit
from problm.jit import cache, sources
from problm.jit.folder import PACKAGE, folder, refuse_strangers
from tests.helpers.program import unwatched

FILES = {
    "main.py": """
from problm.jit.njit import njit
from problm.jit.types import float64 as f8
from . import constants
from .parts import thrice
@njit(f8(f8))
def main(x):
    return thrice(x) + constants.SHIFT
def other():
    return None
""",
    "parts.py": """
from problm.jit.njit import part
from .words import plus
@part()
def thrice(x):
    return plus(plus(x, x), x)
""",
    "words.py": """
from problm.jit import types
from problm.jit.njit import intrinsic
from .emit import add
@intrinsic
def plus(typing, x, y):
    def codegen(context, builder, signature, args):
        return add(builder, *args)
    return types.float64(types.float64, types.float64), codegen
""",
    "emit.py": "def add(builder, x, y):\n    return builder.fadd(x, y)\n",
    "constants.py": "SHIFT = 1.0\n",
    "unused.py": "",
}
_number = itertools.count()


@pytest.fixture(autouse=True)
def empty(monkeypatch, tmp_path):
    monkeypatch.setattr(problm.jit.njit, "_told", set())
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Writes FILES with changes, and imports them as a process of its own would."""

    def load(**changed):
        place = tmp_path / str(next(_number))
        (place / "shop").mkdir(parents=True)
        (place / "shop/__init__.py").touch()
        for name, text in FILES.items():
            (place / "shop" / name).write_text(changed.get(name[:-3], text))
        for name in [m for m in sys.modules if m.partition(".")[0] == "shop"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(place)
        sources.digest.cache_clear()
        main = importlib.import_module("shop.main").main
        assert main.dispatcher
        return main

    return load


def compiled_anew(function):
    return sum(function.dispatcher.stats.cache_misses.values())


def test_the_same_sources_elsewhere_and_later_are_found(package):
    first, second = package(), package()
    assert (first(2.0), compiled_anew(first)) == (7.0, 1)
    assert (second(2.0), compiled_anew(second)) == (7.0, 0)


@pytest.mark.parametrize(
    ("name", "old", "new", "value"),
    [
        ("main", "+ constants", "- constants", 5.0),
        ("parts", "plus(x, x)", "plus(plus(x, x), x)", 9.0),
        ("words", "*args)", "args[0], args[0])", 9.0),
        ("emit", "fadd", "fmul", 9.0),
        ("constants", "1.0", "2.0", 8.0),
    ],
)
def test_a_change_of_any_file_that_is_used_is_noticed(package, name, old, new, value):
    package()
    changed = package(**{name: FILES[f"{name}.py"].replace(old, new)})
    assert (changed(2.0), compiled_anew(changed)) == (value, 1)


def test_a_module_that_is_handed_on_is_followed(package):
    main = """
from problm.jit.njit import njit, part
from problm.jit.types import float64 as f8
from . import parts
@part()
def apply(x, library):
    return library.thrice(x)
@njit(f8(f8))
def main(x):
    return apply(x, parts)
"""
    first, second = package(main=main), package(main=main, emit=FILES["emit.py"].replace("fadd", "fmul"))
    assert (first(2.0), second(2.0)) == (6.0, 8.0)
    assert compiled_anew(second) == 1


def test_a_file_that_is_not_used_does_not_matter(package):
    package()
    assert compiled_anew(package(unused="# more", constants="SHIFT = 1.0  # the same\nOTHER = 3\n")) == 1, (
        "a module that is read is looked at as a whole"
    )
    assert compiled_anew(package(unused="# more")) == 0


def test_functions_made_by_one_factory_are_told_apart():
    def made(a, b):
        def call(x):
            return a(x) - b(x)

        return call

    one, two = lambda x: 2 * x, lambda x: 3 * x
    assert len({sources.digest(f) for f in (made(one, two), made(two, one), made(one, two))}) == 2


def test_words_are_the_same_in_every_process():
    command = "from problm.jit.sources import text; print(text([{'a', 'b', 'c'}, {'y': 1, 'x': {2.5}}, (), object()]))"
    said = {
        subprocess.run(
            [sys.executable, "-c", command],
            env=unwatched(PYTHONHASHSEED=seed),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "foreign", "flipped"])
def test_a_damaged_file_is_replaced_with_one_sentence(package, tmp_path, caplog, damage):
    package()
    (file,) = (tmp_path / "cache/problm").iterdir()
    data = file.read_bytes()
    file.write_bytes(
        {"empty": b"", "cut": data[: len(data) // 2], "foreign": b"\x80\x04N.", "flipped": data[:-1] + b"?"}[damage]
    )
    with caplog.at_level(logging.WARNING, "problm"):
        again = package()
    assert (again(2.0), compiled_anew(again)) == (7.0, 1)
    assert [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()]
    assert compiled_anew(package()) == 0, "repaired"


def test_only_the_latest_versions_are_kept(package, tmp_path):
    for k in range(cache._KEPT + 2):
        package(constants=f"SHIFT = {k}.0")
    assert len(list((tmp_path / "cache/problm").iterdir())) == cache._KEPT


def test_a_folder_that_vanishes_is_made_again(package, tmp_path):
    package()
    shutil.rmtree(tmp_path / "cache")
    assert compiled_anew(package()) == 1
    assert os.listdir(tmp_path / "cache/problm")


def test_two_processes_may_compile_at_once(tmp_path):
    code = "import numpy as np, problm.manifolds as m; print(m.rotation_exp(np.zeros(3))[0, 0])"
    environment = unwatched(NUMBA_CACHE_DIR=str(tmp_path), PROBLM_COMPILED="0")
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [p.communicate()[0] for p in started] == [b"1.0\n"] * 2
    assert [p for p in (tmp_path / "problm").iterdir() if "rotation_exp" in p.name]
    assert not [p for p in (tmp_path / "problm").iterdir() if p.suffix == ".part"]


def test_without_a_home_nothing_is_written_anywhere(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where the user has no home at all
    with pytest.raises(OSError, match="problm"):
        folder().mkdir(parents=True)


POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and permissions of POSIX")
EXPOSED = {"the file": lambda file: file.chmod(0o666), "the folder": lambda file: file.parent.chmod(0o777)}


@POSIX
@pytest.mark.parametrize("what", EXPOSED)
def test_code_that_others_may_write_is_not_run(package, tmp_path, caplog, what):
    package()
    (file,) = (tmp_path / "cache/problm").iterdir()
    assert compiled_anew(package()) == 0
    EXPOSED[what](file)
    with caplog.at_level(logging.WARNING, "problm"):
        again = package()
    assert (again(2.0), compiled_anew(again)) == (7.0, 1)
    assert [r.getMessage() for r in caplog.records if "others may write to" in r.getMessage()]


@POSIX
def test_whose_code_is_run(tmp_path, monkeypatch):
    """Our own, root's and that of the package's owner; in a folder like /tmp nobody can replace another's file."""
    everything = os.stat

    def of_group(found, group):
        return os.stat_result([*found[:5], group, *found[6:10]])

    (tmp_path / "code").touch()
    tmp_path.chmod(0o1777)
    refuse_strangers(tmp_path / "code")
    tmp_path.chmod(0o775)
    refuse_strangers(tmp_path / "code")  # as a umask of 002 makes it
    with monkeypatch.context() as patch:
        patch.setattr(os, "getegid", lambda: tmp_path.stat().st_gid + 1)
        patch.setattr(os, "stat", lambda path, **options: of_group(everything(path, **options), 77))
        with pytest.raises(ValueError, match="others may write to"):
            refuse_strangers(tmp_path / "code")
    mine = tmp_path.stat().st_uid

    def others(path, **options):
        found = everything(path, **options)
        return os.stat_result([*found[:4], mine + 1, *found[5:10]]) if str(path).endswith("code") else found

    monkeypatch.setattr(os, "stat", others)
    with pytest.raises(ValueError, match="belongs to another user"):
        refuse_strangers(tmp_path / "code")
    refuse_strangers(PACKAGE / "__pycache__" / "code")
