"""LLVM's instructions, loaded when an intrinsic first writes one."""

from __future__ import annotations

import importlib
from typing import Any


class _Instructions:
    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():  # whoever asks for `__wrapped__` or the like does not write instructions
            raise AttributeError(name)
        return getattr(importlib.import_module("llvmlite.ir"), name)


ir: Any = _Instructions()
