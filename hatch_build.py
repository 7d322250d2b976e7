"""Wheels carry the libraries that `make dist` has compiled, and then fit one Python and one kind of machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Without libraries (``pip install .``, or an editable install) a wheel is pure Python, compiled when used."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard" and any(Path(self.root, "src/problm/jit/compiled").glob("*.so")):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
