"""The scale of a robust loss from the data."""

import numpy as np
import pytest

import problm
from problm.losses import RULES

DECAY = problm.formula("a*exp(-b*x) + c")
TRUTH = np.array([2.5, 1.3, 0.5])
ROBUST = [name for name in RULES if name != "linear"]


def data(n, seed=0, share=0.2, noise=0.2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 4, n)
    errors = noise * np.where(rng.random(n) < share, 10.0, 1.0) * rng.standard_normal(n)
    return x, DECAY(x, *TRUTH) + errors


def numpy_decay(x, a, b, c):
    return a * np.exp(-b * x) + c


@pytest.mark.parametrize("loss", ROBUST)
@pytest.mark.parametrize("f", [DECAY, numpy_decay], ids=["formula", "numpy"])
def test_the_scale_is_the_noise_times_the_width_of_the_loss(loss, f):
    popt, _, info, _, _ = problm.curve_fit(*(f, *data(2000)), [2, 1, 0], loss=loss, f_scale="auto", full_output=True)
    result = info["result"]
    assert result.success
    assert result.f_scale / RULES[loss].width == pytest.approx(
        0.2 * 1.25, rel=0.15
    )  # outliers widen the median a little
    assert (np.abs(popt - TRUTH) <= 4 * result.standard_errors).all()


def test_a_sample_is_enough_and_units_do_not_matter():
    x, y = data(300_000)
    fit = problm.least_squares(DECAY, [2, 1, 0], data=(x, y), loss="huber", f_scale="auto")
    small = problm.least_squares(DECAY, [2, 1, 0], data=(x[:5000], y[:5000]), loss="huber", f_scale="auto")
    large = problm.least_squares(DECAY, [2e6, 1, 0], data=(x, 1e6 * y), loss="huber", f_scale="auto")
    assert small.f_scale == pytest.approx(fit.f_scale, rel=0.05)
    assert large.f_scale == pytest.approx(1e6 * fit.f_scale, rel=1e-6)


def test_blocks_plain_functions_and_functions_beyond_their_row():
    rng = np.random.default_rng(3)
    points = rng.normal([1.0, 2.0], 0.3, (4000, 2))
    blocks = problm.least_squares(lambda t, p: p - t, [0.0, 0.0], data=(points,), loss="cauchy", f_scale="auto")
    assert blocks.f_scale / RULES["cauchy"].width == pytest.approx(0.3, rel=0.05)
    x, y = data(500)
    plain = problm.least_squares(lambda t: numpy_decay(x, *t) - y, [2.0, 1.0, 0.0], loss="huber", f_scale="auto")
    rows = problm.least_squares(lambda t, x, y: numpy_decay(x, *t) - y, [2.0, 1.0, 0.0], data=(x, y), loss="huber",
                                f_scale="auto")  # fmt: skip
    assert plain.f_scale == pytest.approx(rows.f_scale, rel=1e-6)
    x, y = (np.sort(c) if c is not y else c for c in data(50_000))
    beyond = problm.least_squares(
        lambda t, x, y: t[0] * (x - x.mean()) + t[1] - 3.0 * (x - x.mean()) - y, [1.0, 0.0], data=(x, 0.1 * y),
        loss="soft_l1", f_scale="auto",
    )  # fmt: skip
    assert beyond.row_wise is False
    assert beyond.f_scale > 0


def test_a_bounded_loss_starts_where_it_sees_rows():
    x, y = data(3000)
    fit = problm.least_squares(DECAY, [9.0, 0.2, 7.0], data=(x, y), loss="tukey", f_scale="auto")
    assert fit.success
    assert (np.abs(fit.x - TRUTH) <= 4 * fit.standard_errors).all()


def test_fit_takes_it_and_the_result_keeps_it(tmp_path):
    x, y = data(400)
    fit = problm.fit("y ~ a*exp(-b*x) + c", x, y, loss="huber", f_scale="auto")
    assert fit.result.f_scale > 0
    fit.result.save(tmp_path / "result.json")
    assert problm.Result.load(tmp_path / "result.json").f_scale == fit.result.f_scale
    assert problm.least_squares(DECAY, [2, 1, 0], data=(x, y)).f_scale is None


def test_what_cannot_have_a_scale_is_refused():
    x, y = data(50)
    for loss in ("linear", lambda z: (z, 1 + 0 * z), problm.losses.Loss.named("huber", 2.0)):
        with pytest.raises(ValueError, match="robust loss by name"):
            problm.least_squares(DECAY, [2, 1, 0], data=(x, y), loss=loss, f_scale="auto")
    with pytest.raises(ValueError, match="f_scale must be a positive number"):
        problm.least_squares(DECAY, [2, 1, 0], data=(x, y), loss="huber", f_scale="automatic")
    exact = DECAY(x, *TRUTH)
    with pytest.raises(ValueError, match="no noise"):
        problm.least_squares(DECAY, TRUTH, data=(x, exact), loss="huber", f_scale="auto")


def test_a_scale_that_is_too_small_is_told():
    x, y = data(1000, share=0.0)
    small = problm.least_squares(DECAY, [2, 1, 0.4], data=(x, y), loss="tukey", f_scale=0.2)
    wide = problm.least_squares(DECAY, [2, 1, 0.4], data=(x, y), loss="tukey", f_scale=0.8)
    assert "widen f_scale" in small.message
    assert "widen f_scale" not in wide.message
