"""Functions of rows: those that look beyond their own row, and those that do not but may seem to."""

import numpy as np

N = 50_000
T = np.linspace(2.0, 6.0, N)
RNG = np.random.default_rng(5)
W = RNG.uniform(0.5, 1.5, N)
KERNEL = np.exp(-0.5 * np.linspace(-3, 3, 41) ** 2)
KERNEL /= KERNEL.sum()


def noisy(values):
    return values + 0.05 * np.random.default_rng(1).standard_normal(N)


def trapezoid(t, y):
    return np.concatenate([[0.0], np.cumsum(0.5 * (y[1:] + y[:-1]) * np.diff(t))])


BEYOND = {
    "first row": lambda t, a, k: a * np.exp(-k * (t - t[0])),
    "last row": lambda t, a, k: a * np.exp(-k * (t[-1] - t)),
    "mean": lambda t, a, k: a + k * (t - t.mean()),
    "weak mean": lambda t, a, k: a * np.exp(-k * t) + 1e-4 * t.mean(),
    "sum": lambda t, a, k: a * np.exp(-k * t) / np.exp(-k * t).sum() * N,
    "extremes": lambda t, a, k: a * np.exp(-k * (t - t.min()) / (t.max() - t.min())),
    "cumsum": lambda t, a, k: a * np.cumsum(np.exp(-k * t)) / N,
    "integral": lambda t, a, k: a * trapezoid(t, np.exp(-k * t)),
    "gradient": lambda t, a, k: 100 * a * np.gradient(np.exp(-k * t)) * N / 100,
    "convolution": lambda t, a, k: np.convolve(a * np.exp(-k * t), KERNEL, "same"),
    "fft": lambda t, a, k: np.fft.irfft(np.fft.rfft(a * np.exp(-k * t)) * np.exp(-0.001 * np.arange(N // 2 + 1)), N),
    "ranks": lambda t, a, k: a * np.exp(-k * np.argsort(np.argsort(t)) / N),
    "sorted": lambda t, a, k: a * np.exp(-k * np.sort(t)[::-1]),
    "row numbers": lambda t, a, k: a * np.exp(-k * np.arange(len(t)) / len(t)),
    "length": lambda t, a, k: a * np.exp(-k * t) * len(t) / N,
    "closure": lambda t, a, k: a * np.exp(-k * T) * W,
    "closure with rows": lambda t, a, k: a * np.exp(-k * t) * W,
    "fixed length": lambda t, a, k: a * np.exp(-k * np.linspace(0, 1, N)),
    "a row of its own": lambda t, a, k: a * np.exp(-k * t) + 0.1 * t[20_000],
    "table over the range": lambda t, a, k: np.interp(
        t, np.linspace(t.min(), t.max(), 9), a * np.exp(-k * np.linspace(t.min(), t.max(), 9))
    ),
    "median": lambda t, a, k: a * np.exp(-k * (t - np.median(t))),
}  # fmt: skip

APART = {
    "exponential": lambda t, a, k: a * np.exp(-k * t),
    "constants": lambda t, a, k: a * k,
    "table": lambda t, a, k: a * np.interp(t, [0, 3, 7], [1.0, 2.0, 0.5]) ** k,
    "matrix product": lambda t, a, k: np.stack([t, t**2, np.ones_like(t)], axis=1) @ np.array([a, k, a * k]),
    "cancellation": lambda t, a, k: 1e5 + a * np.exp(-k * t) - 1e5,
    "where": lambda t, a, k: np.where(t > 4, a, k * t),
    "loop": np.vectorize(lambda t, a, k: a if t > 3 else k),
}
