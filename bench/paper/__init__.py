"""The experiments, one small description per file."""

from __future__ import annotations

import importlib

from ..harness.run import Experiment

NAMES = (
    "alignment", "alignment-paper", "essential", "essential-robust", "conditions", "ransac", "bundle", "curves",
    "calibration", "scaling",
)  # fmt: skip
"""Experiments in the order of the paper's figures, then those that the paper does not show."""


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in NAMES:
        raise ValueError(f"there is no experiment {name!r}; choose one of {', '.join(NAMES)} or all")
    found = importlib.import_module(f".{name.replace('-', '_')}", __package__).EXPERIMENT
    assert isinstance(found, Experiment)
    return found
