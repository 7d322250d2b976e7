"""Build the library of code compiled ahead of time (`problm.jit.library`).

Each function is compiled by Numba as on its first call. The LLVM module is then written again as position-independent
code, with symbols renamed so that functions do not collide. A C compiler links all of them with the frame
``library.c``.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import importlib.util
import logging
import os
import pickle
import pkgutil
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from inspect import getsource
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np

from ..support.files import write_atomically
from .folder import folder, refuse_strangers
from .library import MODULE, SHIPPED, TARGETS, file_name, name_of, this_machine
from .njit import FUNCTIONS, Function
from .seal import check_seal, sealed
from .sources import digest
from .types import Signature


class Piece(NamedTuple):
    """The code of one function for one signature."""

    key: str
    """The file is ``key.o``, the symbols ``problm_key_code``, ``problm_key_entry``, ``problm_key_environment0``, ..."""
    name: str
    digest: str
    signature: str
    environments: int
    constants: bytes
    object_digest: str


Progress = Callable[[int, int], None] | None
_COMPILES = re.compile(rb"^from \.+(jit\b|njit )", re.MULTILINE)


def build(
    target: str | None = None,
    to: Path | None = None,
    *,
    only: Iterable[str] | None = None,
    jobs: int | None = None,
    progress: Progress = None,
) -> Path:
    """Compile everything (or ``only`` some names) into a library, for a processor by LLVM's name or for this machine.

    The library is written to the folder ``to``. Raises RuntimeError with the reason if that is not possible.
    """
    compiler = c_compiler()
    to = (folder() if to is None else to) / file_name(target or this_machine())
    settings = {} if target is None else {"CPU_NAME": target, "CPU_FEATURES": ""}
    load_all()
    to.parent.mkdir(parents=True, exist_ok=True)
    objects = folder() / f"{to.stem}.objects"  # kept, so that only what a change affects is compiled again
    objects.mkdir(parents=True, exist_ok=True)
    known = {name_of(f.py_func) for f in FUNCTIONS if f.signatures}
    names = sorted(known if only is None else known.intersection(only))
    pieces = _everywhere(partial(_compile, objects), names, settings, jobs, progress)
    _join(compiler, objects, pieces, to)
    return to


def compile_into_cache(names: list[str], jobs: int | None = None, progress: Progress = None) -> None:
    """Compile functions into the cache on disk, as their first calls would."""
    _everywhere(_keep, names, {}, jobs, progress)


def _everywhere(
    work: Callable[[list[str]], list[Piece]],
    names: list[str],
    settings: dict[str, str],
    jobs: int | None,
    progress: Progress,
) -> list[Piece]:
    """Run work on functions in several processes; return the results in a fixed order.

    Functions of one module go to one process, since they share the parts that they call. The longest come first.
    """
    modules = {name.rpartition(".")[0] for name in names}
    groups = [[name for name in names if name.rpartition(".")[0] == module] for module in modules]
    groups.sort(key=lambda group: (-sum(map(_lines, group)), group))
    done, pieces = 0, list[Piece]()
    with ProcessPoolExecutor(jobs or os.cpu_count(), get_context("spawn"), _prepare, (settings,)) as pool:
        futures = {pool.submit(work, group): len(group) for group in groups}
        try:
            for future in as_completed(futures):
                pieces += future.result()
                done += futures[future]
                if progress is not None:
                    progress(done, len(names))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(pieces, key=lambda piece: (piece.name, piece.signature))


def _lines(name: str) -> int:
    """Number of lines of a function, a measure of the time that it takes to compile."""
    return max(len(getsource(f.py_func).splitlines()) for f in FUNCTIONS if name_of(f.py_func) == name)


def c_compiler() -> list[str]:
    """Return the command of a C compiler; raise RuntimeError with what is missing if there is none."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = (command or "").split()
        if words and shutil.which(words[0]):
            break
    else:
        raise RuntimeError("no C compiler is installed")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise RuntimeError("the header files of Python are not installed (python3-dev)")
    return words


def load_all() -> None:
    """Import every module that imports from this room, so that all functions are registered."""
    package = importlib.import_module(__name__.partition(".")[0])
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        found = importlib.util.find_spec(module.name)
        if found is not None and found.origin and _COMPILES.search(Path(found.origin).read_bytes()):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an optional package
                continue


def _prepare(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        setattr(numba.config, name, value)
    logging.getLogger("problm").setLevel(logging.ERROR)  # the caller reports what is compiled
    load_all()
    # Numba's objects live as long as the process: looking for garbage among them takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 100, 100)


def _compile(place: Path, names: list[str]) -> list[Piece]:
    """Write the objects of all functions of these names; a function may be compiled for several types."""
    return [
        _piece(function, signature, place)
        for name in names
        for function in FUNCTIONS
        if name_of(function.py_func) == name
        for signature in function.signatures
    ]


def _keep(names: list[str]) -> list[Piece]:
    for name in names:
        for function in FUNCTIONS:
            if name_of(function.py_func) == name:
                dispatcher = function.dispatcher  # already compiled, unless for any types
                for signature in function.signatures if function.any_types else ():
                    dispatcher.compile(signature.numba)
    return []


def _piece(function: Function, signature: Signature, objects: Path) -> Piece:
    """Write the object of a function, unless it exists."""
    name, made_of = name_of(function.py_func), digest(function.py_func)
    key = hashlib.sha256(f"{name} {signature} {made_of} {numba.__version__}".encode()).hexdigest()[:24]
    about = objects / f"{key}.pickle"
    if (known := _kept(about, objects / f"{key}.o")) is not None:
        return known
    # By itself: what was compiled for a caller has that caller's options, such as fastmath, and other bits.
    dispatcher = function.plain_dispatcher()
    dispatcher.compile(signature.numba)
    result = dispatcher.get_compile_result(signature.numba)
    module = llvm.parse_bitcode(result.library._final_module.as_bitcode())
    environments = _rename(module, result.fndesc, f"problm_{key}")
    triple, cpu, features = result.codegen.magic_tuple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
    )
    compiled = machine.emit_object(module)
    write_atomically(objects / f"{key}.o", compiled)
    constants = pickle.dumps(list(result.environment.consts)) if result.environment.consts else b""
    piece = Piece(key, name, made_of, signature.code, environments, constants, hashlib.sha256(compiled).hexdigest())
    write_atomically(about, sealed(pickle.dumps(piece)))
    return piece


def _kept(about: Path, compiled: Path) -> Piece | None:
    """What an earlier build noted of an object; None if either file is missing or damaged."""
    try:
        refuse_strangers(about)
        refuse_strangers(compiled)
        check_seal(about)
        piece: Piece = pickle.loads(about.read_bytes())  # noqa: S301 (as safe as the code beside it)
        return piece if hashlib.sha256(compiled.read_bytes()).hexdigest() == piece.object_digest else None
    except (OSError, ValueError):
        return None


def _rename(module: Any, description: Any, prefix: str) -> int:
    """Make all symbols private but the function's code, entry and environments; return the number of environments."""
    names = {description.llvm_func_name: f"{prefix}_code", description.llvm_cpython_wrapper_name: f"{prefix}_entry"}
    for item in module.functions:
        if not item.is_declaration:
            item.linkage = "external" if item.name in names else "internal"
            item.name = names.get(item.name, item.name)
    environments = [v.name for v in module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
    for k, environment in enumerate(environments):
        variable = module.get_global_variable(environment)
        variable.name, variable.linkage = f"{prefix}_environment{k}", "external"
    return len(environments)


def _table(pieces: Iterable[Piece]) -> str:
    """The table of functions that ``library.c`` reads."""
    lines = [
        "#include <stddef.h>",
        "typedef struct { const char *name, *digest, *types; void *(*entry)(void *, void *, void *); void *code;",
        "                 void **environments; const char *constants; ptrdiff_t constants_size; } Compiled;",
    ]
    rows = []
    for p in pieces:
        k = f"problm_{p.key}"
        # Weak, because functions for compiled callers only have no entry for Python.
        lines.append(f"extern __attribute__((weak)) void *{k}_entry(void *, void *, void *); extern char {k}_code[];")
        symbols = [f"{k}_environment{i}" for i in range(p.environments)]
        lines += [f"extern void *{symbol};" for symbol in symbols]
        lines.append(f"static void *{k}_environments[] = {{{''.join(f'&{s}, ' for s in symbols)}NULL}};")
        lines.append(f"static const unsigned char {k}_constants[] = {{{', '.join(map(str, p.constants)) or '0'}}};")
        rows.append(
            f'    {{"{p.name}", "{p.digest}", "{p.signature}", {k}_entry, {k}_code, {k}_environments, '
            f"(const char *){k}_constants, {len(p.constants)}}},"
        )
    lines += ["const Compiled problm_compiled[] = {", *rows, "};", f"const int problm_compiled_count = {len(rows)};"]
    return "\n".join(lines).replace("??", '?""?') + "\n"  # no trigraphs


def _join(compiler: list[str], objects: Path, pieces: list[Piece], to: Path) -> None:
    """Link the objects with the frame, and try to load the library."""
    options = ["-shared", "-fPIC", "-O2", "-w", "-s", f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
    if sys.platform == "darwin":
        options += ["-undefined", "dynamic_lookup"]
    frame = Path(__file__).with_name("library.c")
    # In a folder of its own: others may be building the same library.
    with tempfile.TemporaryDirectory(prefix=".making-", dir=to.parent) as scratch:
        table, made = Path(scratch, "table.c"), Path(scratch, to.name)
        write_atomically(table, _table(pieces))
        command = [*compiler, *options, str(frame), str(table), *(f"{p.key}.o" for p in pieces), "-o", str(made), "-lm"]
        done = subprocess.run(command, cwd=objects, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"the C compiler failed: {done.stderr.strip()[-300:]}")
        content = sealed(made.read_bytes())
        write_atomically(made, content)
        load = "import sys, importlib.machinery as m; m.ExtensionFileLoader(*sys.argv[1:]).load_module()"
        command = [sys.executable, "-W", "ignore", "-c", load, MODULE, str(made)]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if tried.returncode:
            raise RuntimeError(f"the new library cannot be loaded: {tried.stderr.strip()[-300:]}")
        write_atomically(to, content)


def build_for_wheel() -> None:
    """Build the libraries that a wheel for this kind of machine carries."""
    for name in TARGETS:
        if name.startswith("x86") == (platform.machine() in ("x86_64", "AMD64")):
            print(build(name, SHIPPED))
