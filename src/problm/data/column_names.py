"""Columns in formulas whose names are no words: by quotes, by position, or by the word that they begin with."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from ..support.suggest import suggest

_QUOTED = re.compile(r"`([^`]*)`|\"([^\"]*)\"|'([^']*)'|\$(\d+)")
_WORD = re.compile(r"[^\W\d]\w*")
_UNITS = re.compile(r"\s*(?:[(\[<{].*|[/,].*)$", re.DOTALL)


def with_words(text: str, columns: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Replace names of columns in a formula by words.

    Parameters
    ----------
    text
        A formula. ``"Wavenumber (cm-1)"`` or the same in other quotes is the column of that name, ``$2`` the second
        column, and ``Wavenumber`` the only column whose name begins so, up to its units or, in HDF5, after its path.
    columns
        Names of the columns of the data.

    Returns
    -------
    The formula, and the column of each word that stands for one and is not its name.

    Examples
    --------
    >>> with_words('`I (counts)` ~ a*exp(-b*$1)', ["t [s]", "I (counts)"])
    ('I ~ a*exp(-b*t)', {'t': 't [s]', 'I': 'I (counts)'})
    >>> with_words("'I (counts)' ~ a*exp(-b*t)", ["t", "I (counts)"])[0]
    'I ~ a*exp(-b*t)'
    """
    words = word_of(columns)

    def named(found: re.Match[str]) -> str:
        quoted = next((name for name in found.groups()[:3] if name is not None), None)
        if quoted is None:
            place = int(found.group(4))
            if not 0 < place <= len(columns):
                raise ValueError(f"${place}: there are {len(columns)} columns, counted from 1: {_some(columns)}")
            quoted = columns[place - 1]
        if quoted not in words:
            raise ValueError(f"there is no column {quoted!r}{suggest(quoted, columns)}; there are {_some(columns)}")
        return words[quoted]

    text = _QUOTED.sub(named, text)
    present = set(_WORD.findall(text))
    return text, {word: name for name, word in words.items() if word != name and word in present}


def word_of(columns: Sequence[str]) -> dict[str, str]:
    """A word for every column: its name if that is one, else what it begins with; numbered where two are the same."""
    taken = {name for name in columns if name.isidentifier()}
    words: dict[str, str] = {}
    for k, name in enumerate(columns):
        if name.isidentifier() and not keyword.iskeyword(name):
            words[name] = name
            continue
        short = _UNITS.sub("", name) if "/" not in name.strip("/") or " " in name else name.rpartition("/")[2]
        word = re.sub(r"\W+", "_", short).strip("_") or f"c{k + 1}"
        if not word.isidentifier() or keyword.iskeyword(word):
            word = f"c_{word}" if f"c_{word}".isidentifier() else f"c{k + 1}"
        while word in taken:
            word += "_"
        taken.add(word)
        words[name] = word
    return words


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(n) for n in names[:12]) + (" ..." if len(names) > 12 else "")
