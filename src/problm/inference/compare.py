"""Comparison of two fits of the same data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .estimate import Estimate


@dataclass(frozen=True)
class Comparison:
    """Which of two fits the data prefer. The tests are valid if one model is a special case of the other."""

    f: float
    """F statistic: decrease of chi2 per additional parameter, divided by the reduced chi2 of the larger model; NaN if
    both have the same number of parameters."""
    f_probability: float
    """p-value of the F test; if it is small (below 0.05, for example), the larger model is preferred."""
    likelihood_ratio: float
    """Twice the difference of the log likelihoods."""
    likelihood_probability: float
    """p-value of the likelihood ratio by the chi^2 distribution, valid for many points."""
    weights: tuple[float, float]
    """Akaike weights of the two models, in the order of comparison; the models need not be nested."""
    delta_bic: float
    """BIC of the second minus that of the first: positive prefers the first."""

    def __str__(self) -> str:
        return (
            f"F test p = {self.f_probability:.3g}, likelihood ratio p = {self.likelihood_probability:.3g} "
            f"(for nested models); Akaike weights {self.weights[0]:.3g} and {self.weights[1]:.3g}; "
            f"delta BIC {self.delta_bic:+.4g}"
        )


def compare(first: Estimate, second: Estimate) -> Comparison:
    """Compute F test, likelihood ratio test, Akaike weights and the difference of BIC."""
    if first.n != second.n or first.absolute_sigma != second.absolute_sigma or first.loss != second.loss:
        raise ValueError("compare: both fits must be of the same data, with the same sigma and loss")
    small, large = sorted((first, second), key=lambda fit: fit.n_free)
    extra = large.n_free - small.n_free
    f = f_probability = ratio = ratio_probability = float("nan")
    if extra:
        from scipy import special

        fall = small.chi2 - large.chi2
        f = fall / extra / large.reduced_chi2
        f_probability = float(special.fdtrc(extra, large.degrees_of_freedom, max(f, 0.0)))
        ratio = small.deviance - large.deviance
        ratio_probability = float(special.chdtrc(extra, max(ratio, 0.0)))
    worse = np.array([first.aic, second.aic])
    weights = np.exp(-0.5 * (worse - worse.min()))
    weights /= weights.sum()
    return Comparison(
        f, f_probability, ratio, ratio_probability, (float(weights[0]), float(weights[1])), second.bic - first.bic
    )
