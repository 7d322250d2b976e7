"""Sphinx extension: ``name : text`` in the sections of a docstring is a description, not a type.

Numpydoc takes what follows the colon as a type. The types are in the signatures here, and short descriptions stand on
the line of the name; they are moved below it before numpydoc's sections are read. Signatures are shortened to what a
reader may use.
"""

from __future__ import annotations

import dataclasses
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
    >>> described(["Parameters", "----------", "text : str", "    For example a*x."])[2:]
    ['text', '    str.', '    For example a*x.']
    """
    found: list[str] = []
    section = ""
    for k, line in enumerate(lines):
        if k + 1 < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[k + 1]):
            section = line.strip()
        entry = ENTRY.match(line) if section in SECTIONS else None
        if entry:
            indent, names, text = entry.groups()
            if k + 1 < len(lines) and re.match(rf"{indent}\s+[A-Z]", lines[k + 1]) and text[-1] not in ".,:;":
                text += "."  # a type, with the description below
            found += [f"{indent}{names}", f"{indent}    {text}"]
        else:
            found.append(line)
    return found


def process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = described(lines)
    if what == "attribute":
        lines[:0] = ["..", ""]  # an empty comment: napoleon takes a first line up to its colon for the type


def sign(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """No signature for classes that functions make, or whose many fields follow; plain defaults for the others."""
    if what != "class" or signature is None:
        return None
    many = dataclasses.is_dataclass(thing) and len(dataclasses.fields(thing)) > 12
    return ("", None) if many or re.search(r"\b_\w+=", signature) else (signature.replace("<factory>", "..."), returns)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon, at 500
    return {"parallel_read_safe": True}
