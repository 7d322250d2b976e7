"""Forty families of formulas that the method was not made on, and those of them whose parameters may run away."""

from __future__ import annotations

from typing import Any

from tests.helpers import wild_problems

from . import claims

TITLE = "Families of formulas"
TEXT = (
    "Growth, saturation, kinetics, spectra, circles, kinks, times since 1970, redundant parameters, weights "
    "over many decades (`tests/helpers/wild_problems.py`); noise, rows, starts, bounds and losses vary."
)
SATURATED = ("rise only", "step only", "saturated", "logarithm", "edge", "Gompertz", "Hill", "logistic growth")
SATURATED_TEXT = "Data that determine some parameters hardly or not at all: the best value may lie at infinity."


def run(count: int, seed: int, families: tuple[str, ...] = tuple(wild_problems.FAMILIES)) -> list[dict[str, Any]]:
    rows = []
    for family in families:
        made = (wild_problems.make(family, s) for s in range(seed, seed + max(count // len(families), 1)))
        problems = ((wild.fit, lambda wild=wild: wild_problems.solved(wild)) for wild in made)
        rows += claims.timed(lambda family=family, problems=problems: claims.count(family, problems), family)
    return rows


def run_saturated(count: int, seed: int) -> list[dict[str, Any]]:
    return run(count, seed, SATURATED)
