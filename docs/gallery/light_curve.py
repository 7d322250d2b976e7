"""A light curve of ten million points in Parquet

A star whose brightness swings with a period of 0.42 days, observed ten million times in float32. The period is found by
a periodogram of a sample, the fit uses all rows. SciPy is given a tenth of the rows, and the period.
"""

import inspect
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import optimize

import problm
from problm.report.plots import new_figure

rng = np.random.default_rng(2)
days = rng.uniform(0, 30, 10_000_000).astype(np.float32)
flux = (1.0 + 0.02 * np.sin(2 * np.pi * days / 0.42 + 1.0) + 0.01 * rng.standard_normal(days.size)).astype(np.float32)
folder = tempfile.TemporaryDirectory()
path = str(Path(folder.name, "star.parquet"))
pq.write_table(pa.table({"days": days, "flux": flux}), path, row_group_size=500_000)
wave = problm.formula("flux ~ mean + a*sin(2*pi*f*days + phase)", variables="days")


def ours():
    return problm.fit(wave, path)


def theirs():
    table = pq.read_table(path)
    x, y = table["days"].to_numpy(), table["flux"].to_numpy()

    def curve(x, mean, a, f, phase):
        return mean + a * np.sin(2 * np.pi * f * x + phase)

    return optimize.curve_fit(curve, x[:1_000_000], y[:1_000_000], [1.0, 0.01, 1 / 0.42, 0.0])


def timed(function):
    began = sum(os.times()[:4])  # of this process and of its children
    found = function()
    return found, sum(os.times()[:4]) - began, len(inspect.getsource(function).strip().split("\n")) - 1


fit, seconds, lines = timed(ours)
_, scipys_seconds, scipys_lines = timed(theirs)
values = {p.name: p.value for p in fit.params.values()}
assert abs(abs(values["f"]) * 0.42 - 1) < 1e-4, values

figure, ax = new_figure(figsize=(8, 4.5))
some = slice(0, 200_000)
fold = np.mod(days[some] * abs(values["f"]), 1.0)
ax.hexbin(fold, flux[some], gridsize=(120, 40), cmap="Blues", mincnt=1, bins="log")
grid = np.linspace(0, 1, 300)
ax.plot(grid, fit.predict(grid / abs(values["f"])), "C3", lw=2)
ax.set(xlabel="phase", ylabel="flux")
ax.set_title(
    f"ProBLM: {lines} line, {seconds:.1f} s for 10,000,000 rows: f = {fit.params['f'].value:.6f} per day\n"
    f"SciPy: {scipys_lines} lines, {scipys_seconds:.1f} s for 1,000,000 of them, with the period given",
    fontsize="medium",
)
folder.cleanup()
