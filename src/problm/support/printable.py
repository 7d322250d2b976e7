"""Text of strangers, such as names of columns and files, for terminals and figures."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text with control characters spelt out, and bytes that are no text, of file names for example.

    Examples
    --------
    >>> printable("red" + chr(27) + "[31m")
    'red\\\\x1b[31m'
    """
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
