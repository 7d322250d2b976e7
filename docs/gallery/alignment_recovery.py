"""Alignment under noise, blur, occlusion and changes of light

A texture is warped by a homography that moves its corners by about eight pixels; then image 2 is spoiled more and more.
Shown is the error of the corners, the median of three warps, from the identity. The robust loss pays where a part of
the image is hidden; gain and bias are estimated by themselves.
"""

import numpy as np

import problm
from problm.report.plots import new_figure

rng = np.random.default_rng(4)
waves = np.exp(rng.uniform(np.log(0.03), np.log(0.9), 30))
angles, phases = rng.uniform(0, 2 * np.pi, (2, 30))


def scene(x, y):
    """A texture of waves of many lengths and directions, grey values about 0 to 255."""
    parts = zip(waves, angles, phases, strict=True)
    total = sum(np.sin(k * (np.cos(a) * x + np.sin(a) * y) + p) / k**0.7 for k, a, p in parts)
    return 127 + 45 * total / total.std()


def homography(source, target):
    """The homography that takes four points to four others."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y, -u], [0, 0, 0, x, y, 1, -v * x, -v * y, -v]]
    return np.linalg.svd(np.array(rows))[2][-1].reshape(3, 3)


def moved(matrix, x, y):
    X = np.tensordot(matrix, np.stack([x, y, np.ones_like(x)]), 1)
    return X[0] / X[2], X[1] / X[2]


def smoothed(image, sigma):
    """A Gaussian blur: a product in the frequency domain."""
    if sigma == 0:
        return image
    fy, fx = np.fft.fftfreq(image.shape[0]), np.fft.rfftfreq(image.shape[1])
    transfer = np.exp(-2 * (np.pi * sigma) ** 2 * (fy[:, None] ** 2 + fx**2))
    return np.fft.irfft2(np.fft.rfft2(image) * transfer, image.shape)


def hidden(image, share, rng):
    """A grey rectangle over a share of the image."""
    (h, w), side = image.shape, np.sqrt(share)
    top, left = int(rng.uniform(0, (1 - side) * h)), int(rng.uniform(0, (1 - side) * w))
    image = image.copy()
    image[top : top + int(side * h), left : left + int(side * w)] = rng.uniform(0, 255)
    return image


y, x = np.mgrid[0:150, 0:200].astype(float)
corners = np.array([[0, 0], [199, 0], [199, 149], [0, 149]], dtype=float)
changes = {
    "noise, grey values": ((0, 10, 20, 40, 60), lambda image, a, rng: image + rng.normal(0, a, image.shape)),
    "blur of image 2, pixels": ((0, 1, 2, 3, 4), lambda image, a, rng: smoothed(image, a)),
    "hidden share of image 2": ((0, 0.1, 0.2, 0.3, 0.4), hidden),
    "gain of image 2": ((1, 0.8, 0.6, 0.4, 0.25), lambda image, a, rng: a * image),
}
pairs = []
for seed in range(3):
    rng = np.random.default_rng(seed)
    truth = homography(corners, corners + rng.normal(0, 6, (4, 2)))
    pairs.append((truth, scene(x, y), scene(*moved(np.linalg.inv(truth), x, y))))
figure, axes = new_figure(2, 2, figsize=(9, 6.4))
for ax, (name, (amounts, spoil)) in zip(axes.ravel(), changes.items(), strict=True):
    for loss, style in (("linear", "o-"), ("tukey", "s--")):
        medians = []
        for amount in amounts:
            errors = []
            for seed, (truth, first, second) in enumerate(pairs):
                rng = np.random.default_rng(seed)
                first = first + rng.normal(0, 2, x.shape)
                second = spoil(second, amount, rng) + rng.normal(0, 2, x.shape)
                warp = problm.align(np.clip(first, 0, 255) / 255, np.clip(second, 0, 255) / 255, loss=loss, threads=1)
                wanted = np.column_stack(moved(truth, *corners.T))
                errors.append(np.linalg.norm(warp.map(corners) - wanted, axis=1).mean())
            medians.append(np.median(errors))
        ax.semilogy(amounts, medians, style, label=f'loss="{loss}"')
    ax.set_xlabel(name)
    ax.set_ylabel("error of the corners, pixels")
    ax.grid(alpha=0.3)
axes[0, 0].legend()
