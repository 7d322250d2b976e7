"""The runner of all experiments: problems x methods x starts x repeats, all measured in the same way.

An experiment is a description (`Experiment`): cases, methods, repeats, and a summary of the records. The runner does
the rest, the same for every method:

* **Equal starts and stopping rules.** A method gets an instance, the number of a start and a seed, nothing else; the
  tolerances are those of the experiment.
* **Fair clocks.** A method returns the *points* it visited and when (`Outcome.path`). The cost over all residuals is
  computed from them afterwards, outside the clock, for all methods (`measure`). Before its first timed run on a case
  each method runs once unrecorded, so that compilation and first use of memory are not timed.
* **The clock is CPU time** of the process for all methods. All run on one thread, so on a quiet machine it is the
  elapsed time, and on a busy one it is still the cost of the method (`cpu_clock`).
* **Interleaved repeats.** For each start all methods run in turn, in an order that rotates from repeat to repeat, so
  that slow periods of the machine affect all. The garbage collector is disabled during a run.
* **Resumable.** Every record is one line of a journal, written and flushed at once; a killed run resumes after the last
  complete line. A journal of other settings or other code is set aside, never mixed.
* **Parallel** over starts and cases if seconds are not measured (`timed=False`).
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .journal import Journal
from .progress import Progress

Record = dict[str, Any]
SCALES = ("check", "default", "paper")
SEEDS = 5
"""Start k belongs to seed k mod 5: figures are computed for each seed apart, and given with their spread."""
WALL_CLOCK = time.perf_counter
_WARM_UP = {"max_iter": 4}


@dataclass(frozen=True)
class Settings:
    """Settings of a run of the benchmarks."""

    data: str | None = None
    """Folder of the real data sets; None: stand-ins made from the seed."""
    scale: str = "default"
    """``"check"`` (seconds), ``"default"`` (all in 15 minutes on 2 cores) or ``"paper"`` (its numbers of runs)."""
    seed: int = 2020

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale={self.scale!r} is not known; choose one of {', '.join(SCALES)}")
        if self.data is not None and not Path(self.data).is_dir():
            raise FileNotFoundError(f"data: there is no folder {self.data!r}; leave it out to use stand-ins")

    def pick(self, check: Any, default: Any, paper: Any) -> Any:
        """The value for the scale."""
        return {"check": check, "default": default, "paper": paper}[self.scale]


class Instance(Protocol):
    """A loaded case: whatever its experiment's methods understand; starts, and the cost that is judged."""

    starts: Sequence[Any]

    def cost(self, theta: Any) -> float:
        """Cost over all residuals under the final loss."""
        ...


@dataclass(frozen=True)
class Case:
    """One problem. ``load`` is called in the process that runs it, and only if there is something to run."""

    name: str
    load: Callable[[], Any]
    starts: int = 1
    repeats: int = 1
    """Number of runs of each method from each start."""


@dataclass
class Outcome:
    """Result of one run of a method."""

    seconds: list[float] = field(default_factory=list)
    """Seconds from the start of the run to each point of the path."""
    path: list[Any] = field(default_factory=list)
    """The points; the same object again means that the point has not moved."""
    batch: list[int] = field(default_factory=list)
    residual_passes: list[float] = field(default_factory=list)
    jacobian_passes: list[float] = field(default_factory=list)
    status: int = 1
    total_seconds: float = math.nan
    total_residual_passes: float = math.nan
    total_jacobian_passes: float = math.nan
    x: Any = None
    """Final point."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further numbers for the record: inliers, counts of verdicts, ..."""


Run = Callable[[Any, int, int, Mapping[str, Any]], Outcome]
"""``(instance, number of the start, seed, options) -> Outcome``."""


@dataclass(frozen=True)
class Method:
    """A way to solve the cases of an experiment."""

    key: str
    label: str
    run: Run
    colour: str = "#777777"
    version: Callable[[], str | None] = lambda: "built in"
    """Version of what runs it, or None if that is not installed."""
    peer: bool = False
    """Only reports its final point. Does its own warm-up, outside the clock, if it needs one."""


@dataclass(frozen=True)
class Experiment:
    """A description; `run` does the work."""

    name: str
    title: str
    figures: str
    """Numbers of the paper's figures."""
    claim: str
    """What the paper says about them."""
    cases: Callable[[Settings], Sequence[Case]]
    methods: Sequence[Method]
    summarise: Callable[[Any, Sequence[Record], Settings], Any]
    """``(experiment, records, settings) -> bench.harness.summary.Summary``."""
    source: str
    """``"module:name"`` of this object, for worker processes."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that are equal for all methods: tolerances, budgets."""
    timed: bool = True
    expected_seconds: float = 60.0
    """Expected seconds at the default scale, only for the estimate of the remaining time."""
    real: bool = True
    """Whether there are real data for it; otherwise it always runs on made data."""

    def settings(self, given: Settings) -> Settings:
        """The settings that apply: without the folder of real data if there are none for this experiment."""
        return given if self.real else replace(given, data=None)

    def stem(self, given: Settings) -> str:
        """Name of the files of its results: runs on real data and on stand-ins are kept beside each other."""
        return f"{self.name}-real" if self.settings(given).data else self.name

    def available(self) -> dict[str, tuple[Method, str]]:
        """The methods that can run here, with their versions."""
        found = {}
        for method in self.methods:
            version = method.version()
            if version is not None:
                found[method.key] = (method, version)
        return found


@dataclass(frozen=True)
class Task:
    case: int
    start: int
    repeat: int
    method: str

    @property
    def key(self) -> str:
        return f"{self.case}/{self.start}/{self.repeat}/{self.method}"


def tasks(experiment: Experiment, cases: Sequence[Case], settings: Settings) -> Iterator[Task]:
    """All runs in order: methods innermost, rotating."""
    keys = list(experiment.available())
    for number, case in enumerate(cases):
        for start in range(case.starts):
            for repeat in range(case.repeats):
                turn = (start + repeat) % len(keys)
                for key in keys[turn:] + keys[:turn]:
                    yield Task(number, start, repeat, key)


def run(
    experiment: Experiment, settings: Settings, output: Path, *, workers: int | None = None,
    progress: Progress | None = None,
) -> list[Record]:  # fmt: skip
    """Run what the journal in ``output`` does not hold yet; return all records."""
    settings = experiment.settings(settings)
    stem = experiment.stem(settings)
    cases = list(experiment.cases(settings))
    todo = list(tasks(experiment, cases, settings))
    with Journal(output / "raw" / f"{stem}.jsonl", fingerprint(experiment, settings)) as journal:
        left = [t for t in todo if t.key not in journal.records]
        if progress is not None:
            progress.begin(stem, len(todo), len(todo) - len(left), experiment.expected_seconds)
        workers = workers or os.cpu_count() or 1
        runner = _serial if experiment.timed or workers == 1 else _parallel
        for record in runner(experiment, settings, cases, left, workers):
            journal.append(record)
            if progress is not None:
                progress.step()
        return [journal.records[t.key] for t in todo]


def _serial(
    experiment: Experiment, settings: Settings, cases: Sequence[Case], left: Sequence[Task], workers: int
) -> Iterator[Record]:
    methods = experiment.available()
    current, instance, warm = -1, None, set[str]()
    for task in left:
        if task.case != current:
            instance = None  # release the last one first: images and columns are large
            instance, current, warm = cases[task.case].load(), task.case, set()
        method = methods[task.method][0]
        if experiment.timed and not method.peer and task.method not in warm:
            warm.add(task.method)
            _attempt(method, instance, task, settings, {**experiment.options, **_WARM_UP})
        yield measure(method, instance, task, settings, experiment.options, cases[task.case].name)


def _parallel(
    experiment: Experiment, settings: Settings, cases: Sequence[Case], left: Sequence[Task], workers: int
) -> Iterator[Record]:
    chunks: dict[tuple[int, int], list[Task]] = {}
    for task in left:
        chunks.setdefault((task.case, task.start), []).append(task)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=single_thread) as pool:
        waiting: set[Future[list[Record]]] = {
            pool.submit(_chunk, experiment.source, settings, chunk) for chunk in chunks.values()
        }
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        finally:
            for future in waiting:
                future.cancel()


def _chunk(source: str, settings: Settings, chunk: Sequence[Task]) -> list[Record]:
    """Do the runs of one start of one case, in a worker."""
    experiment = find(source)
    instance, name = _loaded(source, settings, chunk[0].case)
    methods = experiment.available()
    return [measure(methods[t.method][0], instance, t, settings, experiment.options, name) for t in chunk]


@lru_cache(maxsize=2)
def _loaded(source: str, settings: Settings, case: int) -> tuple[Any, str]:
    described = find(source).cases(settings)[case]
    return described.load(), described.name


def find(source: str) -> Experiment:
    """The experiment at ``"module:name"``."""
    module, name = source.split(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Experiment)
    return found


@contextmanager
def cpu_clock() -> Iterator[None]:
    """Make `time.perf_counter`, which the solver, its time limits and the adapters read, return CPU time."""
    time.perf_counter = time.process_time
    try:
        yield
    finally:
        time.perf_counter = WALL_CLOCK


def _attempt(method: Method, instance: Any, task: Task, settings: Settings, options: Mapping[str, Any]) -> Any:
    """Run, and return an Outcome or the exception: a failure of a method is a result as well."""
    gc.disable()
    try:
        with cpu_clock():
            return method.run(instance, task.start, settings.seed + task.start, options)
    except Exception as error:
        return error
    finally:
        gc.enable()


def measure(
    method: Method, instance: Any, task: Task, settings: Settings, options: Mapping[str, Any], case: str
) -> Record:
    """Make a record of one run; costs over all residuals are computed here, after the run."""
    outcome = _attempt(method, instance, task, settings, options)
    head: Record = {
        "key": task.key, "case": case, "method": task.method, "start": task.start, "repeat": task.repeat,
    }  # fmt: skip
    if isinstance(outcome, BaseException):
        return {**head, "error": f"{type(outcome).__name__}: {outcome}"}
    record: Record = {**head, "status": int(outcome.status), **plain(outcome.extra)}
    if outcome.x is not None:
        record |= _history(instance, outcome, task.start)
        record["final"] = float(instance.cost(outcome.x))
        record["x"] = np.asarray(outcome.x, dtype=float).ravel().tolist()
    totals = (outcome.total_seconds, outcome.total_residual_passes, outcome.total_jacobian_passes)
    record |= dict(zip(("total_seconds", "residual_passes", "jacobian_passes"), totals, strict=True))
    return record


def _history(instance: Any, outcome: Outcome, start: int) -> Record:
    """Times, costs over all residuals, batch sizes and work whenever the point moved or the batch grew; entry 0 is the
    start."""
    begin = instance.starts[start]
    last, cost = begin, float(instance.cost(begin))
    rows: list[tuple[float, float, int, float, float]] = [
        (0.0, cost, outcome.batch[0] if outcome.batch else 0, 0.0, 0.0)
    ]
    for i, point in enumerate(outcome.path):
        moved = point is not last
        if moved:
            last, cost = point, float(instance.cost(point))
        batch = outcome.batch[i] if outcome.batch else 0
        if moved or batch != rows[-1][2] or i == len(outcome.path) - 1:
            work = (outcome.residual_passes[i], outcome.jacobian_passes[i]) if outcome.residual_passes else (0.0, 0.0)
            rows.append((outcome.seconds[i], cost, batch, *work))
    names = ("seconds", "cost", "batch", "residuals", "jacobians")
    return {name: [_rounded(v) for v in column] for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _rounded(value: float) -> float:
    """Twelve digits are enough for 1 + 1e-6, and half the size."""
    return value if isinstance(value, int) else float(f"{value:.12g}")


def plain(value: Any) -> Any:
    """NumPy numbers and arrays as JSON knows them."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def single_thread() -> None:
    """Use one thread for all methods. Call before NumPy's libraries and JAX start their pools."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_ENABLE_X64", "1")


def fingerprint(experiment: Experiment, settings: Settings) -> dict[str, Any]:
    """What must be equal for records to belong together: settings, methods with versions, and the code."""
    return {
        "experiment": experiment.name,
        "settings": asdict(settings),
        "options": {k: repr(v) for k, v in experiment.options.items()},
        "cases": [[case.name, case.starts, case.repeats] for case in experiment.cases(settings)],
        "methods": {key: version for key, (_, version) in experiment.available().items()},
        "code": code_digest(),
    }


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of the sources of the package and the benchmarks."""
    import problm

    digest = hashlib.sha256()
    for folder in (Path(problm.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_records(path: Path) -> list[Record]:
    """The records of a journal, whatever settings it was written with."""
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]
