"""A hundred families of formulas that the method was not made on, and those whose parameters may run away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.helpers import field_problems, wild_problems

from . import claims

Make = Callable[[str, int], wild_problems.Wild]
TITLE = "Families of formulas"
TEXT = (
    "Growth, saturation, kinetics, spectra, circles, kinks, times since 1970, redundant parameters, weights "
    "over many decades (`tests/helpers/wild_problems.py`); noise, rows, starts, bounds and losses vary."
)
FIELDS = "More fields, starts near, far and guessed"
FIELDS_TEXT = (
    "Compartments, doses, line shapes with phase, poles, edges, kinks, distances, distributions, potentials, redundant "
    "and logarithmic parameters (`tests/helpers/field_problems.py`); starts are near, off, far, or the formula's own "
    "guess; a tenth of the data in single precision."
)
SATURATED = ("rise only", "step only", "saturated", "logarithm", "edge", "Gompertz", "Hill", "logistic growth")
SATURATED_TEXT = "Data that determine some parameters hardly or not at all: the best value may lie at infinity."


def run(
    count: int, seed: int, families: tuple[str, ...] = tuple(wild_problems.FAMILIES), make: Make = wild_problems.make
) -> list[dict[str, Any]]:
    rows = []
    for family in families:
        made = (make(family, s) for s in range(seed, seed + max(count // len(families), 1)))
        problems = ((wild.fit, lambda wild=wild: wild_problems.solved(wild)) for wild in made)
        rows += claims.timed(lambda family=family, problems=problems: claims.count(family, problems), family)
    return rows


def run_fields(count: int, seed: int) -> list[dict[str, Any]]:
    return run(count, seed, tuple(field_problems.FAMILIES), field_problems.make)


def run_saturated(count: int, seed: int) -> list[dict[str, Any]]:
    return run(count, seed, SATURATED)
