"""LLVM's instruction builder (llvmlite), loaded on first use by an intrinsic."""

from __future__ import annotations

import importlib
from typing import Any


class _Instructions:
    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():  # lookups of `__wrapped__` and similar names need no llvmlite
            raise AttributeError(name)
        return getattr(importlib.import_module("llvmlite.ir"), name)


ir: Any = _Instructions()
