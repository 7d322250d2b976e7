"""``problm warmup``: compile everything now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from .common import Debug, Json, Quiet, Voice


@contextmanager
def compiling(voice: Voice) -> Iterator[Callable[[int, int], None] | None]:
    """A line of progress for `problm.jit.warm_up.warm_up`."""
    with voice.progress() as line:
        yield None if line is None else lambda done, total: line.show(f"compiling: {done} of {total} functions")


def command(
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Processes; by default one per core.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compile all functions for this machine, for example in a container image, or verify that they are compiled."""
    from ..jit.warm_up import warm_up

    voice = Voice(json, quiet)
    with compiling(voice) as progress:
        done = warm_up(jobs, progress)
    if done.why_no_library:
        voice.say(f"Compiled into Numba's cache, so every process has to load Numba: {done.why_no_library}.")
    state = f"{done.compiled} compiled now" if done.compiled else "all were compiled before"
    voice.say(f"{done.functions} functions, {state}: {done.seconds:.1f} s, {done.size / 1e6:.1f} MB in {done.where}")
    voice.finish({**done._asdict(), "where": str(done.where)})
