"""One self-contained HTML page: no network, light and dark, readable on a phone.

Parts are HTML; everything from outside passes through the functions here, which escape it. A content
security policy forbids any address but ``data:`` and any script but that of charts (`problm.report.interactive`), which
is allowed by its digest: even a mistake cannot load or run anything.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from .html import table

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that HTML forbids; names of files and columns may hold them."""
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --faint: #59636e; --line: #d1d9e0; --back: #fff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --back: #0d1117; --card: #151b23; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; border-radius: 4px; background: #fff; }
figcaption, .note { color: var(--faint); font-size: .9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; }
.tiles b { display: block; font-size: 1.9rem; line-height: 1.3; } .tiles span { color: var(--faint); font-size: .9rem; }
pre { background: var(--card); padding: .7rem; overflow-x: auto; border-radius: 4px; }
@media (max-width: 30rem) { table, pre { font-size: .8rem; } th, td { padding: .2rem .3rem; } }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_CHART = '<div class="chart">'


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page from a title (escaped) and parts (HTML made by the functions of this module).

    Examples
    --------
    >>> text = page("A < B", [paragraph("x & y")])
    >>> "<title>A &lt; B</title>" in text, "<p>x &amp; y</p>" in text
    (True, True)
    """
    parts = list(parts)
    policy, style, last = _POLICY, _STYLE, ""
    if any(part.startswith(_CHART) for part in parts):
        from . import interactive

        policy = f"{_POLICY}; script-src '{interactive.digest()}'"
        style, last = _STYLE + interactive.STYLE, f"<script>{interactive.script()}</script>"
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><h1>{escape(title)}</h1>"
    )
    return _CONTROLS.sub("\ufffd", head + "\n".join(parts)) + f"{last}</body></html>\n"


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, note: bool = False) -> str:
    return f'<p class="note">{escape(text)}</p>' if note else f"<p>{escape(text)}</p>"


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """Few large figures, each with what it is."""
    each = (f"<div><b>{escape(figure)}</b><span>{escape(text)}</span></div>" for figure, text in facts)
    return f'<div class="tiles">{"".join(each)}</div>'


def listing(text: str) -> str:
    """Preformatted text in a box that scrolls."""
    return f"<pre>{escape(text)}</pre>"


def wide_table(header: list[str], rows: list[list[str]]) -> str:
    """A table of escaped cells that scrolls by itself on a narrow screen."""
    return f'<div class="scroll">{table(header, rows)}</div>'


def picture(content: bytes, caption: str, kind: str = "png") -> str:
    """An image inside the page; the caption is also its alternative text."""
    mime = {"png": "image/png", "svg": "image/svg+xml", "jpg": "image/jpeg"}[kind]
    data = base64.b64encode(content).decode()
    return (
        f'<figure><img alt="{escape(caption)}" src="data:{mime};base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def figure_png(figure: Any, dpi: int = 110) -> bytes:
    """A Matplotlib figure as PNG; the same bits for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer, canvas, resolution = io.BytesIO(), figure.canvas, figure.dpi
    figure.dpi = dpi
    try:  # as `savefig`, which draws figures with a layout twice
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    finally:
        figure.dpi = resolution
        figure.set_canvas(canvas)
    return buffer.getvalue()
