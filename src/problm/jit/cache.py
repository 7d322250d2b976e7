"""Cache of compiled code on disk.

The name of a file encodes everything that its content depends on, so that nothing is ever out of date: the function,
its types, the digest of its sources (`problm.jit.sources`), the versions of Python and Numba, and the processor. Files
are written atomically and begin with a checksum: a file that is empty, truncated or not ours is compiled again and
replaced. Two processes may write the same file. If nothing can be written, every process compiles, and one message says
so.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from ..support.files import open_regular, write_atomically
from .folder import folder, refuse_strangers
from .sources import digest

_KEPT = 3  # number of files kept per function and signature, for older sources or other processors
_SUM = hashlib.sha256().digest_size


class Cache:
    """Numba's cache of one function; ``tell`` is called with a message when something is wrong."""

    def __init__(self, function: FunctionType, tell: Callable[[str, str], None]) -> None:
        self._function = function
        self._tell = tell
        self.cache_path = str(folder())

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled function, or None."""
        target.refresh()
        path = self._path(signature, target.codegen())
        try:
            refuse_strangers(path)
            with open_regular(path) as file:
                data = file.read()
        except OSError:
            return None
        except ValueError as error:
            self._tell("damaged", f"{error}: compiling again.")
            return None
        try:
            if hashlib.sha256(data[_SUM:]).digest() != data[:_SUM]:
                raise ValueError("wrong checksum")
            return CompileResult._rebuild(target, *pickle.loads(data[_SUM:]))  # noqa: S301 (as safe as a .pyc file)
        except Exception as error:
            self._tell("damaged", f"{path} is damaged ({error or type(error).__name__}): compiling again.")
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compiled function to the cache."""
        try:
            if result.library.has_dynamic_globals or any(not f.can_cache for f in result.lifted):
                raise OSError(f"{self._function.__qualname__} refers to addresses of this process")
            path = self._path(signature, result.codegen)
            path.parent.mkdir(parents=True, exist_ok=True)
            data = dumps(result._reduce())
            write_atomically(path, hashlib.sha256(data).digest() + data)
            _remove_old(path)
        except OSError as error:
            self._tell("cache", f"compiled code cannot be kept ({error}): compiling in every process. "
                       "Set NUMBA_CACHE_DIR to a writable folder with enough space.")  # fmt: skip

    def _path(self, signature: Any, codegen: Any) -> Path:
        function = self._function
        made_of = digest(function), numba.__version__, sys.version_info[:2], codegen.magic_tuple()
        key = hashlib.sha256(repr(made_of).encode()).hexdigest()
        types = hashlib.sha256(str(signature).encode()).hexdigest()
        name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        return Path(self.cache_path, f"{name[-100:]}-{types[:8]}-{key[:24]}.nbc")


def _remove_old(path: Path) -> None:
    """Delete the oldest files of the same function and signature, whose sources have changed since."""
    same = path.name[: path.name.rindex("-") + 1]
    with contextlib.suppress(OSError):  # another process removes them, too
        files = [p for p in path.parent.iterdir() if p.name.startswith(same)]
        for old in sorted(files, key=lambda p: p.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
