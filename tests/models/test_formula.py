"""Formulas, recorded functions and compiled ones: values, derivatives, errors and fits."""

import copy
import math
import pickle
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import problm
from problm.kernels.kernel import EVALUATOR, address_of, describe
from problm.losses import Loss
from problm.models.expression import TraceError, parameter, variable
from problm.models.formula import MAX_LENGTH, FormulaError, formula
from problm.models.model import Model, model
from problm.models.tracing import trace

X = np.linspace(0.3, 2.5, 50)
LINEAR = Loss.named("linear")

# A formula and what Python makes of the same text.
TEXTS = {
    "a*exp(-b*x) + c": lambda x, a, b, c: a * np.exp(-b * x) + c,
    "a - b - x": lambda x, a, b: a - b - x,
    "a / b / x": lambda x, a, b: a / b / x,
    "a - (b - x)": lambda x, a, b: a - (b - x),
    "-a**2 + x": lambda x, a: -(a**2) + x,
    "(-a)**2 + x": lambda x, a: (-a) ** 2 + x,
    "a**-x": lambda x, a: a**-x,
    "a**b**x": lambda x, a, b: a ** (b**x),
    "2^x*a": lambda x, a: 2**x * a,
    "a*x^2 % 0.7": lambda x, a: (a * x**2) % 0.7,
    "--a*+x": lambda x, a: a * x,
    "1.5e-1*a + .5*x - 2.*b": lambda x, a, b: 0.15 * a + 0.5 * x - 2 * b,
    "where(x < a, x, b*x**2)": lambda x, a, b: np.where(x < a, x, b * x**2),
    "where(x >= a, sin(x), cos(b*x))": lambda x, a, b: np.where(x >= a, np.sin(x), np.cos(b * x)),
    "max(a, x, b) + min(x, 1)": lambda x, a, b: np.maximum(np.maximum(a, x), b) + np.minimum(x, 1),
    "a*log10(x) + log2(x) + ln(x)": lambda x, a: a * np.log10(x) + np.log2(x) + np.log(x),
    "sqrt(a*x) * pi + e": lambda x, a: np.sqrt(a * x) * np.pi + np.e,
    "abs(x - a) + sign(x - b)": lambda x, a, b: np.abs(x - a) + np.sign(x - b),
    "atan2(a, x) + hypot(x, b)": lambda x, a, b: np.arctan2(a, x) + np.hypot(x, b),
    "a*erf(x/b) + erfc(x)": lambda x, a, b: a * _erf(x / b) + 1 - _erf(x),
    "a*voigt(x - b, 0.3, 0.2)": lambda x, a, b: a * _voigt(x - b, 0.3, 0.2),
    "a*tan(x/2) + cbrt(x) + expit(x)": lambda x, a: a * np.tan(x / 2) + np.cbrt(x) + 1 / (1 + np.exp(-x)),
    "(x == x) * a + (x != x)": lambda x, a: a + 0 * x,
    "clip(x, a, 2) + ceil(x) + floor(x)": lambda x, a: np.clip(x, a, 2) + np.ceil(x) + np.floor(x),
}


def _erf(x):
    from scipy.special import erf

    return erf(x)


def _voigt(*args):
    from scipy.special import voigt_profile

    return voigt_profile(*args)


def central(function, theta):
    columns = []
    for a in range(len(theta)):
        h = 1e-6 * np.eye(len(theta))[a]
        columns.append((function(theta + h) - function(theta - h)) / 2e-6)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("text", TEXTS)
def test_values_and_derivatives(text):
    reference = TEXTS[text]
    m = formula(text)
    theta = np.array([1.3, 0.6, 0.2])[: len(m.parameters)]
    np.testing.assert_allclose(m(X, *theta), reference(X, *theta), rtol=4e-15, atol=1e-15)
    np.testing.assert_allclose(m.jacobian(X, *theta), central(lambda t: reference(X, *t), theta), rtol=2e-7, atol=2e-8)


def test_names_in_order_of_appearance_and_the_response():
    m = formula("counts ~ scale*exp(-rate*x) + floor_")
    assert m.parameters == ("scale", "rate", "floor_")
    assert m.variables == ("x",)
    assert m.response == "counts"
    assert m.expression == "scale * exp(-rate * x) + floor_"
    assert repr(m) == "Model(counts ~ scale * exp(-rate * x) + floor_; parameters scale, rate, floor_; variable x)"


def test_which_names_are_data():
    assert formula("a*t + b").variables == ("t",)
    assert formula("t*x + b").variables == ("x",)
    assert formula("b*x10 + a*x2 + c").variables == ("x2", "x10")
    assert formula("a*u + v", variables="u").parameters == ("a", "v")
    assert formula("(x-a)**2 + (y-b)**2 - r", variables=("x", "y")).parameters == ("a", "b", "r")
    assert formula("y ~ a*x + y0").variables == ("x",)


def test_several_variables():
    m = formula("a*x1 + b*x2**2")
    x = np.stack([X, X + 1])
    expected = 2 * X + 3 * (X + 1) ** 2
    np.testing.assert_allclose(m(x, 2, 3), expected)
    np.testing.assert_allclose(m((X, X + 1), 2, 3), expected)
    with pytest.raises(ValueError, match="2 data column"):
        m(X[None, :], 2, 3)


def test_shapes_of_x():
    m = formula("a*x")
    assert m(2.0, 3.0) == 6.0
    assert isinstance(m(2.0, 3.0), float)
    assert m(X.reshape(5, 10), 1.0).shape == (5, 10)
    assert m([1, 2], 3).tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match=r"a \* x has 1 parameters \(a\), got 2"):
        m(X, 1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("a*x +", "ends too early", 5),
        ("", "ends too early", 0),
        ("a x", "write \\* for a product", 2),
        ("2(x+a)", "write \\* for a product", 1),
        ("sin x", "needs an argument", 0),
        ("foo(x)", "there is no function 'foo'", 0),
        ("a(x)", "there is no function 'a'", 0),
        ("a*(x", "expected '\\)'", 4),
        ("a*x)", "'\\)' is not expected", 3),
        ("a*$x", "'\\$' has no meaning", 2),
        ("exp(x, a)", "exp takes 1 argument, got 2", 0),
        ("atan2(x)*a", "atan2 takes 2 arguments, got 1", 0),
        ("a*/x", "has '/' where a number", 2),
        ("a*x ~ y", "'~' is not expected", 4),
        ("a*x < b < c", "'<' is not expected", 8),
    ],
)
def test_errors_point_at_the_place(text, message, column):
    with pytest.raises(FormulaError, match=message) as caught:
        formula(text)
    last = str(caught.value).splitlines()[-1]
    assert last == " " * (2 + column) + "^"


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')*x", "x.real + a", "a[0]*x", "lambda x: a", "a if x else b", "'a'*x", "x := a",
        "exec(x)", "eval(a*x)", "getattr(x, a)", "a*x; b", "a @ x", "open(a) + x", "{a}*x", "a*x # b", "x and a",
    ],
)  # fmt: skip
def test_anything_but_arithmetic_is_refused(text):
    with pytest.raises(FormulaError):
        formula(text)


def test_limits_on_size():
    with pytest.raises(FormulaError, match="characters"):
        formula("a*x" + " " * MAX_LENGTH)
    with pytest.raises(FormulaError, match="deep"):
        formula("(" * 200 + "a*x" + ")" * 200)
    with pytest.raises(FormulaError, match="deep"):
        formula("a" + "**x" * 200)
    with pytest.raises(FormulaError, match="more than"):
        formula("a*x" + "+x" * 1500)
    long = formula("a*x" + "+b*x" * 300)  # long, but within the limits
    np.testing.assert_allclose(long(X, 1.0, 0.01), 4.0 * X, rtol=1e-12)
    assert np.isinf(formula("a*x + 9**9**9**9")(1.0, 1.0))  # folded as floats: no huge integers


def test_other_refusals():
    with pytest.raises(FormulaError, match="no parameters"):
        formula("x + 1")
    with pytest.raises(FormulaError, match="name the data"):
        formula("a**b")
    with pytest.raises(FormulaError, match="'y' data or a parameter"):
        formula("a*x + b*y")
    with pytest.raises(FormulaError, match="does not occur"):
        formula("a*x", variables=("x", "z"))
    with pytest.raises(ValueError, match="different names"):
        formula("a*x", variables=("x", "x"))
    with pytest.raises(TypeError, match="must be text"):
        formula(3)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abx012.+-*/^()<>=, esinqrt~", max_size=40))
def test_any_text_is_a_model_or_a_formula_error(text):
    try:
        m = formula(text)
    except FormulaError:
        return
    assert isinstance(m, Model)
    assert set(m.parameters).isdisjoint(m.variables)


def test_sums_rename_what_collides():
    m = formula("a*exp(-b*x)") + formula("a*sin(b*x)") + formula("c*x")
    assert m.parameters == ("a_1", "b_1", "a_2", "b_2", "c")
    np.testing.assert_allclose(m(X, 1, 2, 3, 4, 5), np.exp(-2 * X) + 3 * np.sin(4 * X) + 5 * X, rtol=1e-14)
    with pytest.raises(ValueError, match="different variables"):
        formula("a*x") + formula("a*t")
    with pytest.raises(TypeError, match="write it inside"):
        formula("a*x") + model(lambda x, a: a * x)
    with pytest.raises(TypeError):
        formula("a*x") + "1"


# Recorded Python functions


def helper(u):
    return math.exp(-u * u)


def with_math(x, a, b):
    total = 0.0
    for k in range(3):
        total += a * helper(x - k)
    return total + exp(b) * math.sin(x) + max(a, b, x) + math.atan2(b, x) + math.fabs(a - x) + math.pi


def with_numpy(x, a, b):
    scale = np.float64(2.0)
    return scale * a * np.exp(-b * x) + np.where(x > 1.0, a, b * x) + np.clip(x, 0.5, 2.0) + np.hypot(x, a)


def closure():
    from math import cos

    weights = np.array([1.0, 2.0])

    def function(x, a, b):
        return np.dot(weights * np.array([a, b]), np.array([x, cos(x)]))

    return function


@pytest.mark.parametrize("function", [with_math, with_numpy, closure()])
def test_functions_are_recorded(function):
    m = model(function)
    assert m.parameters == ("a", "b")
    theta = np.array([0.9, 0.4])
    expected = np.array([float(function(float(x), *theta)) for x in X])
    np.testing.assert_allclose(m(X, *theta), expected, rtol=1e-14)
    np.testing.assert_allclose(
        m.jacobian(X, *theta),
        central(lambda t: np.array([float(function(float(x), *t)) for x in X]), theta),
        rtol=1e-6, atol=1e-7,
    )  # fmt: skip
    assert m._curve(1, 2)[0].rowwise  # recorded, not compiled


def test_recording_leaves_the_function_alone():
    with_math(0.3, 1.0, 2.0)
    trace(with_math, variable(0), parameter(0), parameter(1))
    assert isinstance(with_math(0.3, 1.0, 2.0), float)
    assert with_math.__globals__["math"] is math


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a: a if x > 1 else 2 * a,
        lambda x, a: float(x) * a,
        lambda x, a: a * [1, 2][int(x)],
        lambda x, a: np.sort(np.array([x, a]))[0],
        lambda x, a: a * complex(x, 1),
        lambda x, a: a * x if a == 1 else x,
        lambda x, a: sum(range(a)) * x,
    ],
)
def test_what_cannot_be_recorded(function):
    with pytest.raises(TraceError):
        trace(function, variable(0), parameter(0))


def test_a_record_that_gives_other_values_is_not_used():
    def deceitful(x, a):
        return a * x if isinstance(x, float) else a + x

    with pytest.raises(TraceError, match="does not give"):
        model(deceitful)._curve(1, 1)


def branching(x, a, b):
    if x > 1.0:
        return a * math.exp(-b * x)
    return a * math.exp(-b) + 0.0 * x


def branching_abs(x, a, b):
    if x > 1.0:
        return abs(a) * x + b
    return b


@pytest.mark.parametrize("function", [branching, branching_abs])
def test_functions_that_cannot_be_recorded_are_compiled(function):
    m = model(function)
    a, b = -0.9, 0.4
    expected = np.array([function(float(x), a, b) for x in X])
    np.testing.assert_allclose(m(X, a, b), expected, rtol=1e-14)
    if function is branching:  # by the complex step: exact
        x = np.maximum(X, 1.0)
        exact = np.stack([np.exp(-b * x), -a * x * np.exp(-b * x)], axis=1)
        np.testing.assert_allclose(m.jacobian(X, a, b), exact, rtol=1e-14)
    else:  # |a| is not analytic: by differences
        exact = np.stack([np.where(X > 1.0, -X, 0.0), np.ones(len(X))], axis=1)
        np.testing.assert_allclose(m.jacobian(X, a, b), exact, rtol=1e-8, atol=1e-9)


def test_a_jacobian_of_the_users_is_used():
    calls = []

    def by(x, a, b):
        calls.append(1)
        return [x, 2.0]  # deliberately not the derivative by b

    m = model(lambda x, a, b: a * x + b, jacobian=by)
    np.testing.assert_array_equal(m.jacobian(X, 1.0, 1.0), np.stack([X, np.full(len(X), 2.0)], axis=1))
    assert calls

    def by_branch(x, a, b):
        return (x, 3.0) if x > 1.0 else (0.0, 3.0)

    m = model(branching_abs, jacobian=by_branch)
    np.testing.assert_array_equal(m.jacobian(X, 1.0, 1.0), np.stack([np.where(X > 1, X, 0), np.full(len(X), 3.0)], 1))
    with pytest.raises(ValueError, match="returned 1 values"):
        model(lambda x, a, b: a * x + b, jacobian=lambda x, a, b: [x]).jacobian(X, 1.0, 1.0)


def test_what_is_neither_recorded_nor_compiled():
    def hopeless(x, a):
        return a * float(str(x))

    with pytest.raises(TypeError, match="hopeless can neither be recorded"):
        model(hopeless)(X, 1.0)
    with pytest.raises(TypeError, match="expected a function"):
        model(3)
    with pytest.raises(TypeError, match="jacobian must be"):
        model(branching, jacobian=3)


def test_model_of_a_model():
    m = formula("a*x")
    assert model(m) is m


# Kernels


def row(theta, x, y):
    return theta[0] * math.exp(-theta[1] * x) - y, 0.1 * theta[1]


def row_matrix(theta, point):
    center, radius = theta[:2], theta[2]
    return np.linalg.norm(point - center) - radius


def row_branching(theta, point, weight):
    d0, d1 = point[0] - theta[0], point[1] - theta[1]
    if weight < 0.0:
        return np.zeros(2)
    return np.array([weight * d0, weight * d1])


def test_rows_of_several_residuals():
    x, y = np.linspace(0, 2, 300), np.linspace(1, 0, 300)
    kernel = model(row).residual_kernel(2, 2, LINEAR, 1)
    theta = np.array([1.2, 0.7])
    assert kernel.components == 2
    r = kernel.residuals(theta, describe([x, y]), 300)
    np.testing.assert_allclose(r, np.stack([1.2 * np.exp(-0.7 * x) - y, np.full(300, 0.07)], 1), rtol=1e-13, atol=1e-15)
    normal = kernel.linearize(theta, describe([x, y]), 300, outer=True, costs=None)
    e = np.exp(-0.7 * x)
    J = np.stack([np.stack([e, -1.2 * x * e], 1), np.broadcast_to([0.0, 0.1], (300, 2))], 1)
    np.testing.assert_allclose(normal.hessian, np.einsum("nca,ncb->ab", J, J), rtol=1e-12)
    np.testing.assert_allclose(normal.gradient, np.einsum("nca,nc->a", J, r), rtol=1e-12)
    G = np.einsum("nca,nc->na", J, r)
    np.testing.assert_allclose(normal.outer, G.T @ G, rtol=1e-12)


@pytest.mark.parametrize("function", [row_matrix, row_branching])
def test_columns_of_a_matrix(function):
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(200, 2)), rng.normal(size=200)
    data = [points] if function is row_matrix else [points, weight]
    shapes = (2,) if function is row_matrix else (2, 1)
    kernel = model(function).residual_kernel(shapes, 3, LINEAR, 1)
    theta = np.array([0.1, -0.2, 0.7])
    rows = zip(*data, strict=True)
    expected = np.array([np.atleast_1d(function(theta, *r)) for r in rows])
    np.testing.assert_allclose(kernel.residuals(theta, describe(data), 200), expected, rtol=1e-13, atol=1e-15)
    normal = kernel.linearize(theta, describe(data), 200, outer=False, costs=None)

    def cost(t):
        return np.array([0.5 * np.sum(np.square(function(t, *r))) for r in zip(*data, strict=True)]).sum(keepdims=True)

    np.testing.assert_allclose(normal.gradient, central(cost, theta)[0], rtol=1e-6, atol=1e-6)


def test_curve_kernels_with_sigma_and_loss():
    rng = np.random.default_rng(1)
    x, y, sigma = rng.uniform(0, 3, 1000), rng.normal(size=1000), rng.uniform(0.5, 2.0, 1000)
    theta = np.array([1.2, 0.7])
    for m in (formula("a*exp(-b*x)"), model(lambda x, a, b: a * math.exp(-b * x))):
        kernel = m.curve_kernel(1, 2, "sigma", Loss.named("huber", 0.5), 1)
        r = (m(x, *theta) - y) / sigma
        np.testing.assert_allclose(
            kernel.residuals(theta, describe([x, y, sigma]), 1000)[:, 0], r, rtol=1e-12, atol=1e-14
        )
        cost, weight = Loss.named("huber", 0.5).cost_and_weight(r * r)
        normal = kernel.linearize(theta, describe([x, y, sigma]), 1000, outer=False, costs=None)
        J = m.jacobian(x, *theta) / sigma[:, None]
        assert normal.cost == pytest.approx(cost.sum(), rel=1e-12)
        np.testing.assert_allclose(normal.gradient, J.T @ (weight * r), rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="weighting"):
        formula("a*x").curve_kernel(1, 1, "weights", LINEAR, 1)
    with pytest.raises(ValueError, match="takes 1 data column"):
        formula("a*x").curve_kernel(2, 1, None, LINEAR, 1)
    with pytest.raises(ValueError, match="has 1 parameters"):
        formula("a*x").curve_kernel(1, 2, None, LINEAR, 1)


def test_kernels_are_made_once_and_keep_their_loss():
    m = formula("a*x")
    first, second = (m.curve_kernel(1, 1, None, Loss.named(name), 1) for name in ("huber", "cauchy"))
    assert first.program is second.program
    assert (first.loss.name, second.loss.name) == ("huber", "cauchy")
    assert address_of(first.evaluator, EVALUATOR) == address_of(second.evaluator, EVALUATOR)


# Fits


def decay_data(n=20_000):
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 5, n)
    return x, 2.0 * np.exp(-0.7 * x) + 0.3 + 0.1 * rng.standard_normal(n)


def test_every_kind_of_model_gives_the_same_fit():
    x, y = decay_data()

    def function(x, a, b, c):
        return a * math.exp(-b * x) + c

    def branch(x, a, b, c):
        if x < 0.0:
            return 0.0
        return a * math.exp(-b * x) + c

    reference, _ = problm.curve_fit(lambda x, a, b, c: a * np.exp(-b * x) + c, x, y, [1, 1, 1])
    for f, sigma in (
        (formula("a*exp(-b*x) + c"), None),
        (model(function), None),
        (model(branch), np.full(len(x), 0.3)),
    ):
        popt, pcov = problm.curve_fit(f, x, y, [1, 1, 1], sigma=sigma)
        np.testing.assert_allclose(popt, reference, rtol=1e-4)
        assert np.isfinite(pcov).all()
    rows = model(lambda theta, x, y: theta[0] * math.exp(-theta[1] * x) + theta[2] - y)
    np.testing.assert_allclose(problm.least_squares(rows, [1, 1, 1], data=(x, y)).x, reference, rtol=1e-4)
    both = problm.least_squares(formula("a*exp(-b*x) + c"), [1, 1, 1], data=(x, y)).x
    np.testing.assert_allclose(both, reference, rtol=1e-4)


def test_a_formula_needs_no_start():
    x, y = decay_data()
    popt, _ = problm.curve_fit(formula("a*exp(-b*x) + c"), x, y)
    np.testing.assert_allclose(popt, [2.0, 0.7, 0.3], atol=0.02)


def test_an_implicit_formula_fits_a_circle():
    rng = np.random.default_rng(4)
    angle = rng.uniform(0, 2 * np.pi, 5000)
    x, y = 3 + 2 * np.cos(angle), 1 + 2 * np.sin(angle)
    circle = formula("sqrt((x-a)**2 + (y-b)**2) - r", variables=("x", "y"))
    np.testing.assert_allclose(problm.least_squares(circle, [0, 0, 1.0], data=(x, y)).x, [3, 1, 2], atol=1e-6)


def test_scipy_takes_the_model_too():
    from scipy.optimize import curve_fit

    x, y = decay_data(500)
    m = formula("a*exp(-b*x) + c")
    popt, _ = curve_fit(m, x, y, p0=[1, 1, 1], jac=m.jacobian)
    ours, _ = problm.curve_fit(m, x, y)
    np.testing.assert_allclose(popt, ours, rtol=1e-4)


def test_float32_columns_are_read_in_place():
    x, y = (a.astype(np.float32) for a in decay_data())
    popt, _ = problm.curve_fit(formula("a*exp(-b*x) + c"), x, y)
    np.testing.assert_allclose(popt, [2.0, 0.7, 0.3], atol=0.02)


def test_models_can_be_copied_and_sent_to_other_processes():
    m = formula("a*exp(-b*x)") + formula("c*x")
    m(X, 1, 2, 3)
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):  # noqa: S301
        assert twin.parameters == m.parameters
        assert twin.body is m.body  # nodes are shared again
        np.testing.assert_array_equal(twin(X, 1, 2, 3), m(X, 1, 2, 3))


@pytest.mark.parametrize(
    "text",
    [
        "a * exp(-((x - m) / s) ** 2 / 2) + b",
        "a * x ** 3 + b * x ** 7",
        "(a + x) ** 2 * b",
        "-(a * x) ** 2",
        "x ** a ** 2",
    ],
)
def test_powers_are_written_as_the_user_wrote_them(text):
    assert problm.formula(f"y ~ {text}", variables=("x",)).expression == text


@pytest.mark.parametrize(
    ("text", "variables", "parameters"),
    [
        ("y0 + A/(1+exp(-(x-x0)/k))", ("x",), ("y0", "A", "x0", "k")),
        ("h*exp(-4*log(2)*(x-x_0)**2/w**2)", ("x",), ("h", "x_0", "w")),
        ("x0 + v*t + g/2*t**2", ("t",), ("x0", "v", "g")),
        ("a*x1 + b*x2", ("x1", "x2"), ("a", "b")),
        ("a*x0 + b*x1 + c*t", ("x0", "x1"), ("a", "b", "c", "t")),
        ("d*e**(-k*x)", ("x",), ("d", "k")),
    ],
)
def test_origins_and_numbered_names(text, variables, parameters):
    model = formula(text)
    assert (model.variables, model.parameters) == (variables, parameters)


@pytest.mark.parametrize(
    ("text", "match"),
    [("a*exp(-(x-x1)**2) + b*exp(-(x-x2)**2)", "is 'x1' data"), ("a+b*x+c*x**2+d*x**3+e*x**4", "Euler")],
)
def test_names_that_may_be_meant_otherwise_are_refused(text, match):
    with pytest.raises(FormulaError, match=match):
        formula(text)
    assert formula("a*exp(-(x-x1)**2)", variables="x").parameters == ("a", "x1")
