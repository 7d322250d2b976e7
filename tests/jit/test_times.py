"""Times shown to people do not include compiling."""

from __future__ import annotations

import time

import numpy as np

import problm
from problm.support import compiling


def test_compilation_within_compilation_is_counted_once():
    before = compiling.seconds()
    with compiling.compiling(), compiling.compiling():
        time.sleep(0.05)
    assert 0.05 <= compiling.seconds() - before < 0.1


def test_a_result_leaves_out_what_was_compiled():
    x = np.linspace(0.0, 1.0, 50)

    def slow(x, a, b):
        if not told:
            told.append(True)
            with compiling.compiling():
                time.sleep(0.5)
        return a * np.exp(b * x)

    told = []
    began = time.perf_counter()
    # called for the first time within the solve: nothing looks at the function before
    result = problm.least_squares(lambda p: slow(x, *p) - np.exp(x), [1.2, 0.8])
    assert time.perf_counter() - began > 0.5
    assert result.seconds < 0.4
    assert max(result.history.seconds) < 0.4
