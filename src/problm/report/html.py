"""A result as HTML for notebooks; every string is escaped."""

from __future__ import annotations

from html import escape

from .numbers import with_error
from .shown import ShownResult
from .text import lists_parameters


def table(header: list[str], rows: list[list[str]]) -> str:
    """An HTML table of escaped cells."""
    head = "".join(f"<th>{escape(h)}</th>" for h in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def result_html(result: ShownResult) -> str:
    """Outcome and parameters as tables."""
    facts = [
        ["residual blocks", f"{result.n:,}"],
        ["cost", f"{result.cost:.10g}" + ("" if result.complete else " (estimated)")],
        ["gradient", f"{result.optimality:.3g}" + (" over all residuals" if result.complete else " over the batch")],
        ["work", f"{result.residual_passes:.3g} residual, {result.jacobian_passes:.3g} Jacobian passes"],
        ["iterations", f"{result.nit} in {result.seconds:.3g} s"],
    ]
    parts = [f"<p><b>ProBLM</b>: {escape(result.message)}</p>", table(["", ""], facts)]
    if lists_parameters(result):
        error = result.standard_errors
        names = result.names or tuple(f"x{i}" for i in range(len(error)))
        rows = [[names[i], with_error(result.x[i], error[i])] for i in range(len(error))]
        parts.append(table(["parameter", "value ± standard error"], rows))
    return "".join(parts)
