"""Pictures of the program's report, which are drawn without Matplotlib."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import problm
from problm.inference.shown import picture_png
from problm.report import canvas as drawing
from problm.report.canvas import Canvas, Panel, spread
from problm.report.drawn import solve_png
from problm.report.plots import course
from problm.report.ticks import linear_ticks, log_ticks

X = np.linspace(0.0, 4.0, 200)
Y = 2.5 * np.exp(-1.3 * X) + 0.5 + 0.05 * np.cos(40.0 * X)
DECAY = "a * exp(-b * x) + c"
SCALE = drawing._FINE / drawing._COARSE
"""Pixels per unit of length."""


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def near(image: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """(k, 2) rows and columns of the pixels of a color."""
    return np.argwhere(np.abs(image - color).max(axis=2) < 12)


def test_the_program_loads_neither_matplotlib_nor_numba(tmp_path) -> None:
    """They take longer than the fit of a thousand rows, its report and its pictures."""
    np.savetxt(tmp_path / "data.csv", np.c_[X, Y], delimiter=",", header="x,y", comments="")
    code = (
        "import sys\nfrom problm.cli import main\n"
        f"sys.argv = ['problm', 'fit', 'data.csv', '--model', 'y ~ {DECAY}', '--quiet']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "large = ('matplotlib', 'numba', 'pandas', 'pyarrow', 'PIL.JpegImagePlugin', 'scipy.optimize', 'scipy.linalg', "
        "'scipy.special', 'scipy.stats', 'scipy.sparse')\n"
        "print([name for name in large if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert (tmp_path / "fit" / "report.html").read_text().count("data:image/png") == 1  # the chart shows the data


def test_the_curve_runs_where_the_fit_says() -> None:
    """Red pixels of the upper panel descend as the curve does, and lie inside of the frame."""
    fit = problm.fit(DECAY, X, Y)
    image = pixels(picture_png(fit, 0.95))
    red = near(image, (214, 39, 40))
    upper = red[(red[:, 0] < SCALE * 440) & (red[:, 1] < SCALE * 600)]  # above the residuals, left of the legend
    left, right = upper[upper[:, 1] < SCALE * 150], upper[upper[:, 1] > SCALE * 500]
    assert left[:, 0].mean() + 100 < right[:, 0].mean()
    assert upper[:, 1].min() >= SCALE * 92


@pytest.mark.parametrize("n", [30, 30_000])
def test_the_same_fit_gives_the_same_picture(n: int) -> None:
    """Drawn here for few points, by Matplotlib for many."""
    x = np.linspace(0.0, 4.0, n)
    fit = problm.fit(DECAY, x, 2.5 * np.exp(-1.3 * x) + 0.5 + 0.05 * np.cos(40.0 * x))
    assert picture_png(fit, 0.95) == picture_png(fit, 0.95)
    assert pixels(picture_png(fit, 0.95)).std() > 5.0
    assert solve_png(fit.result) == solve_png(fit.result)


@pytest.mark.parametrize("sigma", [None, 0.1])
def test_sums_doses_and_names_of_any_letters_are_drawn(sigma: float | None) -> None:
    """Terms, error bars, logarithmic axes, and labels that Matplotlib would read as mathematics."""
    dose = np.geomspace(1e-3, 1e3, 40)
    fit = problm.fit(
        "top / (1 + (ic/x)**h)",
        dose,
        3.0 / (1 + 2.0 / dose) + 0.01,
        p0={"top": 2.5, "ic": 1.0, "h": 1.0},
        sigma=sigma,
    )
    assert len(near(pixels(picture_png(fit, 0.95)), (214, 39, 40))) > 500
    sheet = Canvas(200, 100)
    sheet.upright(20, 50, "µ_$x$ ≤ Ä\x00")
    assert pixels(sheet.png()).min() < 80


def test_points_outside_of_the_axes_lie_on_the_frame() -> None:
    panel = Panel(Canvas(100, 100), (10, 10, 90, 90), (1.0, 100.0), (0.0, 1.0), (True, False))
    assert panel.at([10.0, 1e9, -3.0, np.nan], [0.5, 2.0, 0.0, 0.0]).tolist() == [[50, 50], [90, 10], [10, 90]]


def test_axes_of_anything_have_ends() -> None:
    for values in ([], [np.nan], [0.0], [3.0, 3.0], [-1e300, 1e300], [1e-300]):
        for log in (False, True):
            low, high = spread(np.array(values), log=log)
            assert low < high
            assert len((log_ticks if log else linear_ticks)(low, high).values) < 12


def test_numbers_of_an_axis_can_be_told_apart() -> None:
    for low, high in [(1e6, 1e6 + 1), (0.0, 1e-9), (-5e-5, 5e-5), (999.0, 1001.0), (0.0, 7e12)]:
        told = linear_ticks(low, high).texts
        assert len(told) >= 3
        assert max(len(text) for text in told) <= 7
        assert len(set(told)) == len(told)


def test_without_matplotlib_there_is_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing._font.cache_clear()
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="plots need Matplotlib"):
        Canvas(10, 10)
    drawing._font.cache_clear()


def test_axes_that_count_carry_integers_only() -> None:
    for high in (1.05, 2.1, 5.0, 9.9, 30.0):
        values = linear_ticks(0.0, high, whole=True).values
        assert len(values) > 1
        assert all(v == round(v) for v in values)


def test_long_numbers_fit_on_the_sheet() -> None:
    """Days of astronomers differ in their last digits only: these are written, and the rest once."""
    sheet = Canvas(400, 300)
    Panel(sheet, (60, 20, 386, 260), (2451545.0, 2451545.5), (1e6 - 0.01, 1e6 + 0.01))
    image = pixels(sheet.png())
    assert (image[:, -2:] == 255).all()
    assert (image[:, :2] == 255).all()


def test_steps_of_one_moment_are_drawn_by_number() -> None:
    """Compiled steps end together: over time they would be one vertical line, and the batch size invisible."""
    assert course([0.2, 0.2, 0.2])[1] == course([0.1, 0.2, 0.2])[1] == "iteration"
    assert course([0.2, 0.2, 0.2])[0].tolist() == [1.0, 2.0, 3.0]
    assert course([0.1, 0.2, 0.4])[1] == course([0.1])[1] == course([])[1] == "time [ms]"
    image = pixels(solve_png(problm.fit(DECAY, X, Y).result))
    assert len(near(image, (255, 127, 14))) > 20


def test_error_bars_end_inside_of_the_frame() -> None:
    fit = problm.fit(DECAY, X, Y, sigma=1.0)
    image = pixels(picture_png(fit, 0.95))[: round(SCALE * 444)]  # without the residuals
    bars = near(image, (165, 201, 225))
    assert bars[:, 0].min() > SCALE * 20
    assert bars[:, 0].max() < SCALE * 438


def test_the_legend_hides_no_point_if_there_is_room() -> None:
    """Points in all corners: it goes to the middle."""
    sheet = Canvas(600, 400)
    panel = Panel(sheet, (50, 20, 590, 380), (0.0, 1.0), (0.0, 1.0))
    corners = panel.at([0.02, 0.98, 0.02, 0.98], [0.02, 0.02, 0.98, 0.98])
    panel.legend([("dots", "#1f77b4", "data")], "4 points", corners)
    blue = near(pixels(sheet.png()), (76, 146, 195))
    assert SCALE * 200 < blue[:, 1].mean() < SCALE * 440
