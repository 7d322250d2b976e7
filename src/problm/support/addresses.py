"""Addresses of stores, ``scheme://...``, and their secrets: users, passwords and signed queries are never shown."""

from __future__ import annotations

import re

_SECRETS = re.compile(r"(?<=://)[^/@\s'\"]*@|(?<=[^\s?])\?[^\s'\"]*")
_LONGEST = 400


def is_address(path: str) -> bool:
    return "://" in path


def without_secrets(text: str) -> str:
    """A text with addresses, without their users, passwords and queries.

    Examples
    --------
    >>> without_secrets("no such file: s3://user:word@bucket/t.parquet?token=12")
    'no such file: s3://bucket/t.parquet'
    """
    # A question mark without an equals sign behind it is no query. Not by the pattern, which would try each of them.
    return _SECRETS.sub(lambda found: "" if found[0][0] != "?" or "=" in found[0] else found[0], text)


def in_brief(error: object) -> str:
    """The beginning of what a library says about a file, without secrets: a stranger's file may make it megabytes."""
    text = str(error)
    return without_secrets(text if len(text) <= _LONGEST else text[:_LONGEST] + " ...")
