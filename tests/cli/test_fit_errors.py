"""``problm fit`` with errors in x, with values that are only known to lie beyond a limit, and of counts."""

import json

import numpy as np
import pytest

import problm
from tests.helpers.program import call as run

CURVE = "y ~ a*exp(-t/b)"


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 5.0, 300)
    y = 3.0 * np.exp(-t) + 0.1 * rng.standard_normal(300)
    found = {
        "t (s)": t + 0.05 * rng.standard_normal(300), "dt": rng.uniform(0.03, 0.07, 300), "y": y,
        "dy": np.full(300, 0.1), "side": np.where(y < 0.2, -1, 0) + (y > 2.5),
    }  # fmt: skip
    np.savetxt(tmp_path / "t.csv", np.stack(list(found.values()), 1), "%.17g", ",", header=",".join(found), comments="")
    return tmp_path, found


def fitted(folder, *options):
    done = run("fit", "t.csv", "-m", CURVE, "--sigma", "dy", *options, "-o", "out", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    saved = json.loads((folder / "out" / "result.json").read_text())
    assert (folder / "out" / "fit.png").stat().st_size > 1000
    assert "t (s)" in (folder / "out" / "report.html").read_text()
    return saved["x"], saved["standard_errors"]


@pytest.mark.parametrize("spread", ["dt", "0.05"])
def test_errors_in_x(table, spread):
    folder, c = table
    sx = c["dt"] if spread == "dt" else 0.05
    expected = problm.fit("a*exp(-t/b)", c["t (s)"], c["y"], sigma=c["dy"], x_sigma=sx, absolute_sigma=True)
    values, errors = fitted(folder, "--x-sigma", spread, "--absolute-sigma")
    np.testing.assert_allclose(values, expected.values, rtol=1e-6)
    np.testing.assert_allclose(errors, expected.errors, rtol=1e-4)


@pytest.mark.parametrize("limits", ["side", "<0.2,>2.5"])
def test_limits(table, limits):
    folder, c = table
    y = c["y"] if limits == "side" else np.clip(c["y"], 0.2, 2.5)
    expected = problm.fit_censored("a*exp(-t/b)", c["t (s)"], y, c["side"], c["dy"])
    values, errors = fitted(folder, "--censored", limits)
    np.testing.assert_allclose(values, expected.values, rtol=1e-6)
    np.testing.assert_allclose(errors, expected.errors, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--x-sigma", "dt"], "--x-sigma needs --sigma"),
        (["--sigma", "dy", "--x-sigma", "d"], "--x-sigma: 'd' is not a column"),
        (["--sigma", "dy", "--x-sigma", "dt,dt"], "one for each of t"),
        (["--sigma", "dy", "--x-sigma", "-1"], "must not be negative"),
        (["--sigma", "dy", "--censored", "y"], "column 'y' must hold -1"),
        (["--sigma", "dy", "--censored", "<low"], "neither a column nor a limit"),
        (["--sigma", "dy", "--censored", "<1", "--x-sigma", "dt"], "cannot be combined"),
        (["--sigma", "dy", "--censored", "<1", "--group", "side"], "without --group"),
        (["--counts", "poisson", "--sigma", "dy"], "leave out --sigma"),
        (["--counts", "trials"], "--counts: 'trials' is not a column"),
        (["--counts", "poisson"], "counts must be whole numbers"),
    ],
)
def test_what_is_wrong_is_named(table, options, message):
    done = run("fit", "t.csv", "-m", CURVE, *options, "--no-output", cwd=table[0])
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("trials", ["poisson", "40", "n"])
def test_counts(tmp_path, trials):
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 10.0, 150)
    formula = "20*exp(-b*x) + c" if trials == "poisson" else "1/(1 + exp(-b*(x - c)))"
    truth = problm.formula(formula)(x, 0.5, 3.0)
    n = np.full(x.size, 40)
    y = rng.poisson(truth) if trials == "poisson" else rng.binomial(n, truth)
    np.savetxt(tmp_path / "t.csv", np.stack([x, y, n], 1), "%.17g", ",", header="x,y,n", comments="")
    done = run("fit", "t.csv", "-m", f"y ~ {formula}", "--counts", trials, "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "out" / "result.json").read_text())
    expected = problm.fit_counts(formula, x, y, trials=None if trials == "poisson" else n)
    np.testing.assert_allclose(saved["x"], expected.values, rtol=1e-6)
    np.testing.assert_allclose(saved["standard_errors"], expected.errors, rtol=1e-4)


def test_what_is_no_count_is_named_by_its_line(tmp_path):
    (tmp_path / "n.csv").write_text("# spectrum\nE,n\n" + "".join(f"{k},{k % 5}\n" for k in range(20)) + "20,2.5\n")
    done = run("fit", "n.csv", "-m", "n ~ a*E + b", "--counts", "poisson", "--no-output", cwd=tmp_path)
    assert done.returncode == 2
    assert "column 'n' has 2.5 in line 23; counts must be whole" in done.stderr
