"""A spot on a detector

A Gaussian spot on a 16-bit detector image with Poisson noise, read from a TIFF file: one row per pixel, with columns x,
y and I. The start is found from the data. lmfit has the model, but grid, weights and start are ours to make.
"""

import inspect
import os
import tempfile
from pathlib import Path

import lmfit
import numpy as np
from PIL import Image

import problm

rng = np.random.default_rng(11)
rows, columns = np.mgrid[:120, :160]
shape = np.exp(-0.5 * (((columns - 93.4) / 6.0) ** 2 + ((rows - 41.7) / 4.0) ** 2))
pixels = rng.poisson(180 * shape + 20).astype(np.uint16)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name, "spot.tif")
Image.fromarray(pixels).save(path)
spot = "I ~ h*exp(-0.5*((x - x0)^2/sx^2 + (y - y0)^2/sy^2)) + b"


def ours():
    image = problm.read_columns(path)
    return problm.fit(spot, image, sigma=np.sqrt(image["I"] + 1.0), absolute_sigma=True)


def theirs():
    image = np.asarray(Image.open(path), dtype=float)
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    x, y, z = x.ravel(), y.ravel(), image.ravel()
    level = lmfit.Model(lambda x, y, c: np.full(x.shape, c), ["x", "y"])
    model = lmfit.models.Gaussian2dModel() + level
    peak = int(np.argmax(z))
    params = model.make_params(centerx=x[peak], centery=y[peak], sigmax=5.0, sigmay=5.0, amplitude=2e4, c=z.min())
    return model.fit(z, params, x=x, y=y, weights=1.0 / np.sqrt(z + 1.0))


def timed(function):
    began = sum(os.times()[:4])  # of this process and of its children
    found = function()
    return found, sum(os.times()[:4]) - began, len(inspect.getsource(function).strip().split("\n")) - 1


fit, seconds, lines = timed(ours)
other, lmfits_seconds, lmfits_lines = timed(theirs)
lmfits = f"lmfit: {lmfits_lines} lines, {lmfits_seconds:.2f} s"
assert abs(other.params["centerx"].value - fit.params["x0"].value) < 0.01
assert abs(fit.params["x0"].value - 93.4) < 5 * fit.params["x0"].error

figure = fit.plot()
figure.suptitle(f"ProBLM: {lines} lines, {seconds:.2f} s: {fit.params['x0']}\n{lmfits}", fontsize="medium")
folder.cleanup()
