"""The scikit-learn estimator: scikit-learn's own checks, formulas on data frames, weights, pipelines."""

from __future__ import annotations

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import problm  # noqa: E402
from problm.sklearn import NonlinearRegressor  # noqa: E402


@pytest.mark.filterwarnings("default")  # the checks provoke scikit-learn's own warnings
@parametrize_with_checks([NonlinearRegressor(), NonlinearRegressor(loss="soft_l1", method="lm")])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    X = rng.uniform(0, 3, (4000, 2))
    y = 2 * np.exp(-1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * rng.standard_normal(len(X))
    return X, y


def test_formula_function_and_model_agree(data):
    X, y = data
    by_formula = NonlinearRegressor("a*exp(-b*x0) + c*x1").fit(X, y)
    assert by_formula.param_names_ == ("a", "b", "c")
    np.testing.assert_allclose(by_formula.params_, [2, 1.5, 0.5], atol=0.02)
    by_model = NonlinearRegressor(problm.formula("a*exp(-b*x0) + c*x1", variables=("x0", "x1"))).fit(X, y)
    by_function = NonlinearRegressor(lambda x, a, b, c: a * np.exp(-b * x[0]) + c * x[1], p0=[1, 1, 1]).fit(X, y)
    np.testing.assert_allclose(by_model.params_, by_formula.params_, rtol=1e-6)
    np.testing.assert_allclose(by_function.params_, by_formula.params_, rtol=1e-5)
    np.testing.assert_allclose(by_function.predict(X[:5]), by_formula.predict(X[:5]), rtol=1e-5)
    errors = np.sqrt(np.diag(by_formula.covariance_))
    assert (np.abs(by_formula.params_ - [2, 1.5, 0.5]) < 5 * errors).all()


def test_names_of_a_data_frame(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame({"time": X[:, 0], "unused": 1.0, "dose": X[:, 1]})
    regressor = NonlinearRegressor("a*exp(-b*time) + c*dose").fit(frame, y)
    np.testing.assert_allclose(regressor.params_, [2, 1.5, 0.5], atol=0.02)
    assert regressor.predict(frame).shape == (len(frame),)


def test_weights_count(data):
    X, y = data
    spoilt = y.copy()
    spoilt[::5] = 100.0
    weights = np.ones(len(y))
    weights[::5] = 0.0
    regressor = NonlinearRegressor("a*exp(-b*x0) + c*x1").fit(X, spoilt, sample_weight=weights)
    kept = NonlinearRegressor("a*exp(-b*x0) + c*x1").fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(regressor.params_, kept.params_, rtol=1e-6)
    robust = NonlinearRegressor("a*exp(-b*x0) + c*x1", p0=[1, 1, 0], loss="tukey", f_scale=0.3)
    np.testing.assert_allclose(robust.fit(X, spoilt).params_, [2, 1.5, 0.5], atol=0.03)


def test_in_pipelines_and_searches(data):
    X, y = data
    pipeline = make_pipeline(FunctionTransformer(), NonlinearRegressor("a*exp(-b*x0) + c*x1"))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.95
    search = GridSearchCV(NonlinearRegressor("a*exp(-b*x0)"), {"model": ["a*exp(-b*x0)", "a*exp(-b*x0) + c*x1"]}, cv=3)
    assert search.fit(X, y).best_params_ == {"model": "a*exp(-b*x0) + c*x1"}
    assert clone(search.best_estimator_).model == "a*exp(-b*x0) + c*x1"


def test_errors_and_warnings(data):
    X, y = data
    with pytest.raises(ValueError, match="uses no column of X; they are x0, x1"):
        NonlinearRegressor("a*exp(-b*time)").fit(X, y)
    with pytest.raises(TypeError, match="formula, a model or a function"):
        NonlinearRegressor(3).fit(X, y)
    with pytest.warns(problm.ConvergenceWarning, match="max_iter"):
        NonlinearRegressor("a*exp(-b*x0) + c*x1", max_iter=1).fit(X, y)


def test_predictions_have_standard_errors():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (400, 1))
    y = 2 * np.exp(-1.5 * X[:, 0]) + 0.05 * rng.standard_normal(400)
    for model in ("a*exp(-b*x)", lambda x, a, b: a * np.exp(-b * x)):
        regressor = NonlinearRegressor(model, p0=[1.0, 1.0]).fit(X, y)
        values, errors = regressor.predict(X[:5], return_std=True)
        np.testing.assert_array_equal(values, regressor.predict(X[:5]))
        a, b = regressor.params_
        by = np.stack([np.exp(-b * X[:5, 0]), -a * X[:5, 0] * np.exp(-b * X[:5, 0])], axis=1)
        np.testing.assert_allclose(errors, np.sqrt(np.diag(by @ regressor.covariance_ @ by.T)), rtol=1e-6)


def test_a_misspelt_column_is_no_parameter():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"dose": np.linspace(0, 1, 50), "time": np.linspace(1, 2, 50)})
    with pytest.raises(ValueError, match="'tiem' is no column of X; did you mean 'time'"):
        NonlinearRegressor("a*exp(-b*dose) + c*tiem").fit(frame, np.ones(50))
