"""Committed results: one format, and bench/README.md says which command makes each and which page shows it."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from bench.harness import environment, record, stale

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
ROWS = stale.table((ROOT / "bench" / "README.md").read_text(encoding="utf-8"))


def test_every_result_is_listed_and_every_listed_result_is_there():
    patterns = [name for row in ROWS for name in row.files]
    present = [str(p.relative_to(RESULTS)) for p in RESULTS.rglob("*") if p.is_file()]
    assert [p for p in present if not any(fnmatch.fnmatch(p, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not fnmatch.filter(present, pattern)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.files[0])
def test_the_command_exists_and_the_page_shows_the_result(row):
    (module,) = re.findall(r"`python -m (bench[\w.]*)", row.command)
    assert importlib.util.find_spec(module)
    for page in row.pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in row.files:
            if not name.endswith(".json") and not (page == "README.md" and name.endswith(".svg")):
                assert re.search(re.escape(name).replace(r"\*", r"[\w-]+"), text), f"{page} does not show {name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.files[0])
def test_the_study_names_only_what_is_there(row):
    """Studies are run by hand: without this, a name that has moved is found out months later."""
    (module,) = re.findall(r"`python -m (bench[\w.]*)", row.command)
    importlib.import_module(module)


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda p: str(p.relative_to(RESULTS)))
def test_results_have_one_format(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert list(found) == ["about", "data"]
    assert all(found["about"][key] for key in ("when", "commit", "command"))
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
    assert foot.startswith(f"Measured {known['when'][:10]} at commit {known['commit']}")
    assert "; seed 3; 1 s in all; `" in foot
    assert record.read(tmp_path, "x") is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.files[0])
def test_what_a_result_measures_is_there(row):
    assert row.parts
    assert [p for p in row.paths() if not (ROOT / p).exists()] == []


def test_results_older_than_their_code_are_found(monkeypatch, tmp_path):
    def asked(*arguments):
        where = environment.subprocess.run(["git", *arguments], cwd=tmp_path, capture_output=True, text=True)
        return where.stdout.strip() if where.returncode == 0 else None

    monkeypatch.setattr(stale, "git", asked)
    asked("init")
    for key, value in (("user.name", "a"), ("user.email", "a@b")):
        asked("config", key, value)
    commits = []
    for name in ("one", "two", "one"):
        (tmp_path / name).write_text(str(len(commits)))
        asked("add", "-A")
        asked("commit", "-m", name)
        commits.append(asked("rev-parse", "HEAD"))
    assert [stale.changes_since(c, ["one"]) for c in commits] == [1, 1, 0]
    assert stale.changes_since(commits[0], ["two"]) == 1
    assert stale.changes_since(commits[2] + "+", ["two"]) == 0
    (tmp_path / "two").write_text("not committed")
    assert stale.changes_since(commits[2], ["two"]) == 1
    assert stale.changes_since("0123456789", ["one"]) is None


def test_commands_name_no_folder_of_this_machine(monkeypatch):
    monkeypatch.setattr("sys.modules", {})
    assert (
        environment.command(["x/run", "all", "--data", "/some/where", "--seed", "3"]) == "run all --data DIR --seed 3"
    )
