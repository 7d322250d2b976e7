"""Common parts of the commands: options, messages, the output folder, and the `Job` of a command that solves."""

from __future__ import annotations

import functools
import inspect
import json as _json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer

from ..report.progress import ProgressLine
from ..report.serialize import plain
from ..support.files import open_regular, write_atomically
from ..support.printable import printable
from ..support.written import RECORD, Written
from .exits import DONE, NOT_CONVERGED, Bad, complain, interruption, leave

if TYPE_CHECKING:
    from ..solver.result import Status

Force = Annotated[bool, typer.Option("--force", help="Replace files in the output folder that problm did not write.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Seed = Annotated[int, typer.Option("--seed", help="Random seed; results are bit-reproducible.")]
Acceptance = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        help="Test of a step on a batch: holdout (default), full, paper, paper-relaxed, hoeffding-serfling, ...",
    ),
]


def _losses(incomplete: str) -> list[str]:
    """Completions of --loss."""
    from ..losses import LOSSES

    return [name for name in LOSSES if name.startswith(incomplete)]


LossName = Annotated[
    str,
    typer.Option("--loss", help="linear, huber, soft_l1, cauchy, tukey, truncated, ...", autocompletion=_losses),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(frozen=True)
class Voice:
    """Text for people or JSON for programs on stdout; progress on a terminal's stderr only."""

    json: bool = False
    quiet: bool = False

    def say(self, text: str = "") -> None:
        if not (self.json or self.quiet):
            print(printable(text))

    def finish(self, content: dict[str, Any]) -> None:
        """Print the JSON object, if requested."""
        if self.json:
            print(dumps(content), end="")

    @contextmanager
    def progress(self) -> Iterator[ProgressLine | None]:
        """A line of progress while the block runs, erased at the end; None if there is no terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        line = ProgressLine()
        try:
            yield line
        finally:
            line.close()


def dumps(content: Any) -> str:
    """JSON text of anything made of numbers, text, arrays and containers."""
    return _json.dumps(plain(content), indent=1, allow_nan=False) + "\n"


def optional(make: Callable[[], Any]) -> Any:
    """A figure, or None with a message on stderr if Matplotlib is missing: the fit is still useful."""
    try:
        return make()
    except ImportError as error:
        complain(f"no plot: {error}")
        return None


class Folder:
    """The only folder that a command writes to.

    Existing files are replaced only if an earlier run wrote them and they were not changed since
    (`problm.support.written`).

    Parameters
    ----------
    path : the folder; created if necessary.
    names : names of the files that the command may write, relative to the folder.
    inputs : files that the command reads, which are never replaced.
    force : whether to replace files that are not ours as well.
    voice : reports what will be replaced.
    """

    def __init__(
        self, path: Path, names: Sequence[str], inputs: Iterable[str | Path | None], force: bool, voice: Voice
    ) -> None:
        if os.path.lexists(path) and not path.is_dir():
            what = "a file" if path.exists() else "a link to nothing"
            raise Bad(f"{path} is {what}, but the output needs a folder: give another --output")
        self.path, self._written, self._force = path, Written(path), force
        given = [source for source in inputs if source is not None]
        for name in (*names, RECORD):
            if any(same_file(path / name, source) for source in given):
                raise Bad(f"{path / name} would overwrite the data being read: give another --output")
            if any(same_file(folder, source) for folder in (path, *_folders(path, name)) for source in given):
                raise Bad(f"{path / name} would become part of the data being read: give another --output")
        self._check_folders(names)
        for name in names:
            if os.path.lexists(path / name) and not ((path / name).is_symlink() or (path / name).is_file()):
                raise Bad(f"{path / name} is a folder, device or pipe, which no file replaces: give another --output")
        foreign = [*self._written.foreign(names), *([RECORD] if self._written.foreign_record else [])]
        if foreign and not force:
            raise Bad(
                f"{path} holds files that problm did not write, or that were changed since: {', '.join(foreign)}; give "
                "another --output, or --force to replace them"
            )
        present = [name for name in names if os.path.lexists(path / name)]
        if present:
            voice.say(f"replaces {', '.join(present)} in {path}")
        path.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: str | bytes) -> Path:
        """Write one file, and return its path."""
        target = self.path / name
        with self.writing([name]):
            write_atomically(target, content)
        return target

    @contextmanager
    def writing(self, names: Sequence[str]) -> Iterator[Path]:
        """Context in which another function writes these files into the folder atomically.

        Files that appeared while the command ran are checked like those that were there before.
        """
        self._written.refresh()
        foreign = self._written.foreign(names)
        if foreign and not self._force:
            raise Bad(
                f"{self.path} now holds files that problm did not write: {', '.join(foreign)}; they were left alone, "
                "and these results were not written"
            )
        self._check_folders(names)
        with self._written.writing(names):
            yield self.path

    def _check_folders(self, names: Sequence[str]) -> None:
        """Refuse links and files under the names of folders inside the output: nothing is written anywhere else."""
        for place in dict.fromkeys(place for name in names for place in _folders(self.path, name)):
            if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
                raise Bad(f"{place} is a link or a file, but a folder is written there: give another --output")


def _folders(path: Path, name: str) -> list[Path]:
    """The folders between an output folder and the file of this name in it."""
    return [path / parent for parent in Path(name).parents[:-1]]


def same_file(a: Path, b: str | Path) -> bool:
    """Whether two names refer to the same file."""
    with suppress(OSError):
        return os.path.samefile(a, b)
    return False


def matrix_from(path: str, names: Sequence[str], size: int) -> Any:
    """The (size, size) matrix of ``--initial``, from a file such as an earlier run wrote, if it is no known name."""
    import numpy as np

    kind = f"a {size}x{size} matrix"
    if not Path(path).is_file():
        raise Bad(f"--initial must be {', '.join(names)} or a file with {kind}; there is no file {path!r}")
    if Path(path).stat().st_size > 10_000:
        raise Bad(f"--initial: {path} is too large for {kind}")
    try:
        with open_regular(path) as file:  # an open file: NumPy would unpack what is named .bz2
            return np.loadtxt(file, ndmin=2)
    except ValueError as error:
        raise Bad(f"--initial: {path} does not hold {kind} ({error})") from None


def given(**options: Any) -> dict[str, Any]:
    """The options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}


def interval(option: str, name: str, text: str) -> tuple[float, float]:
    """``low:high`` as two numbers; either side may be empty."""
    low, sign, high = (part.strip() for part in text.partition(":"))
    try:
        pair = (float(low) if low else -math.inf, float(high) if high else math.inf)
    except ValueError:
        sign = ""
    if not sign:
        raise Bad(f"{option}: {name}={text!r} is not of the form low:high, for example 0:10 or 0:")
    return pair


def outcome(status: Status) -> int:
    """The exit code of a solve that ended with this status."""
    from ..solver.result import Status

    if status == Status.INTERRUPTED:
        return interruption()
    return DONE if status > 0 else NOT_CONVERGED


@dataclass(frozen=True)
class Job:
    """The options that every solving command takes, and what they mean for it."""

    max_time: Annotated[
        float | None, typer.Option("--max-time", help="Seconds after which the best point so far is reported.")
    ] = None
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Number of threads; all cores if not given.")
    ] = None
    seed: Seed = 0
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files that are written.")] = Path("out")
    no_output: Annotated[bool, typer.Option("--no-output", help="Write no files.")] = False
    force: Force = False
    json: Json = False
    quiet: Quiet = False
    debug: Debug = False
    voice: Voice = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "voice", Voice(self.json, self.quiet))

    def folder(self, names: Sequence[str], inputs: Iterable[str | Path | None]) -> Folder | None:
        """The folder for files of these names, checked against the inputs; None with ``--no-output``."""
        return None if self.no_output else Folder(self.output, names, inputs, self.force, self.voice)

    def options(self, **more: Any) -> dict[str, Any]:
        """Keywords of the library's functions: seed, threads and time if given, and ``more`` that are not None."""
        return {"rng": self.seed, **given(**{"threads": self.threads, "max_time": self.max_time, **more})}

    def finish(self, content: dict[str, Any], files: Sequence[Path], fit: Any) -> NoReturn:
        """Name the written files, print the JSON object if requested, and leave with the exit code of the fit."""
        self.tell(content, files)
        stopped = fit.result is not None and fit.result.status.name == "INTERRUPTED"
        leave(interruption() if stopped else DONE if fit.success else NOT_CONVERGED)

    def tell(self, content: dict[str, Any], files: Sequence[Path]) -> None:
        """Name the written files, and print the JSON object if requested."""
        for path in files:
            self.voice.say(f"wrote {path}")
        self.voice.finish({**content, "files": [str(path) for path in files]})


def solving(output: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command whose first parameter is a `Job`: on the command line the job's options follow its own.

    Parameters
    ----------
    output : name of the folder that the command writes to by default.
    """
    hints = get_type_hints(Job, include_extras=True)
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=Path(output) if name == "output" else getattr(Job, name),
            annotation=hints[name],
        )
        for name in hints
        if name != "voice"
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            job = Job(**{parameter.name: options.pop(parameter.name) for parameter in shared})
            command(job, **options)

        own = inspect.signature(command, eval_str=True)
        parameters = [*list(own.parameters.values())[1:], *shared]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate
