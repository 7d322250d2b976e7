"""Every example in the documentation and the README runs, in order, page by page."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

import problm
from problm.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "made"} & set(p.parts))]
FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})(?P<kind>[\w{}-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(text):
    """(kind, body, line) of every fenced block."""
    return [(m["kind"], m["body"], text[: m.start()].count("\n") + 2) for m in FENCE.finditer(text)]


def run_console(body, monkeypatch, where):
    """Lines ``$ problm ...`` of a console block, in this process; other commands (pip, make, git) are the reader's."""
    for command in re.findall(r"^\$ (.*(?:\\\n.*)*)", body, re.M):
        words = shlex.split(command.replace("\\\n", " "))
        if words[0] != "problm":
            continue
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code, f"{where}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_of(page, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    for package in re.findall(r"^% skip-examples-without: (\w+)", text, re.M):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import pictures

    names: dict[str, object] = {"__name__": "__main__", "results": pictures.results}
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for kind, body, line in blocks(text):
        where = f"{page.relative_to(ROOT)}, line {line}"
        if kind == "python" and body.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(body, names, where, str(page), line)
            report = []
            runner.run(test, out=report.append, clear_globs=False)
            names = test.globs
            assert not report, "".join(report)
        elif kind == "python":
            exec(compile("\n" * (line - 1) + body, str(page), "exec"), names)  # noqa: S102  our own pages
        elif kind == "{picture}":
            pytest.importorskip("matplotlib")
            exec(compile(pictures.picture_code(body)[0], where, "exec"), names)  # noqa: S102
            assert names["figure"].axes, where
        elif kind == "console":
            run_console(body, monkeypatch, where)


def test_there_are_pages_and_examples():
    assert len(PAGES) > 10
    assert sum(kind == "python" for page in PAGES for kind, _, _ in blocks(page.read_text())) > 30


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", text):
            if "://" not in target and not target.startswith("mailto:"):
                there = page.parent / target
                made = "gallery" in target or target.endswith("tables.md")  # written by the build
                assert there.exists() or made, f"{page.relative_to(ROOT)} links to {target}"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_the_table_of_the_readme_is_the_measured_one(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import readme_table

    text = (ROOT / "README.md").read_text()
    assert text == readme_table.filled(text), "run python docs/readme_table.py"
    assert "ProBLM** |" in text


@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "gallery").glob("*.py")), ids=lambda p: p.stem)
def test_gallery(script):
    import runpy

    pytest.importorskip("matplotlib")
    assert runpy.run_path(str(script))["figure"].axes


def test_nothing_of_this_machine_is_in_the_pages():
    for page in [*PAGES, *(ROOT / "docs").rglob("*.py")]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/(home|root|work|tmp)/", text), page


@pytest.mark.parametrize("name", [name for name in problm.__all__ if name != "__version__"])
def test_the_reference_has_every_public_name_with_an_example(name):
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert re.search(rf"\b{name}\b", pages), f"{name} is on no page of docs/reference"
    assert ">>>" in (inspect.getdoc(getattr(problm, name)) or ""), f"{name} has no example"


def test_every_tutorial_and_every_howto_has_a_picture():
    for page in PAGES:
        if page.parent.name in ("tutorials", "howto"):
            assert re.search(r"^```\{picture\}|!\[", page.read_text(encoding="utf-8"), re.M), page


def test_the_page_of_tables_names_everything(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import tables

    from problm.losses import RULES
    from problm.models.ready_made import CURVES
    from problm.solver.policies import POLICIES
    from problm.vision.alignment.warps import DIMENSIONS
    from problm.vision.bundle.camera_models import MODELS

    text = tables.content()
    for name in [*RULES, *CURVES, *POLICIES, *DIMENSIONS, *MODELS]:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", text, re.M)
        assert all(cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:3]), row


def test_notebooks_of_the_gallery_hold_the_script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import gallery_maker

    script = ROOT / "docs" / "gallery" / "robust_line.py"
    code = gallery_maker.code_of(script.read_text(encoding="utf-8"))
    made = json.loads(gallery_maker.notebook("A title\n\nA text.", code))
    assert [cell["source"] for cell in made["cells"]] == ["# A title\n\nA text.", code, "figure"]
    assert code in script.read_text(encoding="utf-8")


def test_descriptions_in_docstrings_are_no_types(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import docstrings

    text = "Adds.\n\nParameters\n----------\na, b : numbers. Both\n    are added.\n\nNotes\n-----\nc : as it is"
    expected = text.replace("a, b : numbers. Both", "a, b\n    numbers. Both")
    assert docstrings.described(text.splitlines()) == expected.splitlines()


def test_shortened_outputs_are_shown_in_full(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import pictures

    monkeypatch.setattr(pictures, "MADE", tmp_path)
    text = "```python\n>>> x = 3\n>>> print('a\\n\\nb', x)\na...\n\n```\n"
    assert pictures.make(text, tmp_path / "page.md", "page") == [("a...\n", "a\n<BLANKLINE>\nb 3\n")]
    source = [text]
    pictures.insert(None, "page", source)
    assert source == [text.replace("a...\n\n", "a\n<BLANKLINE>\nb 3\n")]
