"""Addresses of stores, ``scheme://...``, and their secrets: users, passwords and signed queries are never shown."""

from __future__ import annotations

import re

_SECRETS = re.compile(r"(?<=://)[^/@\s'\"]*@|(?<=[^\s?])\?[^\s'\"]*(?==)[^\s'\"]*")


def is_address(path: str) -> bool:
    return "://" in path


def without_secrets(text: str) -> str:
    """A text with addresses, without their users, passwords and queries.

    Examples
    --------
    >>> without_secrets("no such file: s3://user:word@bucket/t.parquet?token=12")
    'no such file: s3://bucket/t.parquet'
    """
    return _SECRETS.sub("", text)
