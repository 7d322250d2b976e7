"""Sphinx extension: formulas as MathML, which browsers draw by themselves: pages need no network and no script."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError


def _markup(node: Any, block: bool) -> str:
    text = node.astext()
    # TeX takes the two digits of \frac12 as numerator and denominator, Docutils as the number twelve.
    braced = re.sub(r"(\\[td]?frac)\s*(\d)", r"\1{\2}", text)
    braced = re.sub(r"(\\[td]?frac\{[^{}]*\})\s*(\w)", r"\1{\2}", braced)
    try:
        return str(tex2mathml(braced, as_block=block))
    except MathError as error:
        raise ExtensionError(f"{node.source}, line {node.line}: the formula {text!r} cannot be set: {error}") from error


def visit_math(translator: Any, node: Any) -> None:
    translator.body.append(_markup(node, block=False))
    raise nodes.SkipNode


def visit_displaymath(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="math-wrapper">{_markup(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
