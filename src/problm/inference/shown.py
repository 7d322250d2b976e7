"""A fit as text, HTML, LaTeX and plot."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from ..report.html import table
from ..report.numbers import with_error
from ..report.text import correlation_lines, parameter_lines, strong_correlations
from .estimate import Estimate


def formula_of(fit: Estimate) -> str:
    """The model as one line of text."""
    expression = getattr(fit.model, "expression", None) or getattr(fit.model, "__name__", "function")
    return f"{getattr(fit.model, 'response', None) or 'y'} ~ {expression}"


def _notes(fit: Estimate) -> list[str]:
    return [
        f"= {p.tie}" if p.tie else "fixed" if p.fixed else "at its bound" if p.at_bound else ""
        for p in fit.params.values()
    ]


def _facts(fit: Estimate) -> list[tuple[str, str]]:
    facts = [
        ("points", f"{fit.n:,}"),
        ("free parameters", f"{fit.n_free}"),
        ("chi2", f"{fit.chi2:.6g}"),
        ("reduced chi2", f"{fit.reduced_chi2:.6g}"),
    ]
    if fit.y is not None and np.ndim(fit.sigma) < 2:
        facts.append(("r squared", f"{fit.r2:.6g}"))
    return [*facts, ("AIC", f"{fit.aic:.6g}"), ("BIC", f"{fit.bic:.6g}")]


def text(fit: Estimate) -> str:
    """Model, outcome, statistics, parameters, correlations, warnings."""
    lines = [formula_of(fit), fit.result.message]
    lines += [f"  {name:<17} {value}" for name, value in _facts(fit)]
    lines += ["", *parameter_lines(fit.names, fit.values, fit.errors, _notes(fit))]
    lines += correlation_lines(fit.names, fit.covariance)
    lines += [f"warning: {warning}" for warning in fit.warnings]
    return "\n".join(lines)


def html(fit: Estimate) -> str:
    """The same for notebooks, with a plot if Matplotlib is installed."""
    rows = []
    for p, note in zip(fit.params.values(), _notes(fit), strict=True):
        low, high = p.interval(0.95)
        written = repr(p.value) if p.fixed else with_error(p.value, p.error)
        rows.append([p.name, written, "" if p.fixed else f"{low:.6g} to {high:.6g}", note])
    parts = [f"<p><b>{escape(formula_of(fit))}</b><br>{escape(fit.result.message)}</p>"]
    parts += [f"<p><b>Warning:</b> {escape(w)}</p>" for w in fit.warnings]
    parts.append(table(["parameter", "value ± standard error", "95 % interval", ""], rows))
    parts.append(table(["", ""], [list(f) for f in _facts(fit)]))
    strong = strong_correlations(fit.covariance)
    if strong:
        pairs = [[f"{fit.names[j]}, {fit.names[i]}", f"{c:+.3f}"] for c, i, j in strong]
        parts.append(table(["correlations above 0.5", ""], pairs))
    if fit.x is not None:
        try:
            from ..report.page import figure_png
            from ..report.page import picture as framed

            parts.append(framed(figure_png(picture(fit, 0.95)), "Data, fit and residuals"))
        except (ImportError, ValueError):  # no Matplotlib, or data that cannot be plotted
            pass
    return "".join(parts)


def latex(fit: Estimate) -> str:
    """A ``tabular`` of names and values, with the error in parentheses in units of the last digits."""
    lines = [r"\begin{tabular}{ll}", r"\hline", r"parameter & value \\", r"\hline"]
    for p in fit.params.values():
        if p.fixed:
            number = f"{p.value!r}"
        else:
            number = with_error(p.value, p.error, "()")
        mantissa, mark, power = number.partition("e")
        scientific = rf"{mantissa} \times 10^{{{int(power)}}}" if mark and power.lstrip("+-").isdigit() else number
        note = r" (fixed)" if p.fixed else ""
        lines.append(rf"{_escaped(p.name)} & ${scientific}${note} \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def _escaped(name: str) -> str:
    return "".join(f"\\{c}" if c in "_&%$#{}" else c for c in name)


def picture(fit: Estimate, level: float) -> Any:
    """Plot data, curve and confidence band above the residuals."""
    from ..report.plots import plot_fit, plot_prediction

    x = np.asarray(fit.in_memory(fit.x), dtype=np.float64)
    label = str(getattr(fit.model, "response", None) or "y")
    if x.ndim != 1:
        return plot_prediction(fit.observed, fit.predict(fit.x).ravel(), label=label)
    variables = tuple(getattr(fit.model, "variables", ())) or ("x",)
    return plot_fit(
        x, fit.observed, fit.residuals, lambda t: fit.confidence_band(t, level), sigma=fit.sigma,
        labels=(variables[0], label), level=level,
    )  # fmt: skip
