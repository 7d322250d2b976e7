"""Programs of the tape against NumPy, operation by operation and for random expressions; derivatives by differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problm.kernels import tape
from problm.kernels.kernel import Kernel, describe
from problm.losses import Loss
from problm.models import expression as ex
from problm.models.assembler import assemble
from problm.models.derivatives import PARTIALS, derivatives
from problm.models.expression import NUMPY, constant, evaluate, exp, make, parameter, variable, where
from problm.models.node import topological


def run(outputs, theta, columns, jacobian=None):
    """Values (n, p) and derivatives (n, p, d) of expressions, by the tape."""
    theta = np.array(theta, dtype=np.float64)
    d, p, n = len(theta), len(outputs), len(columns[0])
    program = assemble(outputs, jacobian or derivatives(outputs, d), d)
    kernel = Kernel(tape.run, d, p, program.code, program.constants)
    described = describe(columns)
    values = kernel.residuals(theta, described, n)
    return values, kernel.jacobian(theta, described, n)


def differences(outputs, theta, columns):
    """Central differences of NumPy's values."""
    theta = np.array(theta)
    result = np.empty((len(columns[0]), len(outputs), len(theta)))
    for a in range(len(theta)):
        h = 1e-5 * max(1.0, abs(theta[a]))
        up, down = theta.copy(), theta.copy()
        up[a] += h
        down[a] -= h
        for c, output in enumerate(outputs):
            change = evaluate([output], list(up), columns)[0] - evaluate([output], list(down), columns)[0]
            result[:, c, a] = change / (up[a] - down[a])
    return result


UNARY = dict.fromkeys(tape.UNARY, (-3.0, 3.0)) | {
    "log": (0.05, 9.0), "log1p": (-0.9, 9.0), "log_or_zero": (0.05, 9.0), "sqrt": (0.05, 9.0), "arcsin": (-0.95, 0.95),
    "arccos": (-0.95, 0.95), "arccosh": (1.05, 9.0), "arctanh": (-0.95, 0.95), "tan": (-1.4, 1.4), "neg": (-3, 3),
}  # fmt: skip
BINARY = (
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "minimum",
    "maximum",
    "arctan2",
    "hypot",
    "lt",
    "le",
    "eq",
    "w_real",
    "w_imag",
)
N = 300  # two full blocks and a part


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name):
    low, high = UNARY[name]
    x = np.linspace(low, high, N)
    value, _ = run([make(name, variable(0))], [1.0], [x])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(value[:, 0], NUMPY[name](x), rtol=1.5e-15, atol=1e-16)
    # Inside: the argument is a p0 + b, the function of scalars too.
    e = make(name, parameter(0) * variable(0) + parameter(1)) + make(
        name, parameter(0) * constant(0.5 * (low + high) or 0.7)
    )
    theta = [0.97, 0.02]
    value, by = run([e], theta, [x])
    np.testing.assert_allclose(value[:, 0], evaluate([e], theta, [x])[0], rtol=1e-14, atol=1e-15)
    if name in PARTIALS:
        smooth = np.abs(theta[0] * x + theta[1]) > 1e-3 if name == "abs" else np.ones(N, dtype=bool)
        np.testing.assert_allclose(by[smooth], differences([e], theta, [x])[smooth], rtol=1e-7, atol=1e-7)
    else:
        assert (by == 0).all()


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments(name):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.2, 3.0, (2, N))
    y[::7] = x[::7]
    a, b, u, v = parameter(0), parameter(1), variable(0), variable(1)
    theta = [1.1, 0.8]
    forms = [make(name, u, v), make(name, a * u, v), make(name, u, b * v), make(name, a, b * u), make(name, u, b),
             make(name, a * u, b * v), make(name, constant(1.5), v), make(name, u, constant(2.5)),
             make(name, a, b) + u]  # fmt: skip
    value, by = run(forms, theta, [x, y])
    reference = np.stack([np.broadcast_to(v, N) for v in evaluate(forms, theta, [x, y])], axis=1)
    np.testing.assert_allclose(value, reference, rtol=1e-14, atol=1e-15)
    if name in PARTIALS and name not in ("minimum", "maximum", "w_real", "w_imag"):
        np.testing.assert_allclose(by, differences(forms, theta, [x, y]), rtol=1e-7, atol=1e-8)


def test_minimum_and_maximum_follow_the_chosen_branch():
    a, b, x = parameter(0), parameter(1), variable(0)
    forms = [make("minimum", a * x, b), make("maximum", a * x, b)]
    x_values = np.array([1.0, 3.0])
    _, by = run(forms, [1.0, 2.0], [x_values])
    np.testing.assert_array_equal(by[:, 0], [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(by[:, 1], [[0.0, 1.0], [3.0, 0.0]])


def test_faddeeva_derivatives():
    forms = [make(n, parameter(0) * variable(0), parameter(1) + 0.0 * variable(0)) for n in ("w_real", "w_imag")]
    x = np.linspace(-9.0, 9.0, N)
    theta = np.array([1.2, 0.7])
    _, by = run(forms, theta, [x])
    for a in range(2):
        h = 1e-6 * np.eye(2)[a]
        up, down = (evaluate(forms, theta + s * h, [x]) for s in (1, -1))
        for c in range(2):
            np.testing.assert_allclose(by[:, c, a], (up[c] - down[c]) / 2e-6, atol=1e-8)


def test_where_selects_rows_and_their_derivatives():
    a, b, x = parameter(0), parameter(1), variable(0)
    e = where(x < 0.0, a * x, b * x * x)
    x_values = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    value, by = run([e], [3.0, 5.0], [x_values])
    np.testing.assert_array_equal(value[:, 0], [-6.0, -3.0, 0.0, 5.0, 20.0])
    np.testing.assert_array_equal(by[:, 0], [[-2, 0], [-1, 0], [0, 0], [0, 1], [0, 4]])


def test_arguments_beyond_the_vectorised_range():
    x = np.array([0.0, 1e5, 1e7, -3e15, 1e300, np.inf, np.nan, -np.inf, 2.0, -0.0])
    forms = [make("sin", variable(0)), make("cos", variable(0)), make("tan", variable(0))]
    value, _ = run(forms, [1.0], [x])
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(value[:, 0], np.sin(x), rtol=1e-15)
        np.testing.assert_allclose(value[:, 1], np.cos(x), rtol=1e-15)
        np.testing.assert_allclose(value[:, 2], np.tan(x), rtol=1e-14)


@pytest.mark.parametrize("exponent", [0.25, -0.5, 1.7, 9.0, -9.0, 200.0, -200.0, 0.0])
def test_powers_of_any_base(exponent):
    x = np.array([0.0, 1.0, -2.0, 0.3, 5e-324, 1e-300, 1e300, np.inf, -np.inf, np.nan, 123.456])
    e = variable(0) ** parameter(0)
    value, _ = run([e, variable(0) ** variable(1)], [exponent], [x, np.full(len(x), exponent)])
    with np.errstate(all="ignore"):
        expected = np.power(x, exponent)
    np.testing.assert_allclose(value[:, 0], expected, rtol=1e-15)
    np.testing.assert_allclose(value[:, 1], expected, rtol=1e-15)


def test_derivative_of_a_power_law_at_zero():
    _, by = run([parameter(0) * variable(0) ** parameter(1)], [2.0, 1.5], [np.array([0.0, 1.0, 2.0])])
    np.testing.assert_allclose(by[:, 0], [[0, 0], [1, 0], [2**1.5, 2 * 2**1.5 * np.log(2)]], rtol=1e-15)


def test_not_a_number_and_infinity_pass_through():
    x = np.array([np.nan, np.inf, -np.inf, 1.0])
    forms = [
        parameter(0) * variable(0) + 1.0,
        exp(variable(0)),
        1.0 / variable(0),
        make("minimum", variable(0), constant(0.0)),
    ]
    value, _ = run(forms, [2.0], [x])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(value[:, 0], 2 * x + 1)
        np.testing.assert_allclose(value[:, 1], np.exp(x))
        np.testing.assert_array_equal(value[:, 2], 1 / x)
        np.testing.assert_array_equal(value[:, 3], np.minimum(x, 0))


def test_outputs_that_are_copies_constants_or_columns():
    a, x, y = parameter(0), variable(0), variable(1)
    e = a * x
    forms = [e, e, x, y, x, constant(3.0), a, -e, e + 0.0]
    x_values, y_values = np.arange(5.0), np.arange(5.0) ** 2
    value, by = run(forms, [2.0], [x_values, y_values])
    expected = [2 * x_values, 2 * x_values, x_values, y_values, x_values, 3.0, 2.0, -2 * x_values, 2 * x_values]
    for c, column in enumerate(expected):
        np.testing.assert_array_equal(value[:, c], np.broadcast_to(column, 5))
    slope = [x_values, x_values, 0, 0, 0, 0, 1, -x_values, x_values]
    for c, column in enumerate(slope):
        np.testing.assert_array_equal(by[:, c, 0], np.broadcast_to(column, 5))


@pytest.mark.parametrize("n", [1, 2, 3, 127, 128, 129, 1000])
def test_any_number_of_rows(n):
    x = np.linspace(0.1, 2.0, n)
    a, b = parameter(0), parameter(1)
    value, by = run([a * exp(-b * variable(0))], [2.0, 0.5], [x])
    np.testing.assert_allclose(value[:, 0], 2 * np.exp(-0.5 * x), rtol=1e-15)
    np.testing.assert_allclose(by[:, 0], np.stack([np.exp(-0.5 * x), -2 * x * np.exp(-0.5 * x)], 1), rtol=1e-15)


def test_programs_too_large_for_the_stack_use_the_heap():
    """Sixty terms whose values are all needed at the end."""
    terms = [exp(parameter(k) * variable(0)) for k in range(60)]
    total = sum(terms[1:], terms[0])
    shared = [t * total for t in terms]
    x = np.linspace(-1, 1, 200)
    theta = np.linspace(-1, 1, 60)
    value, by = run(shared, theta, [x])
    program = assemble(shared, derivatives(shared, 60), 60)
    assert program.code[5] + 128 * program.code[6] > tape.STACK
    E = np.exp(theta[:, None] * x)
    np.testing.assert_allclose(value.T, E * E.sum(0), rtol=1e-13)
    expected = E[3] * E[7] * x  # d(t_3 total)/d theta_7
    np.testing.assert_allclose(by[:, 3, 7], expected, rtol=1e-13)


def test_scalars_are_computed_once_and_products_shared():
    """A Gaussian takes six vector instructions with its derivatives; 1/s and its powers are scalars."""
    a, m, s, x, y = parameter(0), parameter(1), parameter(2), variable(0), variable(1)
    residual = a * exp(-0.5 * ((x - m) / s) ** 2) - y
    program = assemble([residual], derivatives([residual], 3), 3)
    assert program.code[3] == 3  # x - m; exp of its square times a scalar; a e - y
    assert program.code[2] == 6  # e t; twice times a scalar
    assert program.code[6] <= 2


def test_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 5, 100_000), rng.normal(size=100_000)
    r = parameter(0) * exp(-parameter(1) * variable(0)) - variable(1)
    program = assemble([r], derivatives([r], 2), 2)
    results = [
        Kernel(tape.run, 2, 1, program.code, program.constants, loss=Loss.named("cauchy"), threads=k).linearize(
            np.array([1.0, 0.5]), describe([x, y]), len(x), outer=True, costs=None
        )
        for k in (1, 2, 3)
    ]
    for other in results[1:]:
        assert other.cost == results[0].cost
        np.testing.assert_array_equal(other.hessian, results[0].hessian)
        np.testing.assert_array_equal(other.outer, results[0].outer)


leaves = st.sampled_from(
    [variable(0), variable(1), parameter(0), parameter(1), parameter(2), constant(0.7), constant(2.0)]
)


def grow(inner):
    """Operations that keep moderate arguments moderate, so that neither overflow nor poles hide an error."""
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda t: t[0] + t[1]),
        two.map(lambda t: t[0] - t[1]),
        two.map(lambda t: t[0] * t[1]),
        two.map(lambda t: t[0] / (1.5 + t[1] * t[1])),
        inner.map(lambda e: exp(-0.3 * (e * e))),
        inner.map(lambda e: make("tanh", e)),
        inner.map(lambda e: make("sin", e)),
        inner.map(lambda e: make("cos", 0.5 * e)),
        inner.map(lambda e: make("log", 1.2 + e * e)),
        inner.map(lambda e: make("log1p", e * e)),
        inner.map(lambda e: ex.sqrt(0.5 + e * e)),
        inner.map(lambda e: make("arctan", e)),
        inner.map(lambda e: make("hypot", e, constant(1.0))),
        inner.map(lambda e: (1.0 + e * e) ** parameter(1)),
        inner.map(lambda e: -e),
        inner.map(lambda e: make("tanh", e) ** 3),
    )


expressions = st.recursive(leaves, grow, max_leaves=14)
X = np.random.default_rng(5).uniform(-1.5, 1.5, (2, 140))
THETA = [0.8, 0.6, -1.1]


@settings(max_examples=120, deadline=None)
@given(expressions)
def test_random_expressions(e):
    value, by = run([e], THETA, list(X))
    exact = evaluate([e], list(np.array(THETA, dtype=np.longdouble)), list(X.astype(np.longdouble)))[0]
    exact = np.broadcast_to(exact, 140).astype(float)
    reference = np.broadcast_to(evaluate([e], THETA, list(X))[0], 140)
    # As close to the exact value as NumPy is, up to a few roundings of numbers of the size that occurs.
    size = _largest_part(e)
    assert (np.abs(value[:, 0] - exact) <= 3 * np.abs(reference - exact) + 2e-15 * size).all()
    np.testing.assert_allclose(by, differences([e], THETA, list(X)), rtol=1e-6, atol=1e-7 * max(1.0, size.max()))


def _largest_part(e):
    parts = evaluate(topological([e]), THETA, list(X))
    return np.max([np.abs(np.broadcast_to(p, 140)) for p in parts], axis=0)
