"""A plate of 384 dose-response curves

Eleven doses in 384 wells. All four-parameter logistic curves are fitted in one compiled loop, each with its own start.
With SciPy it is a loop over the wells.
"""

import inspect
import os

import numpy as np
from scipy import optimize

import problm
from problm.report.plots import new_figure

rng = np.random.default_rng(7)
dose = np.geomspace(1e-3, 1e2, 11)
half, slope = 10.0 ** rng.uniform(-1.5, 1.0, (384, 1)), rng.uniform(0.8, 2.0, (384, 1))
response = 5 + 90 / (1 + (half / dose) ** slope) + 2.0 * rng.standard_normal((384, 11))


def ours():
    return problm.fit_many("y ~ low + (high - low)/(1 + exp(-k*(log(x) - m)))", dose, response)


def theirs():
    def curve(x, low, high, k, m):
        return low + (high - low) / (1 + np.exp(-k * (np.log(x) - m)))

    found = []
    for well in response:
        start = [well.min(), well.max(), 1.0, 0.0]
        found.append(optimize.curve_fit(curve, dose, well, start, maxfev=5000)[0])
    return np.array(found)


def timed(function):
    began = sum(os.times()[:4])  # of this process and of its children
    found = function()
    return found, sum(os.times()[:4]) - began, len(inspect.getsource(function).strip().split("\n")) - 1


ours()  # compiles
fits, seconds, lines = timed(ours)
_, scipys_seconds, scipys_lines = timed(theirs)

figure, axes = new_figure(1, 2, figsize=(10, 4.2))
middle = np.exp(fits["m"])
axes[0].loglog(half[:, 0], middle, ".")
axes[0].loglog([0.03, 10], [0.03, 10], "C3", lw=1)
axes[0].set(xlabel="true EC50", ylabel="fitted EC50")
image = axes[1].imshow(np.log10(middle).reshape(16, 24), cmap="viridis")
axes[1].set(title="log10 EC50 of the wells", xlabel="column", ylabel="row")
figure.colorbar(image, ax=axes[1], shrink=0.8)
figure.suptitle(
    f"ProBLM: {lines} line, {1e3 * seconds:.0f} ms for 384 fits; SciPy: {scipys_lines} lines, "
    f"{1e3 * scipys_seconds:.0f} ms",
    fontsize="medium",
)
assert np.median(np.abs(np.log(middle / half[:, 0]))) < 0.2
