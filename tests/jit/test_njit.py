"""Compiled functions without a place to keep them, and what the user is told."""

from __future__ import annotations

import logging

import numba
import numpy as np
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


def _filled(x):
    y = np.zeros(3)
    y[:] = x
    return y[0]


def test_shapes_that_do_not_fit_are_told_briefly(tmp_path, monkeypatch):
    """Numba's message with both shapes doubles the time of compiling; the user's own functions keep it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    ours = problm.jit.njit.njit(types.float64(types.Array(types.float64, 1, "C")))(_filled)
    assert ours(np.ones(3)) == 1.0
    with pytest.raises(ValueError, match="an array of another shape"):
        ours(np.ones(2))
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        numba.njit(_filled)(np.ones(2))


def test_compiling_is_announced_once(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(problm.jit.njit, "_COMPILING_AFTER", 0.0)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # nothing is there yet
    with caplog.at_level(logging.WARNING, "problm"):
        for _ in range(2):
            problm.jit.njit.njit(types.float64(types.float64))(twice)(1.0)
    assert sum("compiling" in r.getMessage() for r in caplog.records) == 1
