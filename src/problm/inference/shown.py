"""A fit as text, HTML, LaTeX and plot."""

from __future__ import annotations

import inspect
import math
from html import escape
from typing import Any

import numpy as np

from ..models.ready_made import CURVES
from ..report.html import table
from ..report.numbers import with_error
from ..report.text import correlation_lines, parameter_lines, strong_correlations
from .estimate import Estimate


def formula_of(fit: Estimate) -> str:
    """The model as one line of text: a sum of ready-made models by their names."""
    terms = getattr(fit.model, "terms", ())
    expression = getattr(fit.model, "expression", None) or getattr(fit.model, "__name__", "function")
    if terms and all(_unchanged(term) for term in terms):
        expression = " + ".join(term.kind for term in terms)
    return f"{getattr(fit.model, 'response', None) or 'y'} ~ {expression}"


def _unchanged(term: Any) -> bool:
    """Whether a term is a ready-made model as it is, not a multiple of one."""
    maker = CURVES.get(term.kind)
    return maker is not None and not inspect.signature(maker).parameters and maker().body is term.body


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
    parts = [f"<p><b>{escape(formula_of(fit))}</b><br>{escape(fit.result.message)}</p>"]
    parts += [f"<p><b>Warning:</b> {escape(w)}</p>" for w in fit.warnings]
    parts.append(table(*parameter_table(fit)))
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


def parameter_table(fit: Estimate) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of the parameters."""
    rows = []
    for p, note in zip(fit.params.values(), _notes(fit), strict=True):
        written = repr(p.value) if p.fixed else with_error(p.value, p.error)
        rows.append([p.name, written, "" if p.fixed or p.at_bound else _interval(p), note])
    return ["parameter", "value ± standard error", "95 % interval", ""], rows


def _interval(parameter: Any) -> str:
    """The 95 % interval, with the digits of the standard error."""
    low, high = parameter.interval(0.95)
    if not 1e-6 < parameter.error < 100.0:
        return f"{low:.6g} to {high:.6g}"
    decimals = max(1 - math.floor(math.log10(parameter.error)), 0)
    return f"{low:.{decimals}f} to {high:.{decimals}f}"


def _axes(fit: Estimate) -> tuple[str, ...]:
    """Names of the axes, variables before the response."""
    variables = tuple(getattr(fit.model, "variables", ())) or ("x",)
    return fit.labels or (*variables, str(getattr(fit.model, "response", None) or "y"))


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
    """Plot data, curve and confidence band above the residuals; data over a plane as three images."""
    from ..report.plots import plot_fit, plot_plane, plot_prediction

    x = np.asarray(fit.in_memory(fit.x), dtype=np.float64)
    *variables, label = _axes(fit)
    if x.ndim == 2 and len(x) == 2 and min(len(np.unique(row)) for row in x) > 8:
        return plot_plane(x, fit.observed, fit.predict(fit.x).ravel(), (variables[0], variables[1], label))
    if x.ndim != 1:
        return plot_prediction(fit.observed, fit.predict(fit.x).ravel(), label=label)
    return plot_fit(x, fit.observed, fit.residuals, **_curve(fit, level))


def picture_png(fit: Estimate, level: float) -> bytes:
    """`picture` as PNG; without Matplotlib, which takes longer to load than most fits, where the data are a curve."""
    from ..report.drawn import MOST_POINTS, fit_png
    from ..report.page import figure_png

    x = np.asarray(fit.in_memory(fit.x), dtype=np.float64)
    if x.ndim != 1 or len(x) > MOST_POINTS:
        return figure_png(picture(fit, level))
    return fit_png(x, fit.observed, fit.residuals, **_curve(fit, level))


def _curve(fit: Estimate, level: float) -> dict[str, Any]:
    """What a plot of data over one variable shows besides the data."""
    variable, *_, label = _axes(fit)
    return {
        "band": lambda t: fit.confidence_band(t, level), "sigma": fit.sigma, "terms": terms_of(fit),
        "labels": (variable, label), "level": level,
    }  # fmt: skip


def _terms(fit: Estimate) -> list[tuple[Any, Any]]:
    """The terms of a sum, and the parameters of each."""
    place, found = 0, []
    for term in getattr(fit.model, "terms", ()) or (fit.model,):
        count = len(term.parameters)
        found.append((term, fit.values[place : place + count]))
        place += count
    return found


def components(fit: Estimate, x: Any) -> dict[str, Any]:
    """Values of each term at x."""
    if not hasattr(fit.model, "terms"):
        raise TypeError("components: the model is a Python function; write it as a sum of models or formulas")
    return {
        f"{k}: {term.kind or term.expression}": np.asarray(term(x, *values), dtype=np.float64)
        for k, (term, values) in enumerate(_terms(fit), 1)
    }


def terms_of(fit: Estimate) -> list[tuple[str, Any]]:
    """Names and curves of the terms of a sum; peaks stand on the background, if there is one."""
    curves = _terms(fit) if len(getattr(fit.model, "terms", ())) > 1 else []
    ground = [(t, v) for t, v in curves if t.kind.partition("(")[0] in _GROUNDS]

    def shown(term: Any, values: Any) -> Any:
        stands = [] if term.kind.partition("(")[0] in _GROUNDS else ground

        def curve(x: Any) -> Any:
            total = np.asarray(term(x, *values), dtype=np.float64) + np.zeros(np.shape(x))
            for other, theirs in stands:
                total = total + np.asarray(other(x, *theirs))
            return total

        return curve

    return [(f"{k}: {t.kind or 'term'}", shown(t, v)) for k, (t, v) in enumerate(curves, 1)]


_GROUNDS = ("constant_background", "line", "quadratic", "polynomial")
"""Models that are a background rather than a peak."""


def interactive(fit: Estimate, number: int = 0) -> str:
    """A chart with zoom, hover and toggles as a part of a page; empty if x is not one variable."""
    from ..report.interactive import chart
    from ..report.plots import curve_grid, in_deviations, log_axes

    if fit.x is None or np.ndim(fit.x) != 1 or hasattr(fit.x, "columns"):
        return ""
    x, y = np.asarray(fit.x, dtype=np.float64), fit.observed
    log = log_axes(x, y, fit.residuals)
    grid = curve_grid(x, log[0], 500)
    variable, *_, label = _axes(fit)
    terms = [(name, curve(grid)) for name, curve in terms_of(fit)]
    residuals, told = in_deviations(fit.residuals, fit.sigma)
    return chart(x, y, residuals, grid, fit.confidence_band(grid), terms, labels=(variable, label),
                 residual_label=told, log=log, number=number)  # fmt: skip
