"""Compiled functions without a place to keep them, and what the user is told."""

from __future__ import annotations

import logging

import pytest

import problm.jit.njit
from problm.jit import types


def twice(x):
    return 2.0 * x


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(problm.jit.njit, "_told", set())


def test_no_writable_cache_folder(monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/dev/null/cache")
    with caplog.at_level(logging.WARNING, "problm"):
        for _ in range(2):
            assert problm.jit.njit.njit(types.float64(types.float64))(twice)(4.0) == 8.0
    told = [r.getMessage() for r in caplog.records if "NUMBA_CACHE_DIR" in r.getMessage()]
    assert len(told) == 1, "said once, with the remedy"


def test_a_mistake_in_the_function_is_still_an_error():
    with pytest.raises(Exception, match="nonsense"):
        problm.jit.njit.njit(types.float64(types.float64))(lambda x: nonsense)(1.0)  # noqa: F821


def test_compiling_is_announced_once(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(problm.jit.njit, "_COMPILING_AFTER", 0.0)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # nothing is there yet
    with caplog.at_level(logging.WARNING, "problm"):
        for _ in range(2):
            problm.jit.njit.njit(types.float64(types.float64))(twice)(1.0)
    assert sum("compiling" in r.getMessage() for r in caplog.records) == 1
