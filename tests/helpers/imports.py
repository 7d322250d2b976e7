"""Who imports whom in a package, read from its syntax trees: lazy and type-checking imports count like any other."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Graph = dict[str, set[str]]


class Import(NamedTuple):
    """One import statement, with full dotted names."""

    importer: str
    imported: str
    line: int


def modules(package: Path) -> dict[str, Path]:
    """Dotted name of every module below the folder ``package``, which is itself a package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: Path) -> list[Import]:
    """Every import of one module of the package by another, wherever in the file it is written."""
    known = modules(package)
    return [i for name, path in known.items() for i in _imports_of(name, path, known) if i.imported in known]


def _imports_of(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[Import]:
    folder = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(name, full if full in known else base, node.lineno)


def graph(package: Path) -> Graph:
    """Edges from importer to imported.

    Python runs the ``__init__`` of every folder on the way to a module, so an import from outside a folder also
    points to that folder's ``__init__`` and to what it re-exports.
    """
    edges: Graph = {name: set() for name in modules(package)}
    for importer, imported, _ in imports(package):
        parts = imported.split(".")
        for end in range(1, len(parts)):
            folder = ".".join(parts[:end])
            if not f"{importer}.".startswith(f"{folder}."):
                edges[importer].add(folder)
        edges[importer].add(imported)
    return edges


def cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules of one cycle, the first one repeated at the end; empty if there is none."""
    done: set[str] = set()
    for start in sorted(edges):
        if start in done:
            continue
        path, waiting = [start], [sorted(edges[start])]
        while path:
            if not waiting[-1]:
                waiting.pop()
                done.add(path.pop())
                continue
            following = waiting[-1].pop()
            if following in path:
                return [*path[path.index(following) :], following]
            if following not in done:
                path.append(following)
                waiting.append(sorted(edges[following]))
    return []


class Directions:
    """A table of lines ``room, room -> room, room.module``: who may import whom.

    A line about a module adds to what its room may import. ``everything`` stands for the package itself and all lines
    further down, ``nothing`` for none. Inside a room every module may import every other one.
    """

    def __init__(self, text: str) -> None:
        lines = [line.split("->") for line in text.strip().splitlines()]
        self.allowed: dict[str, list[str]] = {}
        for left, right in lines:
            for name in _names(left):
                self.allowed[name] = _names(right)

    @property
    def rooms(self) -> list[str]:
        """Names on the left, from top to bottom."""
        return list(self.allowed)

    def room(self, module: str) -> str | None:
        """The first name on the left that holds a module (whose name is given without the package's)."""
        return next((r for r in self.rooms if _holds(r, module)), None)

    def allows(self, importer: str, imported: str) -> bool:
        """Whether one module may import another; both without the package's name."""
        for room, targets in self.allowed.items():
            if not _holds(room, importer):
                continue
            if _holds(room, imported) or any(_holds(t, imported) for t in targets):
                return True
            above = self.rooms[: self.rooms.index(room)]
            if targets == ["everything"] and not any(_holds(r, imported) for r in above):
                return True
        return False

    def upward(self) -> list[str]:
        """Lines of the table that point up, or to a room that has no line."""
        wrong = []
        for number, (room, targets) in enumerate(self.allowed.items()):
            below = self.rooms[number + 1 :]
            for target in targets:
                if target not in ("everything", "nothing") and not any(_holds(r, target) for r in below):
                    wrong.append(f"{room} -> {target}")
        return wrong


def violations(package: Path, directions: Directions) -> list[str]:
    """Imports that the table does not allow. The package's own ``__init__`` re-exports whatever is public."""
    root = package.name
    wrong = []
    for importer, imported, line in imports(package):
        if importer == root:
            continue
        if not directions.allows(importer.removeprefix(f"{root}."), imported.removeprefix(f"{root}.")):
            wrong.append(f"{importer}, line {line}, imports {imported}")
    return wrong


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _holds(room: str, module: str) -> bool:
    return f"{module}.".startswith(f"{room}.")
