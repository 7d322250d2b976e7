"""Numbers as people write them: the error has two digits, the value ends where the error does."""

import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from problm.report.numbers import with_error

CASES = [
    (1.29983, 0.01604, "1.300 ± 0.016", "1.300(16)"),
    (1700000002.00021, 0.00134, "1700000002.0002 ± 0.0013", "1700000002.0002(13)"),
    (12345678.0, 2345.0, "(1.23457 ± 0.00023)e+07", "1.23457(23)e+07"),
    (123456.0, 2345.0, "123500 ± 2300", "123500(2300)"),
    (3.2e-7, 1e-9, "(3.200 ± 0.010)e-07", "3.200(10)e-07"),
    (9.996, 0.0996, "10.00 ± 0.10", "10.00(10)"),
    (12.34, 1.26, "12.3 ± 1.3", "12.3(1.3)"),
    (1.23, 45.0, "1 ± 45", "1(45)"),
    (-0.5, 0.1, "-0.50 ± 0.10", "-0.50(10)"),
    (0.0, 0.3, "0.00 ± 0.30", "0.00(30)"),
    (0.0, 3e-9, "(0.0 ± 3.0)e-09", "0.0(3.0)e-09"),
    (1 / 3, 0.0, "0.3333333333333333 ± 0", "0.3333333333333333(0)"),
    (1 / 3, math.inf, "0.3333333333333333 ± inf", "0.3333333333333333(inf)"),
    (np.float64(1 / 3), math.nan, "0.3333333333333333 ± nan", "0.3333333333333333(nan)"),
    (1.0, 1e-30, "1.0 ± 1e-30", "1.0(1e-30)"),
]


@pytest.mark.parametrize(("value", "error", "plain", "short"), CASES)
def test_written_as_in_a_paper(value, error, plain, short):
    assert with_error(value, error) == plain
    assert with_error(value, error, "()") == short


@given(
    st.floats(-1e200, 1e200),
    st.floats(1e-200, 1e200),
)
@example(99.96, 0.996)
@example(1e16, 0.5)
def test_no_digit_is_lost(value, error):
    """What is read back differs from the value by at most a twentieth of the error, and from the error likewise."""
    text = with_error(value, error)
    found = re.fullmatch(r"\(?(\S+) ± ([^\s)]+)\)?(e[+-]\d+)?", text)
    assert found, text
    shift = Decimal(1 if found[3] is None else f"1{found[3]}")
    read = Decimal(found[1]) * shift
    assert float(read) == value or abs(read - Decimal(value)) <= Decimal(error) * Decimal("0.0501")
    assert abs(Decimal(found[2]) * shift - Decimal(error)) <= Decimal(error) * Decimal("0.0501")


def test_the_style_is_checked():
    with pytest.raises(ValueError, match="style must be"):
        with_error(1.0, 0.1, "pm")
