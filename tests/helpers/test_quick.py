"""Which tests `make quick` runs."""

from __future__ import annotations

import pytest

from tests.helpers.quick import paths_for


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/problm/jit/cache.py", ["src/problm/jit/cache.py", "tests/jit/test_cache.py"]),
        ("src/problm/jit/gram.py", ["src/problm/jit/gram.py", "tests/jit"]),
        ("src/problm/manifolds.py", ["src/problm/manifolds.py", "tests/test_manifolds.py"]),
        ("tests/jit/test_cache.py", ["tests/jit/test_cache.py"]),
        ("tests/helpers/program.py", []),
        ("README.md", []),
        ("src/problm/gone.py", []),
    ],
)
def test_of_a_file(file, expected):
    assert paths_for(file) == expected
