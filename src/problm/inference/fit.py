"""`problm.Fit`: the result of `problm.fit`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import bootstrap, compare, profile, saved, shown
from .derived import derived
from .estimate import Estimate, Parameter

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Estimate):
    """Result of `problm.fit`: parameters, intervals, bands, tests and plots.

    Examples
    --------
    >>> import numpy as np, problm
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 4, 400)
    >>> y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.05 * rng.standard_normal(x.size)
    >>> fit = problm.fit("y ~ a*exp(-b*x) + c", x, y)
    >>> print(fit.params["b"])
    b = 1.288 ± 0.012
    >>> [round(v, 2) for v in fit.params["b"].interval(0.95)]
    [1.26, 1.31]
    >>> band = fit.confidence_band([1.0])
    >>> bool(band.lower[0] < 2.5 * np.exp(-1.3) + 0.5 < band.upper[0])
    True
    """

    def compare(self, other: Fit) -> compare.Comparison:
        """Compare with another fit of the same data: F test, likelihood ratio, Akaike weights."""
        return compare.compare(self, other)

    def profile(self, name: str) -> profile.Profile:
        """Profile likelihood of a parameter (the others are refitted), for intervals of strongly non-linear models."""
        return profile.Profile(self, name)

    def contour(self, first: str, second: str, level: float = 0.95, points: int = 32) -> Array:
        """Boundary (points, 2) of the joint confidence region of two parameters, by profile likelihood."""
        return profile.contour(self, first, second, level, points)

    def bootstrap(
        self, n: int = 1000, kind: str = "rows", *, groups: Any = None, rng: Any = 0, workers: int | None = None
    ) -> bootstrap.Bootstrap:
        """Repeat the fit on resampled data; see `problm.inference.bootstrap.bootstrap`."""
        return bootstrap.bootstrap(self, n, kind, groups=groups, rng=rng, workers=workers)

    def derived(self, expression: str) -> Parameter:
        """A quantity calculated from the parameters, with the error that follows from their covariance.

        Examples
        --------
        >>> import numpy as np, problm
        >>> rng = np.random.default_rng(0)
        >>> x = np.linspace(0, 4, 400)
        >>> fit = problm.fit("y ~ a*exp(-b*x)", x, 2.5 * np.exp(-1.3 * x) + 0.05 * rng.standard_normal(x.size))
        >>> print(fit.derived("log(2)/b"))
        log(2)/b = 0.5325 ± 0.0034
        """
        return derived(self, expression)

    def components(self, x: Any) -> dict[str, Array]:
        """Values at ``x`` of each term of a sum of models, by number and kind; they add up to `predict`."""
        return shown.components(self, x)

    def report(self) -> str:
        """Return a page of text: outcome, statistics, parameters, correlations, warnings."""
        return shown.text(self)

    def to_latex(self) -> str:
        """Return the parameters as a LaTeX table (``tabular``)."""
        return shown.latex(self)

    def plot(self, level: float = 0.95) -> Any:
        """Plot data, curve and confidence band above the residuals; return a Matplotlib figure (needs the extra
        ``plot``)."""
        return shown.picture(self, level)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the data as numbers, text, lists and dicts that JSON can hold."""
        return saved.to_dict(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit as JSON, without its data; see `load`."""
        saved.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any = None, **data: Any) -> Fit:
        """Read a fit that `save` wrote. A model that is a Python function must be given again; so must x, y and sigma
        if they are needed."""
        return saved.load(cls, path, model, **data)

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        values = ", ".join(str(p) for p in self.params.values())
        return f"<problm.Fit {self.result.status.name.lower()}: {values}; n={self.n:,}>"

    def _repr_html_(self) -> str:
        return shown.html(self)
