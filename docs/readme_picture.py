"""Make ``docs/readme.png``: a fit, and its cost against the work done. Run it when the solver has changed."""

from pathlib import Path

import numpy as np

import problm
from problm.report.plots import new_figure, plot_curve

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, 1_000_000)
y = 2 * np.exp(-((x - 0.7) ** 2)) + 1.2 * np.exp(-((x + 1.1) ** 2) / 0.3) + 0.1 * x + 0.4 * rng.standard_normal(x.size)
model = problm.models.gaussian() + problm.models.gaussian() + problm.models.line()
start = [1, 1, 1, 1, -1, 0.5, 0, 0]

figure, (left, right) = new_figure(1, 2, figsize=(10, 3.6))
runs = {
    "ProBLM": problm.least_squares(model, start, data=(x, y), keep_path=True),
    "Levenberg-Marquardt": problm.least_squares(model, start, data=(x, y), keep_path=True, method="lm"),
}
best = min(fit.cost for fit in runs.values())
fit = runs["ProBLM"]
plot_curve(x, y, lambda t: model(t, *fit.x), left)
for (name, run), style in zip(runs.items(), ("C0.-", "C1.--"), strict=True):
    history = run.history
    work = np.add(history.residual_passes, 3 * np.asarray(history.jacobian_passes))
    # Cost over all points at every iterate, computed afterwards: the solver itself only knows its batch.
    excess = [max(run.problem.cost(theta) / best - 1, 1e-12) for theta in history.path]
    right.loglog(work, excess, style, label=name)
right.set(
    xlabel="work in passes over all points (a Jacobian counts three)",
    ylabel="cost above the minimum",
    title="1,000,000 points, 8 parameters",
)
right.legend()
figure.savefig(Path(__file__).with_name("readme.png"), dpi=100)
