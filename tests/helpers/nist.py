"""NIST StRD non-linear regression: reader of the .dat files and the 27 models.

The files hold two starts, certified parameters and their standard deviations to 11 digits, and the data. They are
not part of the repository: the environment variable PROBLM_DATA names the folder that holds ``nist_strd``.
The models take complex parameters too, so that the complex step gives their derivatives to all digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Certified:
    """One file. ``x`` is (n,), or (2, n) for the only problem with two predictors; standard errors as certified."""

    name: str
    difficulty: str
    x: np.ndarray
    y: np.ndarray
    starts: tuple[np.ndarray, np.ndarray]
    parameters: np.ndarray
    standard_deviations: np.ndarray
    sum_of_squares: float
    model: Callable[..., Any]

    def jacobian(self, x: np.ndarray, *b: float) -> np.ndarray:
        """Derivatives (n, d) by the complex step: no rounding error of a difference."""
        columns = []
        for j in range(len(b)):
            point = np.array(b, dtype=complex)
            h = 1e-30 if b[j] == 0 else 1e-30 * abs(b[j])
            point[j] += 1j * h
            columns.append(np.imag(self.model(x, *point)) / h)
        return np.stack(np.broadcast_arrays(*columns), axis=1)


def _misra1a(x, b1, b2):
    return b1 * (1 - np.exp(-b2 * x))


def _chwirut(x, b1, b2, b3):
    return np.exp(-b1 * x) / (b2 + b3 * x)


def _gauss(x, b1, b2, b3, b4, b5, b6, b7, b8):
    return b1 * np.exp(-b2 * x) + b3 * np.exp(-((x - b4) ** 2) / b5**2) + b6 * np.exp(-((x - b7) ** 2) / b8**2)


def _lanczos(x, b1, b2, b3, b4, b5, b6):
    return b1 * np.exp(-b2 * x) + b3 * np.exp(-b4 * x) + b5 * np.exp(-b6 * x)


def _cubics(x, b1, b2, b3, b4, b5, b6, b7):
    return (b1 + b2 * x + b3 * x**2 + b4 * x**3) / (1 + b5 * x + b6 * x**2 + b7 * x**3)


def _enso(x, b1, b2, b3, b4, b5, b6, b7, b8, b9):
    t = 2 * np.pi * x
    return (
        b1
        + b2 * np.cos(t / 12)
        + b3 * np.sin(t / 12)
        + b5 * np.cos(t / b4)
        + b6 * np.sin(t / b4)
        + b8 * np.cos(t / b7)
        + b9 * np.sin(t / b7)
    )


MODELS: dict[str, Callable[..., Any]] = {
    "Misra1a": _misra1a,
    "Misra1b": lambda x, b1, b2: b1 * (1 - (1 + b2 * x / 2) ** -2.0),
    "Misra1c": lambda x, b1, b2: b1 * (1 - (1 + 2 * b2 * x) ** -0.5),
    "Misra1d": lambda x, b1, b2: b1 * b2 * x / (1 + b2 * x),
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "Lanczos1": _lanczos,
    "Lanczos2": _lanczos,
    "Lanczos3": _lanczos,
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "DanWood": lambda x, b1, b2: b1 * x**b2,
    "Kirby2": lambda x, b1, b2, b3, b4, b5: (b1 + b2 * x + b3 * x**2) / (1 + b4 * x + b5 * x**2),
    "Hahn1": _cubics,
    "Nelson": lambda x, b1, b2, b3: b1 - b2 * x[0] * np.exp(-b3 * x[1]),
    "MGH17": lambda x, b1, b2, b3, b4, b5: b1 + b2 * np.exp(-x * b4) + b3 * np.exp(-x * b5),
    "Roszman1": lambda x, b1, b2, b3, b4: b1 - b2 * x - np.arctan(b3 / (x - b4)) / np.pi,
    "ENSO": _enso,
    "MGH09": lambda x, b1, b2, b3, b4: b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4),
    "Thurber": _cubics,
    "BoxBOD": _misra1a,
    "Rat42": lambda x, b1, b2, b3: b1 / (1 + np.exp(b2 - b3 * x)),
    "MGH10": lambda x, b1, b2, b3: b1 * np.exp(b2 / (x + b3)),
    "Eckerle4": lambda x, b1, b2, b3: (b1 / b2) * np.exp(-0.5 * ((x - b3) / b2) ** 2),
    "Rat43": lambda x, b1, b2, b3, b4: b1 / (1 + np.exp(b2 - b3 * x)) ** (1 / b4),
    "Bennett5": lambda x, b1, b2, b3: b1 * (b2 + x) ** (-1 / b3),
}
"""In NIST's order: lower, average, higher difficulty."""

_NUMBER = r"[-+]?\d*\.?\d+(?:[Ee][-+]?\d+)?"
_PARAMETER = re.compile(rf"^\s*b(\d+)\s*=\s*({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s*$")


def read(folder: str | Path, name: str) -> Certified:
    """Read ``folder/name.dat``."""
    lines = (Path(folder) / f"{name}.dat").read_text(encoding="ascii").splitlines()
    parameters = [[float(v) for v in m.groups()[1:]] for m in map(_PARAMETER.match, lines) if m]
    start1, start2, certified, deviations = np.array(parameters).T
    text = "\n".join(lines)
    observations = int(re.search(r"Number of Observations:\s*(\d+)", text)[1])
    # The line "Data: y x" heads the table; the first one with this word describes the variables in prose.
    head = max(i for i, line in enumerate(lines) if line.startswith("Data:"))
    table = np.array([[float(v) for v in line.split()] for line in lines[head + 1 :] if line.strip()])
    if len(table) != observations:
        raise ValueError(f"{name}: {len(table)} rows of data, {observations} certified")
    y, x = table[:, 0], table[:, 1]
    if name == "Nelson":
        y, x = np.log(y), table[:, 1:].T.copy()
    return Certified(
        name=name,
        difficulty=re.search(r"(Lower|Average|Higher) Level", text)[1].lower(),
        x=x,
        y=y,
        starts=(start1, start2),
        parameters=certified,
        standard_deviations=deviations,
        sum_of_squares=float(re.search(r"Residual Sum of Squares:\s*(\S+)", text)[1]),
        model=MODELS[name],
    )


def digits(value: np.ndarray, certified: np.ndarray) -> np.ndarray:
    """Correct decimal digits (the log relative error), from 0 to the 11 that are certified."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lre = -np.log10(np.abs(np.asarray(value) - certified) / np.abs(certified))
    return np.clip(np.nan_to_num(lre, nan=0.0, posinf=11.0, neginf=0.0), 0.0, 11.0)
