"""Columns of Arrow's, converted without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from problm.data.arrow import float64_column
from tests.helpers.program import unwatched

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize("chunks", [[[1.0, 2.0, 3.0]], [[1.0, None, 3.0] * 7, [], [None, 5.0]], [[]], []])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_as_arrow_converts_them(chunks, start):
    column = pa.chunked_array([pa.array(c, pa.float64()) for c in chunks], pa.float64()).slice(start)
    np.testing.assert_array_equal(float64_column(column), column.to_numpy())


def test_a_text_file_is_read_without_pandas(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n1,2\n3,nan\n")
    code = f"""
import sys
from problm.data.tables import read_columns
print(read_columns({str(path)!r}, ["x", "y"])["y"].tolist(), "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], env=unwatched(), capture_output=True, text=True, check=False)
    assert done.stdout == "[2.0, nan] False\n", done.stderr
