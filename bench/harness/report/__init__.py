"""One self-contained page of all results: it opens from disk, without a network, on a phone, in the dark.

The page is a template with a style sheet, a script and the data, all inline. The data are JSON in a script element that
browsers do not execute; the script builds everything with text nodes, so that no string of ours is ever read as markup.
A content security policy forbids the page to load anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from problm.support.files import write_atomically

_HERE = Path(__file__).parent
TITLE = "ProBLM: the paper, reproduced"


def embedded(value: Any) -> str:
    """JSON for a script element: no '<' can end it, no line separator can break it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def collected(folder: Path) -> list[dict[str, Any]]:
    """The summaries of all experiments whose results are in the folder, in the order of the paper, each with when and
    at which commit it was measured: running one again replaces its part of the report only."""
    from ...paper import NAMES

    found = []
    for stem in (s for name in NAMES for s in (f"{name}-real", name)):
        path = folder / f"{stem}.json"
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            about = {key: content["about"].get(key) for key in ("when", "commit", "seconds", "settings")}
            found.append({**content["data"], "stem": stem, "about": about})
    return found


def page(summaries: Sequence[Mapping[str, Any]], about: dict[str, Any]) -> str:
    """The report as a string; ``summaries`` are summaries as dicts."""
    parts = {
        "TITLE": html.escape(TITLE),
        "STYLE": (_HERE / "report.css").read_text(encoding="utf-8"),
        "SCRIPT": (_HERE / "report.js").read_text(encoding="utf-8"),
        "DATA": embedded({"summaries": list(summaries), "about": about}),
    }
    text = (_HERE / "template.html").read_text(encoding="utf-8")
    # In one pass, so that the name of a placeholder in the data is not replaced.
    pieces = text.split("@@")
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def write_report(summaries: Sequence[Mapping[str, Any]], about: dict[str, Any], path: Path) -> Path:
    """Write the page atomically; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(summaries, about))
    return path
