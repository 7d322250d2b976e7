"""Bands of a Raman spectrum

A simulated spectrum of five overlapping bands on a slope, written as an instrument writes it: decimal commas,
semicolons, units in the header. The number of bands and the background are chosen by the Bayesian information
criterion. With lmfit the number of bands and their starts are ours to give.
"""

import inspect
import os
import tempfile
from pathlib import Path

import lmfit
import numpy as np

import problm

rng = np.random.default_rng(3)
shift = np.linspace(900.0, 1700.0, 1200)
bands = [(310, 1004, 5), (140, 1032, 8), (120, 1155, 9), (260, 1450, 14), (180, 1605, 7)]
counts = rng.poisson(60 + 0.05 * shift + sum(h / (1 + ((shift - c) / w) ** 2) for h, c, w in bands))
folder = tempfile.TemporaryDirectory()
path = Path(folder.name, "spectrum.csv")
rows = (f"{s:.3f};{n}".replace(".", ",") for s, n in zip(shift, counts, strict=True))
path.write_text("Instrument;R 7\nLaser (nm);785\n\nRaman shift (cm-1);I (counts)\n" + "\n".join(rows) + "\n")


def ours():
    x, y = problm.read_columns(path).values()
    return problm.find_peaks_model(x, y, peak="lorentzian", sigma=np.sqrt(y), absolute_sigma=True)


def theirs():
    text = path.read_text().replace(",", ".").splitlines()
    x, y = np.loadtxt(text, delimiter=";", skiprows=4, unpack=True)
    model, params = lmfit.models.LinearModel(), lmfit.Parameters()
    params.add("slope", 0.0)
    params.add("intercept", 100.0)
    for k, center in enumerate([1000.0, 1030.0, 1150.0, 1450.0, 1600.0]):
        band = lmfit.models.LorentzianModel(prefix=f"b{k}_")
        params.update(band.make_params(center=center, sigma=10.0, amplitude=5000.0))
        model = model + band
    return model.fit(y, params, x=x, weights=1.0 / np.sqrt(y))


def timed(function):
    began = sum(os.times()[:4])  # of this process and of its children
    found = function()
    return found, sum(os.times()[:4]) - began, len(inspect.getsource(function).strip().split("\n")) - 1


fit, seconds, lines = timed(ours)
other, lmfits_seconds, lmfits_lines = timed(theirs)
found = sorted(p.value for name, p in fit.params.items() if name.startswith("center"))
assert np.allclose(found, [c for _, c, _ in bands], atol=1.5), found

figure = fit.plot()
figure.suptitle(
    f"ProBLM: {lines} lines, {seconds:.1f} s, {len(found)} bands found, $\\chi^2$ = {fit.chi2:.0f}\n"
    f"lmfit: {lmfits_lines} lines, {lmfits_seconds:.2f} s, 5 bands given, $\\chi^2$ = {other.chisqr:.0f}",
    fontsize="medium",
)
folder.cleanup()
