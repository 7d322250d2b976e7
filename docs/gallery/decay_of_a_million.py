"""A decay through a million points

Beyond some tens of thousands of points a scatter plot is a blot: `plot_curve` counts them and shows their density.
"""

import numpy as np

import problm
from problm.report.plots import plot_curve

rng = np.random.default_rng(0)
x = rng.uniform(0, 4, 1_000_000)
y = 2.5 * np.exp(-1.3 * x) + 0.5 + 0.2 * rng.standard_normal(x.size)

model = problm.formula("a*exp(-b*x) + c")
popt, pcov = problm.curve_fit(model, x, y)
figure = plot_curve(x, y, lambda t: model(t, *popt))
