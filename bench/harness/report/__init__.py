"""One self-contained page of all results: it opens from disk, without a network, on a phone, in the dark.

The page is a template with a style sheet, a script and the data, all inline. The data are JSON in a script element that
browsers do not execute; the script builds everything with text nodes, so that no string of ours is ever read as markup.
A content security policy forbids the page to load anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from problm.support.files import write_atomically

from ..summary import Summary

_HERE = Path(__file__).parent
TITLE = "ProBLM: the paper, reproduced"


def embedded(value: Any) -> str:
    """JSON for a script element: no '<' can end it, no line separator can break it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def page(summaries: Sequence[Summary], about: dict[str, Any]) -> str:
    """The report as a string."""
    parts = {
        "TITLE": html.escape(TITLE),
        "STYLE": (_HERE / "report.css").read_text(encoding="utf-8"),
        "SCRIPT": (_HERE / "report.js").read_text(encoding="utf-8"),
        "DATA": embedded({"summaries": [s.as_dict() for s in summaries], "about": about}),
    }
    text = (_HERE / "template.html").read_text(encoding="utf-8")
    # In one pass, so that the name of a placeholder in the data is not replaced.
    pieces = text.split("@@")
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def write_report(summaries: Sequence[Summary], about: dict[str, Any], path: Path) -> Path:
    """Write the page atomically; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(summaries, about))
    return path
