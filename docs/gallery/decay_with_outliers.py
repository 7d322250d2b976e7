"""A decay with outliers

One point in ten is wrong. Cauchy's loss with a scale that is estimated from the data keeps the answer; the standard
errors are those of the robust estimate. SciPy needs the scale, and leaves the errors to us.
"""

import inspect
import os

import numpy as np
from scipy import optimize

import problm

rng = np.random.default_rng(5)
t = np.sort(rng.uniform(0, 10, 5_000))
true = {"a": 2.0, "b": 0.7, "c": 0.5}
y = 2.0 * np.exp(-0.7 * t) + 0.5 + 0.03 * rng.standard_normal(t.size)
wrong = rng.random(t.size) < 0.1
y[wrong] += rng.exponential(1.0, wrong.sum())


def ours():
    return problm.fit("y ~ a*exp(-b*t) + c", {"t": t, "y": y}, loss="cauchy", f_scale="auto")


def theirs():
    def residuals(p):
        return p[0] * np.exp(-p[1] * t) + p[2] - y

    found = optimize.least_squares(residuals, [1.0, 1.0, 0.0], loss="cauchy", f_scale=0.1)
    J, r = found.jac, found.fun
    errors = np.sqrt(np.diag(np.linalg.inv(J.T @ J)) * 2 * found.cost / (len(r) - 3))
    return found.x, errors


def timed(function):
    began = sum(os.times()[:4])  # of this process and of its children
    found = function()
    return found, sum(os.times()[:4]) - began, len(inspect.getsource(function).strip().split("\n")) - 1


ours()  # loads
fit, seconds, lines = timed(ours)
_, scipys_seconds, scipys_lines = timed(theirs)
for name, value in true.items():
    assert abs(fit.params[name].value - value) < 5 * fit.params[name].error, name

figure = fit.plot()
figure.axes[0].set_ylim(0.2, 4.0)
figure.axes[1].set_ylim(-0.5, 1.5)
figure.suptitle(
    f"ProBLM: {lines} line, {1e3 * seconds:.0f} ms: {fit.params['b']}\n"
    f"SciPy: {scipys_lines} lines, {1e3 * scipys_seconds:.0f} ms, scale and errors by hand",
    fontsize="medium",
)
