"""A checksum at the end of a file of machine code: a truncated or damaged file must not be loaded.

The loader of the system only checks the beginning of a library. It maps the missing part of a truncated file, and the
process dies with a bus error when that is accessed; other damage is executed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..support.files import open_regular

_MARK = b"problm library\n"
_SIZE = len(_MARK) + hashlib.sha256().digest_size


def sealed(content: bytes) -> bytes:
    """The content, followed by its checksum; loaders ignore what follows the last section."""
    return content + _MARK + hashlib.sha256(content).digest()


def check_seal(path: Path) -> None:
    """Raise ValueError if a file does not end with its correct checksum."""
    with open_regular(path) as file:
        content = file.read()
    if content[-_SIZE:] != sealed(content[:-_SIZE])[-_SIZE:]:
        raise ValueError("it is damaged, or not made by problm")
