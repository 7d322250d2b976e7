"""Parts of a scene that are not where a warp puts them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import problm
from problm.vision.alignment.parts import out_of_place


def texture(shape: tuple[int, int], seed: int) -> NDArray[np.float32]:
    values = gaussian_filter(np.random.default_rng(seed).normal(size=shape), 2.0)
    return (0.5 + 2.0 * values).astype(np.float32)


@pytest.mark.parametrize("shape", [(300, 400), (1300, 1400)])
def test_finds_the_parts_that_moved_and_how_far(shape: tuple[int, int]) -> None:
    first, inside = texture(shape, 1), np.ones(shape, dtype=bool)
    step = shape[0] // 30
    for moving in (0.0, 0.3, 0.8):
        columns = int(moving * shape[1])
        second = first.copy()
        second[:, :columns] = np.roll(first, step, axis=0)[:, :columns]
        share, distance = out_of_place(first, 0.8 * second + 0.1, inside)
        assert abs(share - moving) < 0.25
        assert distance == pytest.approx(step if moving else 0.0, abs=1.5)


def test_colours_and_borders_count_as_grey_inside() -> None:
    first = np.repeat(texture((300, 400), 2)[:, :, None], 3, axis=2)
    inside = np.ones((300, 400), dtype=bool)
    inside[:, 330:] = False
    second = np.where(inside[:, :, None], first, np.nan)
    assert out_of_place(first, second, inside) == (0.0, 0.0)


def test_nothing_is_said_where_nothing_is_found() -> None:
    flat, inside = np.full((300, 400), 0.5, dtype=np.float32), np.ones((300, 400), dtype=bool)
    assert out_of_place(flat, flat, inside) == (0.0, 0.0)
    assert out_of_place(texture((300, 400), 3), texture((300, 400), 4), inside) == (0.0, 0.0)
    assert out_of_place(texture((40, 40), 3), texture((40, 40), 3), inside[:40, :40]) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "right"), [("unionhouse", False), ("hartley", True), ("napiera", True)])
def test_photographs_of_buildings(name: str, right: bool) -> None:
    """The first correlates by 0.9, and its fine structure by 0.67, with most of its parts 18 pixels off. The others
    have parallax, too: some of their parts are 6 and 10 pixels off, which is said."""
    root = os.environ.get("PROBLM_DATA")
    if not root:
        pytest.skip("PROBLM_DATA is not set")
    alignment = problm.align(*(Path(root, "adelaidemrf", f"{name}{view}.png") for view in "AB"))
    assert alignment.success == right
    assert "of the parts of image 1 are about" in alignment.message
