"""Warnings of ProBLM's own."""


class ProblmWarning(UserWarning):
    """Base of all warnings that ProBLM gives."""


class ConvergenceWarning(ProblmWarning):
    """A fit did not converge; the values returned are the best found."""


class CovarianceWarning(ProblmWarning):
    """The covariance of the parameters could not be estimated."""
