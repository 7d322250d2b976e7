"""Are the errors true? z of rms and coverage of 95 % intervals in every mode, on simulated data."""

from __future__ import annotations

from typing import Any

import numpy as np

import problm

from ...harness.summary import markdown_table

TITLE = "Standard errors"
TEXT = (
    "An exponential decay with noise of known size, three parameters: the root mean square of (estimate - truth) / "
    "standard error, which should be 1, and the share of truths within 1.96 standard errors, which should be 95 %. "
    "*Sensible*: the scale of 95 % efficiency for Gaussian noise of the size that is there; *auto*: "
    '`f_scale="auto"`. *Outliers*: a fifth of the rows have eight times the noise. *Varying*: it grows with *x*.'
)
TRUTH = np.array([2.5, 1.3, 0.5])
SIGMA = 0.2
LOSSES = ("huber", "soft_l1", "cauchy", "arctan", "geman_mcclure", "welsch", "tukey", "truncated")
NOISES = ("normal", "t3", "outliers", "varying")


def noise(kind: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    n, plain = len(x), rng.standard_normal(len(x))
    if kind == "t3":
        return SIGMA * rng.standard_t(3, n)
    if kind == "outliers":
        return SIGMA * np.where(rng.random(n) < 0.2, 8.0, 1.0) * plain
    return SIGMA * plain * (0.3 + x if kind == "varying" else 1.0)


def modes() -> dict[str, tuple[int, tuple[str, ...], float, dict[str, Any]]]:
    """Rows, kinds of noise, share of the runs, and keywords of `problm.curve_fit`."""
    found: dict[str, tuple[int, tuple[str, ...], float, dict[str, Any]]] = {
        "least squares": (300, ("normal",), 2.0, {}),
        "least squares, 30,000 rows": (30_000, ("normal",), 0.5, {}),
        "absolute_sigma": (300, ("normal",), 2.0, {"sigma": SIGMA, "absolute_sigma": True}),
        "accuracy=0.01": (200_000, ("normal",), 2.0, {"accuracy": 0.01}),
        "accuracy=0.001": (200_000, ("normal",), 2.0, {"accuracy": 0.001}),
    }
    for loss in LOSSES:
        width = problm.losses.RULES[loss].width
        found[f"{loss}, sensible"] = 1000, NOISES, 1.0, {"loss": loss, "f_scale": width * SIGMA}
        found[f"{loss}, auto"] = 1000, NOISES, 1.0, {"loss": loss, "f_scale": "auto"}
    return found


def calibrated(n: int, kind: str, runs: int, seed: int, how: dict[str, Any]) -> dict[str, Any]:
    model = problm.formula("a*exp(-b*x) + c")
    z, failures = [], 0
    for s in range(seed, seed + runs):
        rng = np.random.default_rng([9, s])
        x = rng.uniform(0, 4, n)
        y = model(x, *TRUTH) + noise(kind, x, rng)
        given = how | ({"sigma": np.full(n, how["sigma"])} if "sigma" in how else {})
        _, _, info, _, _ = problm.curve_fit(model, x, y, [2.0, 1.0, 0.4], full_output=True, **given)
        result = info["result"]
        failures += not result.success
        z.append((result.x - TRUTH) / result.standard_errors)
    values = np.array(z)
    return {"rms": float(np.sqrt(np.mean(values**2))), "coverage": float(np.mean(np.abs(values) < 1.96)),
            "failures": failures, "runs": runs}  # fmt: skip


def run(count: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for mode, (n, noises, share, how) in modes().items():
        for kind in noises:
            runs = max(int(share * count), 2)
            rows.append({"mode": mode, "rows": n, "noise": kind} | calibrated(n, kind, runs, seed, how))
        print(mode, flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [r["mode"], str(r["rows"]), r["noise"], str(r["runs"]), f"{r['rms']:.2f}", f"{100 * r['coverage']:.1f} %",
         str(r["failures"])]
        for r in rows
    ]  # fmt: skip
    return markdown_table(["mode", "rows", "noise", "fits", "z of rms", "coverage", "failures"], cells)
