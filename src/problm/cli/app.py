"""The commands, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__
from . import absolute_pose, align, bench, bundle, calibrate, doctor, fit, pose, register, shuffle, two_view, warmup
from .demo import command as demo
from .exits import guarded

app = typer.Typer(
    name="problm",
    help="Non-linear least squares for very many residuals and few parameters.",
    epilog="Exit codes: 0 done, 1 not converged, 2 bad input, 3 a package is missing, 4 a bug, 130 interrupted, "
    "143 terminated.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"problm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.command,
    "fit": fit.command,
    "align": align.command,
    "pose": pose.command,
    "absolute-pose": absolute_pose.command,
    "calibrate": calibrate.command,
    "essential": two_view.essential,
    "homography": two_view.homography,
    "fundamental": two_view.fundamental,
    "bundle": bundle.command,
    "register": register.command,
    "rgbd": register.rgbd,
    "shuffle": shuffle.command,
    "warmup": warmup.command,
    "doctor": doctor.command,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(guarded(_command))
app.command("bench", context_settings=bench.SETTINGS)(guarded(bench.command))
