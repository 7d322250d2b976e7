"""Groups, doubtful fits, completion and messages of ``problm fit``; the line of progress."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from problm.cli.exits import DOUBTFUL, Bad
from problm.cli.fit import complete_model, in_options
from problm.report.progress import Remaining
from tests.helpers.program import call as run


@pytest.fixture
def plate(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["dose (uM);well;resp"]
    for well, (height, half) in {"A1": (100, 0.5), "A2": (80, 2.0), "B1": (120, 0.1)}.items():
        for dose in np.geomspace(0.01, 100, 12):
            value = height * dose / (half + dose) + 2.0 * rng.standard_normal()
            lines.append(f"{dose:.4f};{well};{value:.3f}".replace(".", ","))
    (tmp_path / "plate.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_one_fit_for_each_group(plate):
    done = run("fit", "plate.csv", "-m", "resp ~ h*dose/(k + dose)", "--group", "well", "-o", "out", cwd=plate)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:5]] == ["A1", "A2", "B1"]
    saved = json.loads((plate / "out" / "result.json").read_text())
    halves = [group["parameters"]["k"]["value"] for group in saved["groups"].values()]
    np.testing.assert_allclose(halves, [0.5, 2.0, 0.1], rtol=0.3)
    page = (plate / "out" / "report.html").read_text()
    assert all(f"<td>{well}</td>" in page for well in ("A1", "A2", "B1"))
    assert (plate / "out" / "fit.png").stat().st_size > 1000


def test_names_of_ready_made_models_need_no_response(plate):
    """The first columns that are not labels are x and y; mirrored curves do not occur, however they are written."""
    for model, half in {
        "logistic_4pl": ("ec50", [0.5, 2.0, 0.1]),
        "resp ~ low + (high - low)/(1 + exp(-k*(log(dose) - m)))": ("m", np.log([0.5, 2.0, 0.1])),
    }.items():
        done = run("fit", "plate.csv", "-m", model, "--group", "well", "-o", "out", "--force", cwd=plate)
        assert done.returncode == 0, done.stderr
        groups = json.loads((plate / "out" / "result.json").read_text())["groups"].values()
        np.testing.assert_allclose([g["parameters"][half[0]]["value"] for g in groups], half[1], rtol=0.4, atol=0.2)
        assert all(g["parameters"]["slope" if "slope" in g["parameters"] else "k"]["value"] > 0 for g in groups)
    done = run("fit", "plate.csv", "-m", "logistic_4p", "--no-output", cwd=plate)
    assert done.returncode == 2
    assert "did you mean 'logistic_4pl'?" in done.stderr


def test_shared_parameters_and_strictness(plate):
    options = ("fit", "plate.csv", "-m", "resp ~ h*dose/(k + dose)", "--group", "well", "--no-output")
    done = run(*options, "--shared", "k", "--strict", cwd=plate)
    assert done.returncode in (0, DOUBTFUL), done.stderr
    assert "h_A1" in done.stdout
    done = run(*options, "--shared", "q", cwd=plate)
    assert done.returncode == 2
    assert "--shared: the model has no parameter 'q'" in done.stderr
    done = run("fit", "plate.csv", "-m", "resp ~ a*dose", "--no-output", "--strict", cwd=plate)
    assert done.returncode == DOUBTFUL
    assert "warning: " in done.stdout


def test_completion_of_models():
    assert "lorentzian" in complete_model("lo")
    assert complete_model("y ~ gaussian + lin") == ["y ~ gaussian + line"]
    assert complete_model("y ~ gauss") == ["y ~ gaussian", "y ~ gaussian_2d"]


def test_messages_speak_of_options():
    with pytest.raises(Bad, match=r"^--f-scale must be positive"), in_options():
        raise ValueError("f_scale must be positive")
    with pytest.raises(Bad, match=r"remove such rows, or pass --nan omit to"), in_options():
        raise ValueError("remove such rows, or pass nan_policy='omit' to leave them out")
    with pytest.raises(ValueError, match=r"^nothing of the kind$"), in_options():
        raise ValueError("nothing of the kind")


def test_the_remaining_time_is_not_that_of_small_batches():
    """A job of 10 million rows: 1 ms per iteration and 0.2 us per row, three iterations over everything."""
    n, clock = 10_000_000, 1.0
    remaining = Remaining()
    estimates = []
    for size in (200, 400, 2_000, 20_000, 100_000, 200_000):
        clock += 1e-3 + 2e-7 * size
        state = SimpleNamespace(seconds=clock, batch_size=size, n=n)
        remaining.add(state)
        estimates.append(remaining.seconds(state))
    left = 3 * 2e-7 * n
    assert left / 3 < estimates[-1] < 3 * left
    assert all(math.isnan(e) or e < 20 * left for e in estimates)
    for _ in range(2):
        clock += 2.0
        state = SimpleNamespace(seconds=clock, batch_size=n, n=n)
        remaining.add(state)
        left -= 2.0
        assert left / 3 < remaining.seconds(state) < 3 * left


def test_euler_is_told(plate):
    done = run("fit", "plate.csv", "-m", "resp ~ h*dose/(e + dose)", "--no-output", cwd=plate)
    assert "e in the formula is Euler's number" in done.stderr


@pytest.fixture
def protocol(tmp_path):
    """A sheet as plate readers write it: text in the first two columns, notes above the table."""
    openpyxl = pytest.importorskip("openpyxl")
    book, rng = openpyxl.Workbook(), np.random.default_rng(4)
    sheet = book.active
    for row in (["Protocol v1"], [], ["Well", "Compound", "Dose [nM]", "Inhibition (%)"]):
        sheet.append(row)
    for compound, half in {"Cmpd A": 3.0, "Cmpd B": 40.0}.items():
        for k, dose in enumerate(np.geomspace(0.1, 1000, 12).tolist()):
            sheet.append([f"A{k + 1}", compound, dose, 100 * dose / (dose + half) + 2 * rng.standard_normal()])
    book.save(tmp_path / "plate.xlsx")
    return tmp_path


@pytest.mark.parametrize("model", ['"Inhibition (%)" ~ logistic_4pl', "logistic_4pl"])
def test_groups_of_a_workbook_by_their_labels(protocol, model):
    done = run("fit", "plate.xlsx", "-m", model, "--group", "Compound", "-o", "out", cwd=protocol)
    assert done.returncode == 0, done.stderr
    groups = json.loads((protocol / "out" / "result.json").read_text())["groups"]
    assert list(groups) == ["Cmpd A", "Cmpd B"]
    np.testing.assert_allclose([g["parameters"]["ec50"]["value"] for g in groups.values()], [3, 40], rtol=0.3)
    done = run("fit", "plate.xlsx", "-m", "Inhibition ~ a*Well", "--no-output", cwd=protocol)
    assert "'A1' is not a number" in done.stderr


def test_groups_of_a_parquet_file_by_their_labels(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x, rng = np.tile(np.linspace(0.1, 8.0, 60), 2), np.random.default_rng(0)
    labels = np.repeat(["cold", "warm"], 60)
    y = 5.0 * np.exp(-x / np.where(labels == "cold", 3.0, 1.0)) + 0.01 * rng.standard_normal(x.size)
    table = arrow.table({"sample": arrow.array(labels).dictionary_encode(), "t": x, "y": y})
    parquet.write_table(table, tmp_path / "t.parquet")
    done = run("fit", "t.parquet", "-m", "y ~ h*exp(-t/decay)", "--group", "sample", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    groups = json.loads((tmp_path / "out" / "result.json").read_text())["groups"]
    assert list(groups) == ["cold", "warm"]
    np.testing.assert_allclose([g["parameters"]["decay"]["value"] for g in groups.values()], [3.0, 1.0], rtol=0.02)


def test_names_that_are_nearly_those_of_ready_made_models(plate):
    done = run("fit", "plate.csv", "-m", "resp ~ gaussian + constant", "--no-output", cwd=plate)
    assert done.returncode == 2
    assert "'constant' is no ready-made model (did you mean 'constant_background'?)" in done.stderr


def test_the_page_names_axes_with_units_and_shows_no_more_digits_than_the_errors(plate):
    done = run("fit", "plate.csv", "-m", "resp ~ h*dose/(k + dose) + c", "--bounds", "c=0:0.1", "-o", "out", cwd=plate)
    assert done.returncode == 0, done.stderr
    page = (plate / "out" / "report.html").read_text()
    assert "dose (uM)" in page
    cells = dict(re.findall(r"<td>([hkc])</td><td>[^<]*</td><td>([^<]*)</td>", page))
    low, high = cells["k"].split(" to ")
    error = json.loads((plate / "out" / "result.json").read_text())["standard_errors"][1]
    assert abs((float(high) - float(low)) / (4 * error) - 1) < 0.1
    assert max(len(text.partition(".")[2]) for text in (low, high)) <= 2 - math.floor(math.log10(error))
    assert cells["c"] == ""  # at its bound


def test_rows_without_numbers_are_left_out_with_their_labels(plate):
    """Named by line, or left out with --nan omit; the variable may stand in parentheses."""
    lines = (plate / "plate.csv").read_text().splitlines()
    for k in (3, 17, 30):
        lines[k] = lines[k].rpartition(";")[0] + ";"
    (plate / "gaps.csv").write_text("\n".join(lines) + "\n")
    options = ("-m", 'resp ~ michaelis_menten("dose (uM)")', "--group", "well", "-o", "out", "--force")
    done = run("fit", "gaps.csv", *options, cwd=plate)
    assert done.returncode == 2
    assert "in line 4 (and 2 more)" in done.stderr
    done = run("fit", "gaps.csv", *options, "--nan", "omit", cwd=plate)
    assert done.returncode == 0, done.stderr
    groups = json.loads((plate / "out" / "result.json").read_text())["groups"]
    assert [g["points"] for g in groups.values()] == [11, 11, 11]
    np.testing.assert_allclose([g["parameters"]["km"]["value"] for g in groups.values()], [0.5, 2.0, 0.1], rtol=0.4)
    done = run("fit", "plate.csv", "-m", "resp ~ hill(dose) + line(well)", "--no-output", cwd=plate)
    assert done.returncode == 2
    assert "same variables" in done.stderr
