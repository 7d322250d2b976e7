"""Distortions of `problm.vision.bundle.camera_models`, compiled: every function takes the number of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...jit.choice import by_number
from ...jit.njit import part
from .camera_models import DISTORTIONS, PLACES, Distortion

POSE = 12
"""Index of the intrinsics in an image's row of numbers, after R row by row and t."""
NUMBER = POSE + PLACES
"""Index of the number of its distortion, at the end of the row."""
COLUMNS = 6 + PLACES
"""Possible columns of an image: 6 of the pose, and its intrinsics."""
_part = part(forceinline=True, nogil=True, error_model="numpy")


def _coefficients(count: int) -> Callable[..., Any]:
    """A compiled function: the coefficients of image i as a tuple, which needs no memory."""
    at = POSE + 3 + count

    @_part
    def first(cams, i):  # type: ignore[no-untyped-def]
        return (cams[i, at],)

    if count == 1:
        return first
    others = _coefficients(count - 1)

    @_part
    def more(cams, i):  # type: ignore[no-untyped-def]
        return others(cams, i) + (cams[i, at],)  # noqa: RUF005 (Numba knows no other way)

    return more


def distorted_by_number(distortions: Iterable[Distortion]) -> Callable[..., Any]:
    """A compiled function of number, u, v and k: (u', v'), and the derivatives by u and v."""
    return by_number([_part(distortion.apply) for distortion in distortions])


def columns_by_number(distortions: Iterable[Distortion]) -> Callable[..., Any]:
    """A compiled function that writes the derivatives of a pixel by the free coefficients into J (2, n).

    Its arguments: number, u, v, k, fx, fy; ``local``, the place of each column in J, -1 for one that is not free; J.
    """

    def columns(distortion: Distortion) -> Callable[..., Any]:
        count, by_coefficients = len(distortion.names), _part(distortion.by_coefficients)

        @_part
        def write(u, v, k, fx, fy, local, J):  # type: ignore[no-untyped-def]
            by = by_coefficients(u, v, k, fx, fy)
            for j in range(count):
                c = local[10 + j]
                if c >= 0:
                    J[0, c], J[1, c] = by[j]

        return write

    return by_number([columns(distortion) for distortion in distortions])


coefficients = _coefficients(PLACES - 4)
distorted = distorted_by_number(DISTORTIONS)
coefficient_columns = columns_by_number(DISTORTIONS)
