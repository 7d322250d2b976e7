"""Distortions of `problm.vision.bundle.camera_models`, compiled: every function takes the number of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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
    """A compiled function of number, u, v and k: (u', v'), and the derivatives with respect to u and v."""

    def choice(number: int, distortion: Distortion, otherwise: Any) -> Any:
        apply = _part(distortion.apply)

        @_part
        def last(found, u, v, k):  # type: ignore[no-untyped-def]
            return apply(u, v, k)

        @_part
        def chosen(found, u, v, k):  # type: ignore[no-untyped-def]
            if found == number:
                return apply(u, v, k)
            return otherwise(found, u, v, k)

        return last if otherwise is None else chosen

    chosen = None
    for number, distortion in enumerate(distortions):
        chosen = choice(number, distortion, chosen)
    assert chosen is not None
    return chosen


def columns_by_number(distortions: Iterable[Distortion]) -> Callable[..., Any]:
    """A compiled function that writes the derivatives of a pixel with respect to the free coefficients into J (2, n).

    Its arguments: number, u, v, k, fx, fy; ``local``, the place of each column in J, -1 for one that is not free; J.
    """

    def choice(number: int, distortion: Distortion, otherwise: Any) -> Any:
        count, by_coefficients = len(distortion.names), _part(distortion.by_coefficients)

        @_part
        def last(found, u, v, k, fx, fy, local, J):  # type: ignore[no-untyped-def]
            by = by_coefficients(u, v, k, fx, fy)
            for j in range(count):
                c = local[10 + j]
                if c >= 0:
                    J[0, c], J[1, c] = by[j]

        @_part
        def chosen(found, u, v, k, fx, fy, local, J):  # type: ignore[no-untyped-def]
            if found == number:
                last(found, u, v, k, fx, fy, local, J)
            else:
                otherwise(found, u, v, k, fx, fy, local, J)

        return last if otherwise is None else chosen

    chosen = None
    for number, distortion in enumerate(distortions):
        chosen = choice(number, distortion, chosen)
    assert chosen is not None
    return chosen


coefficients = _coefficients(PLACES - 4)
distorted = distorted_by_number(DISTORTIONS)
coefficient_columns = columns_by_number(DISTORTIONS)
