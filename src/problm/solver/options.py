"""Settings of a solve: one frozen dataclass with a default and a meaning for every field."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .damping import Damping
    from .policies.acceptance import Acceptance, Step, Verdict
    from .result import State


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `problm.solver.loop.solve`. A wrong name or value raises here, before any work.

    Examples
    --------
    >>> Options(acceptance="full", gtol=1e-10).gtol
    1e-10
    >>> Options(acceptence="full")
    Traceback (most recent call last):
        ...
    TypeError: ...
    """

    acceptance: str | Acceptance | Callable[[Step], Verdict] = "holdout"
    """Test of a step: a name (see `problm.solver.policies.POLICIES`), a policy object, or a function of a step."""
    damping: str | Damping | None = None
    """Damping rule: ``"trust-region"`` (MINPACK's), ``"gain-ratio"``, ``"nielsen"`` or ``"tenfold"`` (the paper's
    lambda I, multiplied or divided by ten). None: the acceptance policy's default, tenfold for the paper's policies and
    trust-region for the others."""
    ftol: float = 0.0
    """Relative decrease of the cost by a step, and by the remaining Gauss-Newton step, at which to stop; 0: never."""
    xtol: float = 0.0
    """Relative change of the parameters by a step, and by the next Gauss-Newton step, at which to stop; 0: never."""
    gtol: float | None = None
    """Largest cosine between residuals and tangent space, sqrt(decrement / cost), at convergence.
    None: 1e-8 up to 10^4 residuals (of a function, as many as are all used from the start); for more, where passes are
    expensive, the cosine at which the minimum is 0.01 standard errors of the parameters away
    (`problm.solver.termination`)."""
    certificate: str | None = None
    """``"bound"``: the last step may be taken without another linearisation if the previous steps bound what is left;
    ``"gradient"``: the gradient over all residuals is computed at the returned point. None: a bound if residuals are
    many, and the gradient if they are few, as for gtol."""
    max_iter: int = 5000
    """Largest number of trial steps and growths of the batch."""
    max_time: float = math.inf
    """Time limit in seconds. A pass over the residuals that would not end in time is not started."""
    initial_batch: int | None = None
    """Number of residual blocks in the first batch. None: the acceptance policy's default."""
    max_batch: int | None = None
    """Stop rather than let the batch grow beyond this; the status says so."""
    accuracy: float | None = None
    """Stop on a batch once the cost over *all* residuals is within this relative distance of its minimum with
    probability ``confidence``; the status says so. None: continue to all residuals."""
    confidence: float = 0.9
    """Confidence of the certificate in accuracy mode."""
    nan_policy: str = "reject"
    """What to do with a trial step whose cost is NaN: ``"reject"`` it like a step that raises the cost, or ``"raise"``
    an error that names the row. NaN at the start and in the data always raises."""
    rng: np.random.Generator | int | None = 0
    """Random seed or Generator for the policies (SPEC 7)."""
    callback: Callable[[State], object] | None = None
    """Called after every iteration; a true return value or StopIteration ends the solve."""
    keep_path: bool = False
    """Whether to keep theta of every iteration in the history."""
    checkpoint: str | os.PathLike[str] | None = None
    """File for the state of the solve. If it exists, the solve resumes from it and gives the same bits; it must have
    been written for the same rows, model, start and options."""
    checkpoint_every: float = 60.0
    """Seconds between two checkpoints, also within passes over all rows; 0: after every accepted step and group of
    rows."""

    def __post_init__(self) -> None:
        for name in ("ftol", "xtol"):
            if getattr(self, name) is None:  # test is off, as in SciPy
                object.__setattr__(self, name, 0.0)
        if self.ftol or self.xtol or self.gtol is not None or self.checkpoint_every != 60.0:
            for name in ("ftol", "xtol", "checkpoint_every", *([] if self.gtol is None else ["gtol"])):
                _non_negative(name, getattr(self, name))
        if not self.max_time > 0:
            raise ValueError(f"max_time must be positive seconds, got {self.max_time!r}")
        if int(self.max_iter) != self.max_iter or self.max_iter < 0:
            raise ValueError(f"max_iter must be a whole number from 0, got {self.max_iter!r}")
        for name in ("initial_batch", "max_batch"):
            value = getattr(self, name)
            if value is not None and (int(value) != value or value < 1):
                raise ValueError(f"{name} must be a whole number from 1, got {value!r}")
        if self.accuracy is not None and not 0 < self.accuracy < 1:
            raise ValueError(f"accuracy must lie between 0 and 1 (relative to the cost), got {self.accuracy!r}")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, got {self.confidence!r}")
        if self.certificate not in (None, "bound", "gradient"):
            raise ValueError(f"certificate must be 'bound' or 'gradient', got {self.certificate!r}")
        if self.nan_policy not in ("reject", "raise"):
            raise ValueError(f"nan_policy must be 'reject' or 'raise', got {self.nan_policy!r}")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {type(self.callback).__name__}")

    @classmethod
    def of(cls, **settings: Any) -> Options:
        """Make options from keywords; the error for an unknown name suggests the nearest valid one."""
        for name in settings:
            if name not in cls.__dataclass_fields__:
                valid = [f.name for f in fields(cls)]
                raise TypeError(f"unknown option {name!r}{suggest(name, valid)}; options are {', '.join(valid)}")
        made = object.__new__(cls)  # the class has the defaults; setting all fields takes ten times as long
        made.__dict__.update(settings)
        made.__post_init__()
        return made

    @classmethod
    def of_several(cls, **settings: Any) -> Options:
        """Like `of`, for a function that runs several solves, one after the other: they cannot share a checkpoint."""
        if settings.get("checkpoint") is not None:
            raise ValueError(
                f"checkpoint={settings['checkpoint']!r}: this function runs several solves and keeps no checkpoint; "
                "least_squares, curve_fit, fit and bundle_adjustment do"
            )
        return cls.of(**settings)


def _non_negative(name: str, value: float) -> None:
    if not (isinstance(value, (int, float, np.floating)) and value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a number from 0, got {value!r}")
