"""The batch grows as the fit gets better

Most of the way is made on a few thousand rows. The last steps, and the certificate, use all of them.
"""

import numpy as np

import problm

rng = np.random.default_rng(1)
x = rng.uniform(-3, 3, 400_000)
y = 2 * np.exp(-((x - 0.7) ** 2)) + 1.2 * np.exp(-((x + 1.1) ** 2) / 0.3) + 0.1 * x + 0.3 * rng.standard_normal(x.size)

model = problm.models.gaussian() + problm.models.gaussian() + problm.models.line()
start = [1, 1, 1, 1, -1, 0.5, 0, 0]
result = problm.curve_fit(model, x, y, start, full_output=True)[2]["result"]
figure = result.plot()
