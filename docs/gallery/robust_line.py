"""A third of the points are wrong

Squares follow the outliers; a redescending loss (Tukey's) does not. The scale is about twice the noise.
"""

import numpy as np

import problm
from problm.report.plots import new_figure

rng = np.random.default_rng(3)
x = rng.uniform(0, 10, 6000)
y = 0.7 * x + 1 + 0.2 * rng.standard_normal(x.size)
wrong = rng.random(x.size) < 0.33
y[wrong] = rng.uniform(0, 20, wrong.sum())

line = problm.models.line()
squares, _ = problm.curve_fit(line, x, y)
robust, _ = problm.curve_fit(line, x, y, loss="tukey", f_scale=0.5)

figure, ax = new_figure(figsize=(8, 4.5))
ax.plot(x, y, ".", ms=2, color="0.6")
t = np.array([0, 10])
ax.plot(t, line(t, *squares), "C1", label="squares")
ax.plot(t, line(t, *robust), "C0", lw=2, label="Tukey's loss")
ax.legend()
