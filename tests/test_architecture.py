"""The walks of docs/explanation/architecture.md: every file that a step names is entered by that call."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "problm"
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
NOT_TRACED = {"kernels/tape.py"}
"""Compiled code, called by compiled code."""


def entered(call: Callable[[], object]) -> set[str]:
    """Files of the package in which a function was called, by any thread."""
    found: set[str] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {str(Path(p).relative_to(PACKAGE)) for p in found if p.startswith(f"{PACKAGE}/")}


def steps(title: str) -> list[str]:
    """Files that the numbered steps of a section name."""
    section = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    listed = re.search(r"^1\..*?(?=\n\n(?! {3}|\d)|\Z)", section, re.M | re.S)
    assert listed
    found = re.findall(r"`([\w/]+\.py)`", listed[0])
    assert len(found) > 5
    return found


def decay(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, n)
    return x, 2.5 * np.exp(-1.3 * x) + 0.5 + 0.2 * rng.standard_normal(n)


def test_curve_fit():
    """A formula that no other test uses: programs of known ones are kept."""
    x, y = decay(1_000_000)
    visited = entered(lambda: problm.curve_fit(problm.formula("walked*exp(-b*x) + c"), x, y))
    assert set(steps("The walk of `curve_fit`")) - NOT_TRACED <= visited


def test_align():
    y, x = np.mgrid[0:240, 0:320]

    def scene(x: Any, y: Any) -> Any:
        return np.sin(x / 7) + np.cos(y / 9 + x / 30) + 0.01 * x

    visited = entered(lambda: problm.align(scene(x, y), scene(x - 2.5, y + 1.25), model="affine"))
    assert set(steps("The walk of `align`")) <= visited | {"vision/alignment/result.py"}  # a dataclass


@pytest.mark.filterwarnings("ignore")
def test_dask():
    distributed = pytest.importorskip("distributed")
    array = pytest.importorskip("dask.array")
    x, y = (array.from_array(column, chunks=50_000) for column in decay(200_000))
    model = problm.formula("a*exp(-b*x) + c")
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        visited = entered(lambda: problm.curve_fit(model, x, y, p0=[1.0, 1.0, 0.0], client=client))
    assert set(steps("The walk of a solve on Dask")) <= visited


def test_every_file_on_the_page_is_there():
    for name in re.findall(r"`([\w/]+/[\w/]+\.py)`", TEXT):
        assert any((folder / name).is_file() for folder in (PACKAGE, ROOT)), name
