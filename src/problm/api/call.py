"""`Call`: the arguments that `least_squares` and `curve_fit` have in common, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.space import Space
from ..losses import as_loss
from ..problems.backends import backend_model
from ..problems.rows import CompiledModel, FunctionModel, RowModel
from ..solver.problem import Theta
from ..solver.result import Result
from ..support.differences import METHODS
from ..support.suggest import suggest
from . import arguments as inputs
from . import scipy_arguments as as_scipy
from .fit_rows import fit_rows
from .settings import Settings

Array = NDArray[np.float64]
_NO_POOLS: nullcontext[None] = nullcontext()


@dataclass(kw_only=True)
class Call:
    """The user's arguments: bounds, loss, tolerances and the rest; see `problm.least_squares`.

    They are checked on construction, before any work. Messages use the user's name for the start.
    """

    start: Any
    start_name: str = "x0"
    plain: bool = False
    """Whether the function returns all residuals, as in SciPy."""
    jac: Any = "2-point"
    bounds: Any = (-np.inf, np.inf)
    method: str = "problm"
    ftol: float | None = as_scipy.DEFAULT
    xtol: float | None = as_scipy.DEFAULT
    gtol: float | None = as_scipy.DEFAULT
    x_scale: Any = None
    loss: Any = "linear"
    f_scale: float | str = 1.0
    diff_step: Any = None
    tr_solver: str | None = None
    tr_options: Mapping[str, Any] | None = None
    jac_sparsity: Any = None
    max_nfev: int | None = None
    verbose: int = 0
    args: Any = ()
    kwargs: Mapping[str, Any] | None = None
    callback: Callable[..., Any] | None = None
    workers: int | Callable[..., Any] | None = None
    fixed: Any = None
    acceptance: Any = None
    manifold: Any = None
    nan_policy: str = "reject"
    rng: np.random.Generator | int | None = 0
    threads: int | None = None
    backend: str | None = None
    max_memory: int | float | str | None = None
    client: Any = None
    progress: bool | Callable[..., Any] = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `problm.solver.options.Options`."""

    @classmethod
    def of(cls, keywords: Mapping[str, Any], **known: Any) -> Call:
        """Make a call from keywords; keywords that are not arguments are options of the solver."""
        call = object.__new__(cls)  # the class has the defaults; to set all fields takes as long as to check them
        call.options = {name: value for name, value in keywords.items() if name not in _ARGUMENTS}
        call.__dict__.update(known, **{name: value for name, value in keywords.items() if name in _ARGUMENTS})
        call.__post_init__()
        return call

    def __post_init__(self) -> None:
        as_scipy.refuse_options(self.options)
        self.full = as_scipy.uses_all_residuals(self.method, self.acceptance)
        self.theta: Theta = self.start
        self.dim = int(self.manifold.dim) if self.manifold is not None else 0
        self.limits: tuple[Array, Array] | None = None
        if self.manifold is None:
            self.theta = inputs.parameters(self.start_name, self.start)
            self.dim = len(self.theta)
            self.limits = inputs.limits(self.bounds, self.theta, self.start_name)
        lower, upper = self.limits or (None, None)
        scales = inputs.scales(self.x_scale, self.dim)
        self.space = Space(self.dim, lower, upper, inputs.fixed_mask(self.fixed, self.dim), scales)
        self.auto = isinstance(self.f_scale, str) and self.f_scale == "auto"
        if self.auto:
            from .loss_scale import refuse_auto

            refuse_auto(self.loss)
        self.the_loss = as_loss(self.loss, 1.0 if self.auto else self.f_scale)
        if not callable(self.jac) and self.jac not in METHODS:
            raise ValueError(
                f"jac={self.jac!r} is not known{suggest(self.jac, METHODS)}; give a callable or one of {METHODS}"
            )
        minpack = self.plain and self.method == "lm"
        if minpack:
            as_scipy.refuse_as_minpack(self.limits, self.the_loss, self.jac_sparsity, self.callback)
        self.callback = None if minpack else as_scipy.called_back(self.callback, self.plain)
        self.tolerances = as_scipy.tolerances(self.ftol, self.xtol, self.gtol, self.plain, minpack)
        self.refused = as_scipy.refused_jacobians(
            self.method, self.tr_solver, self.tr_options, self.x_scale, self.jac_sparsity
        )
        if self.verbose not in (0, 1, 2):
            raise ValueError(f"verbose must be 0, 1 or 2, got {self.verbose!r}")
        if self.nan_policy not in ("reject", "raise", "omit"):
            raise ValueError(f"nan_policy must be 'reject', 'raise' or 'omit', got {self.nan_policy!r}")

    def compiled(self, model: Any, curve: str | None = None) -> RowModel:
        """Row model of a compiled model of residuals, or of a ``"plain"`` or ``"weighted"`` curve."""
        return CompiledModel(model, self.dim, self.the_loss, self.threads, curve)

    def function(self, fun: Callable[..., Any], jac: Any, written_in: Any = None) -> RowModel:
        """Row model of a NumPy, JAX or PyTorch function; the backend is as given, or detected from ``written_in``."""
        fun, jac = as_scipy.bind(fun, self.args, self.kwargs), as_scipy.bind(jac, self.args, self.kwargs)
        if self.plain and isinstance(self.callback, as_scipy.Intermediate):
            self.callback.fun = fun
        if not self.plain and not callable(jac):
            model = backend_model(
                self.backend, fun, self.dim, self.the_loss, self.manifold, written_in, read_program, self.threads
            )
            if model is not None:
                return model
        move = None if self.manifold is None else self.manifold.retract
        return FunctionModel(fun, jac, self.dim, self.the_loss, move=move, limits=self.limits, refused=self.refused)

    def fit(self, model: RowModel, data: Any, *, stored: bool = False, begun: Any = None) -> Result:
        """Fit data: checked arrays, none at all, or data ``stored`` elsewhere; ``begun`` are steps already taken."""
        if stored and self.nan_policy == "omit":
            raise ValueError("nan_policy='omit' needs data in memory: remove rows with NaN from the files first")
        settings = Settings(
            space=self.space, acceptance="full" if self.full or self.plain else self.acceptance,
            nan_policy="raise" if self.nan_policy == "raise" else "reject", rng=self.rng,
            underdetermined=(self.plain and self.method != "lm") or self.method in ("trf", "dogbox"),
            client=self.client, max_memory=self.max_memory, begun=begun, callback=self.callback,
            progress=self._progress(),
            options={**self.options, **self.tolerances, **as_scipy.evaluations(self.max_nfev)},
        )  # fmt: skip
        with _NO_POOLS if self.workers is None else ExitStack() as pools:
            if isinstance(model, FunctionModel) and not callable(model.jac):
                mapped = as_scipy.mapped(self.workers, pools)
                model.differences = as_scipy.differences(
                    model.jac, self.dim, self.manifold, self.limits, self.diff_step, self.jac_sparsity, mapped
                )
            start = self.theta
            if self.auto:
                from .loss_scale import chosen_scale

                scale, start = chosen_scale(model, data, start, settings, stored=stored)
                model = model.with_loss(self.the_loss.scaled(scale))
            result = fit_rows(model, data, start, settings, stored=stored)
        if not model.loss.is_linear:
            result.f_scale = model.loss.scale
        if self.verbose:
            print(f"{result.message}\n{result!r}")
        return result

    def _progress(self) -> bool | Callable[..., Any]:
        """What shows the progress, as of `problm.api.settings.Settings`."""
        if self.progress or self.verbose < 2:
            return self.progress
        from ..report.progress import print_iteration

        return print_iteration


def read_program(fun: Callable[..., Any], dim: int, columns: Any, jax: Any) -> Any:
    """A JAX function as a compiled model; see `problm.models.programs.jax_program.record`."""
    from ..models.programs.jax_program import record

    return record(fun, dim, columns, jax)


_ARGUMENTS = {f.name for f in fields(Call)} - {"start", "start_name", "plain", "options", "args", "kwargs"}
