"""The problems that the benchmarks count evaluations on: data made from a seed, NumPy residuals, random starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Made:
    """A problem instance: call `problm.least_squares(fun, start, jac=jac, data=data, manifold=manifold)`."""

    name: str
    fun: Callable[..., Array]
    jac: Callable[..., Array] | str
    data: tuple[Array, ...]
    starts: list[Any]
    manifold: Any = None


def exponential(n: int, seed: int, sigma: float = 0.3, starts: int = 8) -> Made:
    """a exp(-b x) + c with Gaussian noise."""
    rng = np.random.default_rng(seed)
    truth = np.array([2.0, 0.7, 0.3])
    x = rng.uniform(0.0, 6.0, n)

    def fun(t: Array, x: Array, y: Array) -> Array:
        return t[0] * np.exp(-t[1] * x) + t[2] - y

    def jac(t: Array, x: Array, y: Array) -> Array:
        e = np.exp(-t[1] * x)
        return np.stack([e, -t[0] * x * e, np.ones_like(x)], axis=1)

    y = fun(truth, x, 0.0) + sigma * rng.standard_normal(n)
    points = [truth * rng.uniform(0.3, 3.0, 3) for _ in range(starts)]
    return Made("exponential", fun, jac, (x, y), points)


def double_gaussian(n: int, seed: int, sigma: float = 0.3, starts: int = 8) -> Made:
    """Two overlapping Gaussian peaks on a line: 8 parameters."""
    rng = np.random.default_rng(seed)
    truth = np.array([3.0, 3.5, 0.6, 2.0, 6.0, 0.9, 0.5, 0.05])
    x = rng.uniform(0.0, 10.0, n)

    def peaks(t: Array, x: Array) -> tuple[Array, Array, Array, Array]:
        u, v = (x - t[1]) / t[2], (x - t[4]) / t[5]
        return u, v, np.exp(-0.5 * u * u), np.exp(-0.5 * v * v)

    def fun(t: Array, x: Array, y: Array) -> Array:
        _, _, e1, e2 = peaks(t, x)
        return t[0] * e1 + t[3] * e2 + t[6] + t[7] * x - y

    def jac(t: Array, x: Array, y: Array) -> Array:
        u, v, e1, e2 = peaks(t, x)
        a, b = t[0] * e1 * u / t[2], t[3] * e2 * v / t[5]
        return np.stack([e1, a, a * u, e2, b, b * v, np.ones_like(x), x], axis=1)

    y = fun(truth, x, 0.0) + sigma * rng.standard_normal(n)
    points = []
    for _ in range(starts):
        start = truth * rng.uniform(0.75, 1.3, 8)
        start[[1, 4]] = truth[[1, 4]] + rng.uniform(-0.8, 0.8, 2)
        points.append(start)
    return Made("double Gaussian + line", fun, jac, (x, y), points)


def damped_sine(n: int, seed: int, sigma: float = 0.3, starts: int = 8) -> Made:
    """a exp(-b x) sin(c x + d) + e with Student-t noise of 3 degrees of freedom: heavy tails."""
    rng = np.random.default_rng(seed)
    truth = np.array([2.0, 0.25, 3.0, 0.4, 0.2])
    x = rng.uniform(0.0, 8.0, n)

    def fun(t: Array, x: Array, y: Array) -> Array:
        return t[0] * np.exp(-t[1] * x) * np.sin(t[2] * x + t[3]) + t[4] - y

    def jac(t: Array, x: Array, y: Array) -> Array:
        e, s, c = np.exp(-t[1] * x), np.sin(t[2] * x + t[3]), np.cos(t[2] * x + t[3])
        return np.stack([e * s, -t[0] * x * e * s, t[0] * x * e * c, t[0] * e * c, np.ones_like(x)], axis=1)

    y = fun(truth, x, 0.0) + sigma * rng.standard_t(3, n)
    points = []
    for _ in range(starts):
        start = truth * rng.uniform(0.6, 1.6, 5)
        start[2] = truth[2] + rng.uniform(-0.25, 0.25)
        start[3] = truth[3] + rng.uniform(-0.6, 0.6)
        points.append(start)
    return Made("damped sine, heavy tails", fun, jac, (x, y), points)


class EssentialManifold:
    """(R, t): rotation and unit translation, packed in 12 numbers; 5 tangent parameters."""

    dim = 5

    @staticmethod
    def retract(point: Array, delta: Array) -> Array:
        rotation, t = point[:9].reshape(3, 3), point[9:]
        b1, b2 = EssentialManifold.basis(t)
        moved = t + delta[3] * b1 + delta[4] * b2
        return np.concatenate([(rotation @ expmap(delta[:3])).ravel(), moved / np.linalg.norm(moved)])

    @staticmethod
    def basis(t: Array) -> tuple[Array, Array]:
        axis = np.eye(3)[np.argmin(np.abs(t))]
        b1 = np.cross(t, axis)
        b1 /= np.linalg.norm(b1)
        return b1, np.cross(t, b1)


def expmap(w: Array) -> Array:
    angle = float(np.linalg.norm(w))
    k = cross(w)
    if angle < 1e-8:
        return np.eye(3) + k + 0.5 * k @ k
    return np.eye(3) + np.sin(angle) / angle * k + (1 - np.cos(angle)) / angle**2 * k @ k


def cross(w: Array) -> Array:
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def essential(n: int, seed: int, sigma: float = 1e-3, starts: int = 8) -> Made:
    """Sampson error of a simulated pair of cameras, normalised coordinates with Gaussian noise."""
    rng = np.random.default_rng(seed)
    rotation = expmap(rng.normal(0, 0.2, 3))
    t = rng.standard_normal(3)
    t /= np.linalg.norm(t)
    points = rng.uniform([-2, -2, 4], [2, 2, 8], (n, 3))
    seen = points @ rotation.T + t
    x1 = points[:, :2] / points[:, 2:] + sigma * rng.standard_normal((n, 2))
    x2 = seen[:, :2] / seen[:, 2:] + sigma * rng.standard_normal((n, 2))

    def parts(matrix: Array, x1: Array, x2: Array) -> tuple[Array, Array, Array]:
        a = x1 @ matrix[:, :2].T + matrix[:, 2]  # E x1
        b = x2 @ matrix[:2] + matrix[2]  # E^T x2
        return a, b, x2[:, 0] * a[:, 0] + x2[:, 1] * a[:, 1] + a[:, 2]

    def matrix_of(point: Array) -> Array:
        return cross(point[9:]) @ point[:9].reshape(3, 3)

    def fun(point: Array, x1: Array, x2: Array) -> Array:
        a, b, c = parts(matrix_of(point), x1, x2)
        return c / np.sqrt(a[:, 0] ** 2 + a[:, 1] ** 2 + b[:, 0] ** 2 + b[:, 1] ** 2)

    def jac(point: Array, x1: Array, x2: Array) -> Array:
        matrix, rotation, t = matrix_of(point), point[:9].reshape(3, 3), point[9:]
        a, b, c = parts(matrix, x1, x2)
        s = a[:, 0] ** 2 + a[:, 1] ** 2 + b[:, 0] ** 2 + b[:, 1] ** 2
        columns = [matrix @ cross(e) for e in np.eye(3)]
        columns += [cross(v) @ rotation for v in EssentialManifold.basis(t)]
        out = np.empty((len(x1), 5))
        for k, d in enumerate(columns):
            da, db, dc = parts(d, x1, x2)
            ds = a[:, 0] * da[:, 0] + a[:, 1] * da[:, 1] + b[:, 0] * db[:, 0] + b[:, 1] * db[:, 1]
            out[:, k] = dc / np.sqrt(s) - c * ds / s**1.5
        return out

    truth = np.concatenate([rotation.ravel(), t])
    begin = []
    for _ in range(starts):
        delta = np.concatenate([unit(rng, 3) * 0.2, unit(rng, 2) * np.tan(0.3)])
        begin.append(EssentialManifold.retract(truth, delta))
    return Made("essential matrix", fun, jac, (x1, x2), begin, EssentialManifold)


def unit(rng: np.random.Generator, d: int) -> Array:
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)
