"""Non-linear regression as a scikit-learn estimator, for pipelines, grid searches and cross-validation.

>>> from problm.sklearn import NonlinearRegressor

Needs scikit-learn, which ProBLM does not install.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("problm.sklearn needs scikit-learn 1.6 or newer: pip install scikit-learn") from error

from .api.arguments import limits, numbers
from .api.curve_fit import fit as fit_curve
from .support.array_kinds import refuse_units
from .support.differences import derivatives, relative
from .support.suggest import suggest
from .warnings import ConvergenceWarning

if TYPE_CHECKING:
    from .solver.result import Result

Array = NDArray[np.float64]


class NonlinearRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Least-squares fit of a non-linear model.

    Parameters
    ----------
    model : str, model or callable, optional
        A formula such as ``"a*exp(-b*dose) + c"`` in the columns of X. Columns go by their names if X is a data frame,
        else they are ``x0, x1, ...``, or ``x`` if there is one. Or a `problm.formula` or a model of `problm.models`,
        whose variables are the columns of X in order. Or a function ``f(x, *params)`` with x of shape (n_samples,) for
        one column and (n_columns, n_samples) for several, as for `problm.curve_fit`. The default is a plane,
        ``intercept + sum of slopes times columns``.
    p0 : (d,) array_like, optional
        Start values; by default guessed from the data for formulas, and ones for functions.
    bounds : (lower, upper)
    loss, f_scale
        Robust loss and its scale, as in `problm.least_squares`.
    method : {'problm', 'lm'}
    max_iter : int
    random_state : int or Generator
        Seed of the random order of the rows.

    Attributes
    ----------
    params_ : (d,) fitted parameters.
    param_names_ : names of the parameters; empty if they have none.
    covariance_ : (d, d) covariance of the parameters.
    result_ : the `problm.Result`, without the data.
    n_iter_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 3, (20_000, 1))
    >>> y = 2 * np.exp(-1.5 * X[:, 0]) + 0.05 * rng.standard_normal(len(X))
    >>> regressor = NonlinearRegressor("a*exp(-b*x)").fit(X, y)
    >>> dict(zip(regressor.param_names_, regressor.params_.round(2).tolist()))
    {'a': 2.0, 'b': 1.5}
    >>> bool(regressor.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        model: Any = None,
        p0: ArrayLike | None = None,
        *,
        bounds: Any = (-np.inf, np.inf),
        loss: Any = "linear",
        f_scale: float = 1.0,
        method: str = "problm",
        max_iter: int = 1000,
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.p0 = p0
        self.bounds = bounds
        self.loss = loss
        self.f_scale = f_scale
        self.method = method
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NonlinearRegressor:
        """Fit the model to rows X (n_samples, n_columns) and targets y (n_samples,)."""
        for name, given in (("X", X), ("y", y)):
            refuse_units(name, given)
            if np.asarray(given).dtype.kind in "mM":
                numbers(name, given)  # which says what to do with times
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        sigma = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            used = weights > 0
            X, y, weights = X[used], y[used], weights[used]
            sigma = 1.0 / np.sqrt(weights)
        y = y.astype(np.float64)
        if self.model is None and len(X) <= X.shape[1]:
            result = self._flat_fit(X, y, sigma)
        else:
            function, start = self._function(X, y)
            result = self._solve(function, self._columns(X), y, start, sigma, self.bounds)
        if not result.success:
            warnings.warn(f"{result.message} The parameters are the best found.", ConvergenceWarning, stacklevel=2)
        self.result_: Result = dataclasses.replace(result, problem=None)
        self.params_ = np.asarray(result.x)
        self.param_names_ = result.names
        self.covariance_ = result.covariance
        self.n_iter_ = max(result.nit, 1)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Values of the fitted model at rows X, shape (n_samples,).

        With ``return_std`` also their standard errors, (n_samples,), from the covariance of the parameters. They do not
        include the noise of a new measurement.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        function, _ = self._function(X, None)
        columns = self._columns(X)

        def at(params: Array) -> Array:
            return np.broadcast_to(function(columns, *params), (len(X),)).astype(np.float64)

        values = at(self.params_)
        if not return_std:
            return values
        by = derivatives(at, self.params_, relative(self.params_))
        variances = np.einsum("ik,ij,jk->k", by, self.covariance_, by)
        return values, np.sqrt(np.maximum(variances, 0.0))

    def _solve(self, function: Any, x: Array, y: Array, start: Any, sigma: Array | None, bounds: Any) -> Result:
        return fit_curve(
            function, x, y, start, sigma,
            bounds=bounds, loss=self.loss, f_scale=self.f_scale, method=self.method, max_iter=self.max_iter,
            rng=self.random_state,
        )  # fmt: skip

    def _flat_fit(self, X: Array, y: Array, sigma: Array | None) -> Result:
        """Fit a plane to fewer rows than it has parameters: the solution of least norm.

        It lies in the space that the rows span, and the rows determine its coordinates there.
        """
        if limits(self.bounds, np.zeros(X.shape[1] + 1), "the start") is not None:
            raise ValueError(f"bounds: {len(X)} rows do not determine {X.shape[1] + 1} parameters; give more rows")
        whole = np.column_stack([np.ones(len(X)), X])
        _, values, basis = np.linalg.svd(whole, full_matrices=False)
        basis = basis[values > values[0] * max(whole.shape) * np.finfo(float).eps]
        x = basis @ whole.T
        inner = self._solve(lambda x, *z: np.asarray(z) @ x, x, y, np.zeros(len(basis)), sigma, (-np.inf, np.inf))
        return dataclasses.replace(
            inner,
            x=inner.x @ basis,
            grad=inner.grad @ basis,
            hessian=basis.T @ inner.hessian @ basis,
            covariance_root=None,
            active_mask=np.zeros(whole.shape[1], dtype=np.int64),
            singular=True,
        )

    def _function(self, X: Array, y: Array | None) -> tuple[Callable[..., Any], Any]:
        """The model as `problm.curve_fit` takes it, and the start."""
        model = self.model
        if model is None:
            start = np.zeros(X.shape[1] + 1)
            if y is not None:
                start[0] = y.mean()
            return _plane, start if self.p0 is None else self.p0
        if isinstance(model, str):
            from .models.formula import formula

            names = self._names()
            used = [n for n in names if n in _words(model)]
            _refuse_misspelt(model, names, used)
            if not used:
                raise ValueError(
                    f"model={model!r} uses no column of X; they are {', '.join(names[:12])}"
                    f"{suggest(model, names) if len(names) == 1 else ''}"
                )
            compiled = formula(model, variables=used)
            self._used = [names.index(n) for n in used]
            return compiled, self.p0
        if not callable(model):
            raise TypeError(f"model must be a formula, a model or a function, got {type(model).__name__}")
        return model, self.p0

    def _columns(self, X: Array) -> Array:
        """X as `problm.curve_fit` takes it: (n_samples,) or (columns, n_samples)."""
        if isinstance(self.model, str):
            X = X[:, self._used]
        return X[:, 0] if X.shape[1] == 1 and self.model is not None else X.T

    def _names(self) -> list[str]:
        named = getattr(self, "feature_names_in_", None)
        if named is not None:
            return [str(n) for n in named]
        count = self.n_features_in_
        return ["x"] if count == 1 else [f"x{i}" for i in range(count)]


def _plane(x: Array, intercept: float, *slopes: float) -> Any:
    return intercept + np.asarray(slopes) @ x


def _refuse_misspelt(model: str, names: list[str], used: list[str]) -> None:
    """Raise if a name resembles a column that the formula does not use: it would become a parameter."""
    unused = [n for n in names if n not in used and len(n) > 2]
    for word in sorted(_words(model) - set(names)):
        near = get_close_matches(word, unused, 1, 0.7) if len(word) > 2 else []
        if near:
            raise ValueError(
                f"model={model!r}: {word!r} is no column of X; did you mean {near[0]!r}? If it is a parameter, pass "
                f"problm.formula({model!r}, variables={(*used,)!r})"
            )


def _words(text: str) -> set[str]:
    import re

    return set(re.findall(r"[^\W\d]\w*", text))
