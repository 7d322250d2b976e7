"""The benchmark curves as JAX functions: ``model(theta, (x, y)) -> residuals``."""

from __future__ import annotations

from typing import Any


def residuals(name: str) -> Any:
    import jax.numpy as jnp

    def exponential(t: Any, data: Any) -> Any:
        x, y = data
        return t[0] * jnp.exp(-t[1] * x) + t[2] - y

    def double_gaussian(t: Any, data: Any) -> Any:
        x, y = data
        u, v = (x - t[1]) / t[2], (x - t[4]) / t[5]
        return t[0] * jnp.exp(-0.5 * u * u) + t[3] * jnp.exp(-0.5 * v * v) + t[6] + t[7] * x - y

    def damped_sine(t: Any, data: Any) -> Any:
        x, y = data
        return t[0] * jnp.exp(-t[1] * x) * jnp.sin(t[2] * x + t[3]) + t[4] - y

    models = {
        "exponential": exponential,
        "double Gaussian + line": double_gaussian,
        "damped sine, heavy tails": damped_sine,
    }
    if name not in models:
        raise ValueError(f"there is no JAX form of {name!r}")
    return models[name]


def arrays(instance: Any) -> tuple[Any, Any]:
    """The data as JAX arrays, made once per instance and outside the clock."""
    import jax

    jax.config.update("jax_enable_x64", True)
    kept = getattr(instance, "_jax", None)
    if kept is None:
        import jax.numpy as jnp

        kept = tuple(jnp.asarray(a) for a in instance.extra.data)
        instance._jax = kept
    return kept
