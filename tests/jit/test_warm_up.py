"""Compiling everything now: into a library or, without a C compiler, into the cache; and what is said of it."""

from __future__ import annotations

import json
import sys

import pytest

from problm.cli import main
from problm.jit import build, library, warm_up


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Calls of what compiles, which does nothing."""
    calls = []
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "missing", lambda: ["one", "two"])
    monkeypatch.setattr(build, "build", lambda **options: calls.append("library"))
    monkeypatch.setattr(build, "compile_into_cache", lambda names, *_: calls.append(names))
    monkeypatch.setattr(library, "forget", lambda: calls.append("looked again"))
    return calls


def said(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["problm", "warmup", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    return capsys.readouterr().out


def test_a_library_is_made(asked, monkeypatch, capsys):
    told = json.loads(said(monkeypatch, capsys, "--json"))
    assert asked == ["library", "looked again"]
    assert told["compiled"] == 2
    assert told["why_no_library"] == ""


def test_without_a_compiler_the_cache_is_filled(asked, monkeypatch, capsys):
    def fail(**options):
        raise RuntimeError("no C compiler is installed")

    monkeypatch.setattr(build, "build", fail)
    assert "no C compiler is installed" in said(monkeypatch, capsys)
    assert asked == [["one", "two"], "looked again"]


def test_nothing_is_done_twice(asked, monkeypatch, capsys):
    monkeypatch.setattr(warm_up, "missing", list)
    assert "all were compiled before" in said(monkeypatch, capsys)
    assert asked == []


def test_the_cache_is_filled(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    build.compile_into_cache(["problm.manifolds.rotation_exp"], jobs=1)
    assert [p.name.split("-")[0] for p in (tmp_path / "problm").iterdir()] == ["problm.manifolds.rotation_exp"]
