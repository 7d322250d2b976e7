"""Code compiled ahead of time: the same bits, without Numba; checked before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from problm.jit import build, library, types
from tests.helpers.program import unwatched

SOME = ("problm.manifolds.rotation_exp", "problm.manifolds.as_rotation", "problm.jit.gram.add_products")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a library of a few functions."""
    folder = tmp_path_factory.mktemp("cache") / "problm"
    try:
        build.build(to=folder, only=SOME, jobs=1)
    except RuntimeError as error:
        pytest.skip(str(error))
    return folder


def run(folder, code, **environment):
    """Standard output and error of a program, which finds what is in the folder."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, logging, numpy as np\nimport problm.manifolds as m\n{code}"],
        env=unwatched(NUMBA_CACHE_DIR=str(folder.parent), **environment), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_the_same_bits_without_numba(made):
    code = """
w = np.array([0.3, -1.2, 0.7])
R = m.rotation_exp(w)
print(R.tobytes().hex(), m.as_rotation(R * 1.01)[1].hex(), R.flags.writeable, R.flags.c_contiguous)
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""
    (fast, known), (slow, compiled) = (run(made, code, PROBLM_COMPILED=k)[0].splitlines() for k in "10")
    assert fast == slow
    assert (known, compiled) == ("False False", "True True")


def test_code_for_older_processors_has_the_same_bits(made, tmp_path):
    if not library.features().issuperset(library.TARGETS["x86-64-v2"]):
        pytest.skip("another kind of processor")
    build.build("x86-64-v2", tmp_path, only=SOME, jobs=1)
    code = f"""
from pathlib import Path
import problm.jit.library as library
library.SHIPPED = Path({str(tmp_path)!r})
print(m.rotation_exp(np.array([0.3, -1.2, 0.7])).tobytes().hex(), "numba" in sys.modules, library.candidates()[0].name)
"""
    own = run(made, code)[0].split()
    shipped = run(tmp_path / "elsewhere", code)[0].split()
    assert own[:2] == shipped[:2]
    assert (own[2], shipped[2]) == (library.file_name(library.this_machine()), library.file_name("x86-64-v2"))


def test_other_types_are_compiled(made):
    code = """
w = np.array([0.3, 9.0, -1.2, 9.0, 0.7, 9.0])
print(np.array_equal(m.rotation_exp(w[::2]), m.rotation_exp(w[::2].copy())), "numba" in sys.modules)
w = np.array([1, 0, 0])
print(np.array_equal(m.rotation_exp(w), m.rotation_exp(w.astype(float))))
try:
    m.rotation_exp(w, w)
except TypeError as error:
    print("too many" in str(error) or "argument" in str(error))
"""
    assert run(made, code)[0].split() == ["True", "True", "True", "True"]


def test_nothing_is_held_that_is_not_used(made):
    code = """
import tracemalloc
w = np.array([0.3, -1.2, 0.7])
def many(n):
    for _ in range(n):
        R = m.rotation_exp(w)
        m.as_rotation(R)
many(100)
before = sys.getrefcount(w)
import resource
many(20_000)
low = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
many(100_000)
print(sys.getrefcount(w) - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - low < 4000)
"""
    assert run(made, code)[0] == "0 True"


def test_changed_sources_are_compiled(made):
    code = """
from problm.jit import library, sources
before = library.code(m.rotation_exp.py_func) is not None
sources.content.cache_clear(), sources.digest.cache_clear()
real = sources.content
sources.content = lambda file: "changed" if file.endswith("manifolds.py") else real(file)
print(before, library.code(m.rotation_exp.py_func) is None)
"""
    assert run(made, code)[0] == "True True"


@pytest.mark.parametrize("damage", [b"", b"\x7fELF and more", b"no library"])
def test_a_damaged_library_is_bypassed_with_a_sentence(made, tmp_path, damage):
    broken = tmp_path / "problm"
    broken.mkdir()
    (broken / library.file_name(library.this_machine())).write_bytes(damage)
    out, said = run(broken, "print(m.rotation_exp(np.zeros(3))[0, 0])")
    assert out == "1.0"
    assert "cannot be loaded" in said


def test_a_processor_that_cannot_run_it_does_not_load_it(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "SHIPPED", tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    for target in library.TARGETS:
        (tmp_path / library.file_name(target)).touch()
    monkeypatch.setattr(library, "features", lambda: {"SSE42", "POPCNT", "AVX2"})
    assert [p.name for p in library.candidates()] == [library.file_name("x86-64-v2")]
    monkeypatch.setattr(library, "features", lambda: {"NEON"})
    assert library.candidates() == []


def test_types_are_those_of_numba():
    signature = types.Tuple((types.float64, types.UniTuple(types.int64, 2)))(
        types.float64[:, ::1], types.Array(types.uint8, 3, "A", readonly=True), types.boolean
    )
    assert types.signature(signature.code) == signature
    assert str(signature.numba) == str(types.signature(signature.code).numba)
    assert str(types.void(types.float32[:]).numba) == "(Array(float32, 1, 'A', False, aligned=True),) -> none"


def test_without_a_compiler_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda command: None)
    with pytest.raises(RuntimeError, match="no C compiler"):
        build.build()
