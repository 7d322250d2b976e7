"""Imports point down the table of rooms in docs/explanation/architecture.md, and no modules import one another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.imports import Directions, cycle, graph, imports, modules, violations

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "problm"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"


def table() -> Directions:
    """The table of the architecture page."""
    found = re.search(r":name: directions\n\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found, f"{PAGE.name} has no block named directions"
    return Directions(found[1])


def test_imports_follow_the_table():
    assert not violations(PACKAGE, table())


def test_no_modules_import_one_another():
    assert not cycle(graph(PACKAGE))


def test_the_table_points_down_and_names_every_room():
    directions = table()
    assert not directions.upward()
    names = [name.removeprefix("problm.") for name in modules(PACKAGE)]
    assert [name for name in names if directions.room(name) is None] == ["problm", "vision"]
    assert [room for room in directions.rooms if room not in names] == []


# The checker itself, on small trees.


def tree(folder: Path, files: dict[str, str]) -> Path:
    """A package ``house`` with these files."""
    for name, text in files.items():
        path = folder / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for above in path.relative_to(folder).parents[:-1]:
            (folder / above / "__init__.py").touch()
    return folder / "house"


TABLE = Directions("roof -> everything\nwalls.door -> cellar\nwalls -> floor\nfloor, cellar -> nothing")


WRONG = {
    "name": "from ..walls.window import pane\n",
    "absolute": "import house.walls.window\n",
    "room": "from .. import walls\n",
    "lazy": "def use():\n    from ..walls.window import pane\n",
    "typing": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..walls import window\n",
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_import_is_found_wherever_it_is_written(tmp_path, wrong):
    house = tree(tmp_path, {"walls/window.py": "", "floor/board.py": wrong})
    (found,) = violations(house, TABLE)
    assert found.startswith("house.floor.board, line ")
    assert "imports house.walls" in found


def test_right_imports_are_not_found(tmp_path):
    house = tree(
        tmp_path,
        {
            "roof.py": "from . import walls\nfrom .floor import board\nfrom house import __doc__\n",
            "walls/window.py": "from ..floor.board import plank\nimport numpy.floor\n",
            "walls/door.py": "from .window import pane\nfrom ..cellar import beam\n",
            "floor/board.py": "plank = 1",
            "cellar/beam.py": "",
        },
    )
    assert violations(house, TABLE) == []
    assert cycle(graph(house)) == []
    assert ("house.walls.door", "house.cellar.beam", 2) in imports(house)


def test_what_a_module_may_import_its_room_may_not(tmp_path):
    house = tree(tmp_path, {"walls/window.py": "from ..cellar import beam\n", "cellar/beam.py": ""})
    assert violations(house, TABLE) == ["house.walls.window, line 1, imports house.cellar.beam"]


A_TO_B = {"floor/a.py": "from .b import x\n"}
EXPORT_A = {"floor/__init__.py": "from .a import x\n"}
CYCLES = {
    "lazy": A_TO_B | {"floor/b.py": "def f():\n    from . import a\n"},
    "three": A_TO_B | {"floor/b.py": "from .c import x\n", "floor/c.py": "from .a import x\n"},
    "own init": EXPORT_A | A_TO_B | {"floor/b.py": "from ..floor import x\n"},
    "other init": EXPORT_A
    | {"floor/a.py": "from ..walls import b\n", "walls/b.py": "from ..floor import c\n", "floor/c.py": ""},
}


@pytest.mark.parametrize("files", CYCLES.values(), ids=CYCLES)
def test_cycles_are_found(tmp_path, files):
    found = cycle(graph(tree(tmp_path, files)))
    assert len(found) > 2
    assert found[0] == found[-1]


def test_tables_that_point_up_are_found():
    assert Directions("floor -> walls\nwalls -> floor").upward() == ["walls -> floor"]
    assert Directions("walls -> attic").upward() == ["walls -> attic"]
