"""Two images, aligned

Image 1 in red, image 2 in cyan: grey where they agree. The homography between them is found from all pixels, coarse to
fine, from the identity.
"""

import numpy as np

import problm
from problm.report.plots import new_figure

rng = np.random.default_rng(2)
waves = np.exp(rng.uniform(np.log(0.03), np.log(0.4), 30))
angles, phases = rng.uniform(0, 2 * np.pi, (2, 30))


def scene(x, y):
    """A texture of waves of many lengths and directions, values about 0 to 1."""
    parts = zip(waves, angles, phases, strict=True)
    total = sum(np.sin(k * (np.cos(a) * x + np.sin(a) * y) + p) / k**0.5 for k, a, p in parts)
    return 0.5 + 0.2 * total / total.std()


y, x = np.mgrid[0:240, 0:320].astype(float)
w = 1 + 1e-4 * x - 5e-5 * y
first = scene(x, y)
second = scene((1.02 * x - 0.04 * y + 6) / w, (0.03 * x + 0.98 * y - 4) / w)
warp = problm.align(first, second, "homography")

figure, axes = new_figure(1, 2, figsize=(9, 3.6))
axes[0].imshow(np.clip(np.stack([first, second, second], axis=2), 0, 1))
axes[0].set_title("before")
axes[1].imshow(warp.overlay("red-cyan"))
axes[1].set_title(f"after: correlation {warp.ncc:.4f}")
for ax in axes:
    ax.set_axis_off()
