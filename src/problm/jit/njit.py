"""The package's compile decorators. Nothing is compiled on import; each function is compiled once, on first use.

`njit` compiles a function for Python and for other compiled functions. Its machine code comes from a library built
ahead of time (`problm.jit.library`), which needs no Numba at all, or from the cache on disk (`problm.jit.cache`), or is
compiled. A `part` is only for compiled callers and is compiled with each of them: half of the time to compile a short
function goes into its entry for Python. An `intrinsic` emits its own instructions.

Numba recognises all three in the code of a function.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from functools import cached_property, update_wrapper, wraps
from types import FunctionType
from typing import Any, cast

from ..support.compiling import compiling
from . import library
from .sources import OPTIONS, text
from .types import Signature

log = logging.getLogger("problm")
_COMPILING_AFTER = 0.5  # total seconds before a message: loading a function from the cache takes a few milliseconds
_told: set[str] = set()
_compiling = 0.0
_compilable: list[Any] = []
FUNCTIONS: list[Function] = []
"""All compiled functions of the modules loaded so far."""


class _Named:
    """Base of wrappers of a Python function with a Numba type of their own."""

    def __init__(self, function: FunctionType) -> None:
        self.py_func = function
        update_wrapper(cast(Any, self), function)

    def __reduce__(self) -> Any:
        name = self.py_func.__qualname__
        if getattr(sys.modules.get(self.py_func.__module__), name, None) is self:
            return name  # pickled by name: it is an attribute of its module
        return type(self), tuple(self._made_of)

    @property
    def _made_of(self) -> tuple[Any, ...]:
        return (self.py_func,)


class Function(_Named):
    """A compiled function; its code is found or compiled on the first call or request of its address."""

    def __init__(
        self, function: FunctionType, signatures: tuple[Signature, ...], any_types: bool, options: dict[str, Any]
    ) -> None:
        super().__init__(function)
        self.signatures, self.any_types, self.options = signatures, any_types, options
        FUNCTIONS.append(self)

    @property
    def _made_of(self) -> tuple[Any, ...]:
        return self.py_func, self.signatures, self.any_types, self.options

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    @property
    def ready(self) -> bool:
        """Whether a call needs neither Numba, whose import takes longer than most solves, nor a compiler."""
        return "compiled" in self.__dict__ or "numba" in sys.modules or library.code(self.py_func) is not None

    @cached_property
    def ahead_of_time(self) -> bool:
        """Whether its code was compiled ahead of time; unlike `ready`, the same throughout a process."""
        return library.code(self.py_func) is not None

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The function behind a call; frequent callers should keep it."""
        entry: Callable[..., Any] | None = library.entry(self.py_func, lambda *args: self.dispatcher(*args))
        return entry or self.dispatcher

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's function."""
        with compiling():  # loading Numba and its cache is part of it
            from .cache import Cache

            dispatcher = self.plain_dispatcher()
            dispatcher._cache = Cache(self.py_func, tell)
            _timed(dispatcher)
            if not self.any_types:
                for signature in self.signatures:
                    dispatcher.compile(signature.numba)
                dispatcher.disable_compile()
            return dispatcher

    def plain_dispatcher(self) -> Any:
        """Numba's function, not yet compiled and without a cache."""
        from numba import njit

        from .shape_errors import short_messages

        while _compilable:
            _ = _compilable.pop()._numba_type_
        dispatcher = njit(**self.options)(self.py_func)
        dispatcher._compiler.compile = short_messages()(dispatcher._compiler.compile)
        return dispatcher

    def address(self, signature: Signature) -> int:
        """Machine address of the code for a signature."""
        found = library.address(self.py_func, signature.code)
        return address_in(self.dispatcher, signature) if found is None else found

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_


class Part(_Named):
    """A function that is compiled and cached with each of its callers."""

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        super().__init__(function)
        self.options = options

    @property
    def _made_of(self) -> tuple[Any, ...]:
        return self.py_func, self.options

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)

    @cached_property
    def _numba_type_(self) -> Any:
        from numba.extending import register_jitable

        return _type_of(register_jitable(**self.options)(self.py_func))


class Intrinsic(_Named):
    """A function ``(typing, *types) -> (signature, codegen)`` that emits its own instructions, as in Numba."""

    @cached_property
    def _numba_type_(self) -> Any:
        from numba.extending import intrinsic

        @wraps(self.py_func)
        def define(*args: Any) -> Any:
            signature, codegen = self.py_func(*args)
            return signature.numba if isinstance(signature, Signature) else signature, codegen

        self._kept = intrinsic(define)
        return _type_of(self._kept)


def njit(*signature: Signature, any_types: Any = False, **options: Any) -> Callable[[Callable[..., Any]], Function]:
    """``numba.njit`` for the given signatures; with ``any_types`` also for others, on demand."""
    options = {"no_cfunc_wrapper": True, **options}

    def decorate(function: Any) -> Function:
        setattr(function, OPTIONS, text((signature, options)))
        return Function(function, signature, any_types or not signature, options)

    return decorate


def part(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function for compiled callers only; options that are not given are those of the caller."""
    options = {"no_cfunc_wrapper": True, **options}

    def decorate(function: Any) -> Part:
        setattr(function, OPTIONS, text(options))
        return Part(function, options)

    return decorate


def compilable(functions: Iterable[Callable[..., Any]], **options: Any) -> None:
    """Let compiled functions call plain Python functions by their usual names."""
    _compilable.extend(part(**options)(function) for function in functions)


def intrinsic(function: Any) -> Any:
    """Numba's ``intrinsic``, with the types of `problm.jit.types`."""
    return Intrinsic(function)


def address_in(dispatcher: Any, signature: Signature) -> int:
    """Machine address of a function compiled by Numba."""
    result = dispatcher.get_compile_result(signature.numba)
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def _type_of(value: Any) -> Any:
    """Numba's type of a value that has just been registered."""
    from numba.core.registry import cpu_target

    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(value)


def _timed(dispatcher: Any) -> None:
    """Announce compilation if it takes time."""
    compile_ = dispatcher._compiler.compile

    def announced(*args: Any) -> Any:
        global _compiling
        began = time.perf_counter()
        try:
            with compiling():
                return compile_(*args)
        finally:
            _compiling += time.perf_counter() - began
            if _compiling > _COMPILING_AFTER:
                function = dispatcher.py_func
                package, _, module = function.__module__.partition(".")
                what = module if package == "problm" else function.__qualname__
                tell("compiling", f"compiling {what} and its dependencies for this machine, once: some seconds, or up "
                     "to a minute for image geometry. 'problm warmup' compiles everything at once.")  # fmt: skip

    dispatcher._compiler.compile = announced


def tell(key: str, message: str) -> None:
    """Log a message, once per process and key."""
    if key not in _told:
        _told.add(key)
        log.warning("problm: %s", message)
