"""Committed results: one format, and bench/README.md says which command makes each and which page shows it."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from bench.harness import record

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "bench" / "README.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| `[\w/*]+\.\w+`", line)
]


def files(cell: str) -> list[str]:
    """Names of the files of a row; one that begins with a dot is a suffix of the one before."""
    names: list[str] = []
    for name in re.findall(r"`([^`]+)`", cell):
        names.append(names[-1].rpartition(".")[0] + name if name.startswith(".") else name)
    return names


def test_every_result_is_listed_and_every_listed_result_is_there():
    patterns = [name for row in ROWS for name in files(row[0])]
    present = [str(p.relative_to(RESULTS)) for p in RESULTS.rglob("*") if p.is_file()]
    assert [p for p in present if not any(fnmatch.fnmatch(p, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not fnmatch.filter(present, pattern)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_command_exists_and_the_page_shows_the_result(row):
    (module,) = re.findall(r"`python -m (bench[\w.]*)", row[1])
    assert importlib.util.find_spec(module)
    pages = [ROOT / "docs" / name for name in files(row[2])] + [ROOT / "README.md"] * row[2].endswith("README")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for name in files(row[0]):
            if not name.endswith(".json") and not (page.name == "README.md" and name.endswith(".svg")):
                assert re.search(re.escape(name).replace(r"\*", r"[\w-]+"), text), f"{page.name} does not show {name}"


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda p: str(p.relative_to(RESULTS)))
def test_results_have_one_format(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert list(found) == ["about", "data"]
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert text.rstrip().endswith(record.foot(found["about"]))


def test_studies_write_results_through_the_record_only():
    writers = re.compile(r"json\.dump\(|write_atomically|os\.replace|\.(md|json)\"\)\.write_")
    for path in [*(ROOT / "bench" / "studies").glob("*.py"), *(ROOT / "bench" / "paper").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        # The study of faults replaces what writes checkpoints by a disk that is full.
        assert path.name == "fault_kinds.py" or not writers.search(text), path.name
        assert ("record.write(" in text) == ("__main__" in text and "studies" in str(path)), path.name


def test_what_is_written_can_be_read(tmp_path):
    known = record.about(seed=3, seconds=1.23, packages=("nothing-of-that-name",))
    record.write(tmp_path / "new", "x", ["# Title", "Text."], {"a": np.float64(0.5), "b": np.arange(2)}, known)
    assert record.read(tmp_path / "new", "x") == {"a": 0.5, "b": [0, 1]}
    title, text, foot = (tmp_path / "new" / "x.md").read_text().rstrip().split("\n\n")
    assert (title, text) == ("# Title", "Text.")
    assert foot.startswith(f"Measured {known['when'][:10]} on ")
    assert foot.endswith("; seed 3; 1 s in all.")
    assert record.read(tmp_path, "x") is None
