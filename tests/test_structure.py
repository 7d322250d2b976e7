"""The shape of the package: few and short modules, and names in the documentation that exist."""

from __future__ import annotations

import importlib
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import problm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "problm"
TEXTS = [
    *ROOT.glob("*.md"),
    *(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "made"} & set(p.parts)),
    *(ROOT / "bench").rglob("*.md"),
    *PACKAGE.rglob("*.py"),
]
DOTTED = re.compile(r"(?<![\w<./'\"-])problm(?:\.[A-Za-z_]\w*)+")


def test_rooms_are_small():
    assert len(list(PACKAGE.glob("*.py"))) <= 10
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        assert len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) <= 20, folder


@pytest.mark.parametrize("folder", ["src", "bench"])
def test_modules_are_short(folder):
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / folder).rglob("*.py")}
    assert {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > 400} == {}


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    path = project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{problm.__version__}"' in (ROOT / path).read_text()


@cache
def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one, of a class in it, or of its instances."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("problm"):
                return True  # a module that needs a package which is not installed
            continue
        for attribute in parts[end:]:
            if attribute in getattr(found, "__annotations__", {}):
                return True
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def test_a_name_that_does_not_exist_is_found():
    assert exists("problm.curve_fit")
    assert exists("problm.solver.result.Result.report")
    assert exists("problm.losses.Loss.name")
    assert not exists("problm.nothing")
    assert not exists("problm.solver.result.Result.nothing")
    assert DOTTED.findall("`problm.losses`, problm.model() and src/problm/x.py") == ["problm.losses", "problm.model"]


def test_names_in_the_documentation_exist():
    wrong = {}
    for path in TEXTS:
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for name in DOTTED.findall(text):
                if not exists(name):
                    wrong[f"{path.relative_to(ROOT)}, line {line}"] = name
    assert wrong == {}
