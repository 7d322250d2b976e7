"""The columns of ``problm fit``: which ones a model names, and how they are loaded (into memory if they fit)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..api import arguments as inputs
from ..data import tables
from ..data.column_names import with_words, word_of
from .exits import Bad, complain
from .fit_data import InMemory, Rows

if TYPE_CHECKING:
    from ..models.model import Model

_READY = re.compile(r"\s*([a-z_]\w*)\s*(?:\(\s*([\w\s,]*?)\s*\))?\s*")


@dataclass(frozen=True)
class Input:
    """The file of a fit and how it is read."""

    file: str
    how: tables.Reading = field(default_factory=tables.Reading)
    sigma: str | None = None
    nan: str = "raise"
    max_memory: str | None = None
    cluster: str | None = None
    others: tuple[str, ...] = ()
    """Columns of labels or errors, which are no data of the model."""

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns."""
        if self.in_place:
            from ..data.sources import open_source

            return [c.name for c in open_source(self.file).columns]
        return list(tables.column_names(self.file, self.how))

    @cached_property
    def texts(self) -> frozenset[str]:
        """Names of the columns that hold text, which is no data of a model."""
        return frozenset() if self.in_place else tables.text_columns(self.file, self.how)

    @property
    def in_place(self) -> bool:
        """Whether the library itself reads the file, in parts."""
        if os.path.isfile(self.file):  # even with special characters: data[1].csv is not a pattern
            return False
        return "://" in self.file or any(mark in self.file for mark in "*?[") or os.path.isdir(self.file)

    def column(self, text: str, option: str) -> str:
        """The column that a user names: by its name, its position ``$2``, or the word that it begins with."""
        text = text.strip()
        if text in self.names:
            return text
        try:
            word, words = with_words(text, self.names)
        except ValueError as error:
            raise Bad(f"{option}: {error}") from None
        found = words.get(word, word)
        if found not in self.names:
            raise Bad(f"{option}: {text!r} is not a column of {self.file}; it has {', '.join(self.names[:20])}")
        return found


def split_model(text: str, given: Input, variables: str | None) -> tuple[Model, list[str]]:
    """The compiled formula, and the columns that it needs: variables, then response."""
    from ..models.formula import formula

    present = given.names
    if "~" not in text:
        if ready := _ready_made(text):
            return _named_model(ready, None, given, variables)
        raise Bad(f'--model: name the response on the left, for example "y ~ a*exp(-b*x) + c"{_near(text)}')
    try:
        text, words = with_words(text, present)
    except ValueError as error:
        raise Bad(f"--model: {error}") from None
    left, _, right = text.partition("~")
    known = {*words, *present}
    if ready := _ready_made(right):
        response = given.column(left, "--model")
        return _named_model(ready, response, given, variables)
    if re.search(r"(?<![\w.])e(?![\w.]|\s*(?:\*\*|\^))", right) and "e" not in present:
        complain("note: e in the formula is Euler's number, 2.718...; give a parameter another name")
    # A name before a parenthesis is a function, even if a column has the same name.
    found = dict.fromkeys(re.findall(r"[^\W\d]\w*(?!\w*\s*\()", right))
    if variables is not None:
        chosen = [word_of(present).get(given.column(v, "--variables"), v) for v in variables.split(",") if v.strip()]
    else:
        chosen = [w for w in found if w in known and w not in ("pi", "e")]
    if not chosen:
        formula(text, variables=tuple(found)[:1])  # reports a formula that cannot be read first
        near = _near(right)
        raise Bad(f"--model: none of {', '.join(found)} is a column of {given.file}; it has {_told(present)}{near}")
    try:
        model = formula(text, variables=chosen)
    except ValueError as error:
        if "no parameters" in str(error) and variables is None:
            raise Bad(
                f"--model: all its names are columns of {given.file}, so there is nothing to fit; name the data with "
                "--variables"
            ) from None
        raise
    response = words.get(str(model.response), str(model.response))
    if response not in present:
        raise Bad(f"--model: the response {response!r} is not a column of {given.file}: {_told(present)}")
    return model, [*(words.get(v, v) for v in chosen), response]


def _near(text: str) -> str:
    """A suggestion if a word looks like the name of a ready-made model."""
    from .. import models
    from ..support.suggest import suggest

    words = [part.group(1) for part in map(_READY.fullmatch, text.split("+")) if part is not None]
    for word in words:
        if word not in models.__all__:
            begins = [name for name in models.__all__ if name.startswith(f"{word}_")]
            if told := suggest(begins[0] if begins else word, models.__all__):
                return f". {word!r} is no ready-made model{told}" if len(words) > 1 else told
    return ""


def _ready_made(right: str) -> list[tuple[str, str]] | None:
    """Names of ready-made models, with number or variables: ``gaussian(t) + polynomial(3)``; None for formulas."""
    from .. import models

    parts = [_READY.fullmatch(part) for part in right.split("+")]
    if all(part is not None and part.group(1) in models.__all__ for part in parts):
        return [(part.group(1), part.group(2) or "") for part in parts if part is not None]
    return None


def _named_model(
    ready: list[tuple[str, str]], response: str | None, given: Input, variables: str | None
) -> tuple[Model, list[str]]:
    """A sum of ready-made models of these columns; by default the first ones, the response after the variables."""
    from .. import models

    parts = []
    inside = dict.fromkeys(text for _, text in ready if text and not text.isdigit())
    if len(inside) > 1 or (inside and variables is not None):
        raise Bad(
            f"--model: its parts need the same variables, named once; got {', '.join([*inside, variables or ''])}"
        )
    if inside:
        words = {word: name for name, word in word_of(given.names).items()}
        variables = ",".join(words.get(v.strip(), v) for v in next(iter(inside)).split(","))
    for name, text in ready:
        number = text if text.isdigit() else ""
        try:
            parts.append(getattr(models, name)(*([int(number)] if number else [])))
        except TypeError:
            raise Bad(f"--model: {name} {'takes no number' if number else 'needs a number, such as 3'}") from None
    model = parts[0]
    for part in parts[1:]:
        model = model + part
    count = len(model.variables)
    data = [n for n in given.names if n not in (response, given.sigma, *given.others) and n not in given.texts]
    chosen = [given.column(v, "--variables") for v in variables.split(",") if v.strip()] if variables else data[:count]
    if len(chosen) != count:
        raise Bad(f"--model: it has {count} variable{'s' * (count > 1)}; name their columns with --variables")
    if response is None:  # as in most files: the response follows its variables
        rest = [n for n in data if n not in chosen]
        if not rest:
            raise Bad(f'--model: no column is left for the response; name it: "y ~ ..."; there are {_told(data)}')
        response = rest[0]
    words = word_of(given.names)
    return replace(model, variables=tuple(words[c] for c in chosen), response=words[response]), [*chosen, response]


def load(given: Input, columns: list[str]) -> Rows:
    """The columns of a file (variables, response), loaded according to its size."""
    if given.nan not in ("raise", "omit"):
        raise Bad(f"--nan must be raise or omit, got {given.nan!r}")
    from ..support.memory import as_bytes

    sigma, limit = given.sigma, as_bytes(given.max_memory)
    calculated = sigma is not None and not _is_column(given, sigma)
    names = [*columns, *([given.column(sigma, "--sigma")] if sigma is not None and not calculated else [])]
    if given.cluster is not None or given.in_place or _too_large(given.file, names, limit):
        if given.nan == "omit":
            raise Bad("--nan omit needs the data in memory: remove rows with NaN from the files first")
        if calculated:
            raise Bad(f"--sigma {sigma!r} is not a column; an expression needs the data in memory")
        from .fit_stored import Stored

        return Stored(given.file, names, sigma is not None, given.max_memory, given.cluster)
    text, extra, words = _expression(given, sigma) if calculated else ("", [], {})
    found = tables.read_columns(given.file, [*names, *extra], max_bytes=limit, **vars(given.how))
    arrays = [found[name] for name in names]
    if calculated:
        from ..models.formula import calculated as value_of

        names = [*names, f"--sigma {sigma}"]
        arrays.append(value_of(text, {w: found[c] for w, c in words.items()}))
    kept = np.arange(len(arrays[0]))
    if given.nan == "omit":
        *arrays, kept = inputs.omit_nan([*arrays, kept])
    else:
        _finite(given, names, arrays)
    if sigma is not None and not (arrays[-1] > 0).all():
        row = int(kept[np.argmin(arrays[-1])])
        raise Bad(
            f"--sigma: standard deviations must be positive, but {place(given, row)} has {arrays[-1].min():g}"
            + ("; for counts that may be 0, sqrt(n + 1) is positive" if calculated else "")
        )
    return InMemory(arrays, sigma is not None, kept)


def _is_column(given: Input, text: str) -> bool:
    plain = text.strip()
    if plain in given.names or plain in word_of(given.names).values():
        return True
    return re.fullmatch(r"\$\d+|`[^`]*`|\"[^\"]*\"", plain) is not None


def _expression(given: Input, sigma: str | None) -> tuple[str, list[str], dict[str, str]]:
    """An expression for sigma, the columns that it needs, and the column of each of its words."""
    from ..models.formula import names_in

    try:
        text, words = with_words(str(sigma), given.names)
        used = {word: words.get(word, word) for word in names_in(text)}
    except ValueError as error:
        raise Bad(f"--sigma: {error}") from None
    for word, name in used.items():
        if name not in given.names:
            raise Bad(f"--sigma: {word!r} is not a column of {given.file}; it has {_told(given.names)}")
    return text, list(used.values()), used


def _finite(given: Input, names: list[str], arrays: list[Any]) -> None:
    """Name the column and the line of the file of the first number that is not finite."""
    for name, array in zip(names, arrays, strict=True):
        try:
            inputs.finite([(f"column {name!r}", array)])
        except ValueError:
            row = int(np.argmin(np.isfinite(array)))
            count = int((~np.isfinite(array)).sum())
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            raise Bad(
                f"{given.file}: column {name!r} has {array[row]} in {place(given, row)}{more}: remove such rows, or "
                "leave them out with --nan omit"
            ) from None


def place(given: Input, row: int) -> str:
    """Where a row of the table is, for messages: its line if the file is text."""
    line = tables.line_of(given.file, row, given.how)
    return f"row {row + 1}" if line is None else f"line {line}"


def _told(names: list[str]) -> str:
    return ", ".join(names[:20])


def _too_large(file: str, names: list[str], limit: int) -> bool:
    """Whether the columns of a file that can be read in parts do not fit into memory."""
    ending = Path(file).suffix.lower()
    if ending == ".npy" and os.path.isfile(file) and os.path.getsize(file) > limit:
        source = tables.row_source(file, names)
        return source is not None and 8 * len(names) * source.n > limit
    if ending not in (".parquet", ".pq"):
        return False
    from ..data.sources import open_source

    return 8 * len(names) * open_source(file).n > limit
