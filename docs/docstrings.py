"""Sphinx extension: ``name : text`` in the sections of a docstring is a description, not a type.

Numpydoc takes what follows the colon as a type. The types are in the signatures here, and short descriptions stand on
the line of the name; they are moved below it before numpydoc's sections are read.
"""

from __future__ import annotations

import re
from typing import Any

SECTIONS = ("Parameters", "Attributes", "Returns", "Other Parameters")
ENTRY = re.compile(r"^(\s*)(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")


def described(lines: list[str]) -> list[str]:
    """The lines with each description below its name.

    Examples
    --------
    >>> described(["Parameters", "----------", "x, y : data, of any", "    length."])
    ['Parameters', '----------', 'x, y', '    data, of any', '    length.']
    """
    found: list[str] = []
    section = ""
    for k, line in enumerate(lines):
        if k + 1 < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[k + 1]):
            section = line.strip()
        entry = ENTRY.match(line) if section in SECTIONS else None
        if entry:
            indent, names, text = entry.groups()
            found += [f"{indent}{names}", f"{indent}    {text}"]
        else:
            found.append(line)
    return found


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = described(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon, at 500
    return {"parallel_read_safe": True}
