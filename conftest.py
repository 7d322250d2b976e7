"""What the tests share: no deadlines (a loaded machine is not a failure), no examples of packages that are missing.

BLAS gets one thread, here and in every process that the tests start: as many test processes as cores, each with as many
threads as cores, wait for each other at every product (one test took 61 s instead of 0.9 s).

Continuous integration (``CI`` in the environment) tries the same cases each time, so that what it says of a change is
about the change; new cases are tried wherever people work, and by ``make fuzz``.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

import signal
from importlib.util import find_spec

from hypothesis import settings

settings.register_profile("problm", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("problm")

collect_ignore = [
    f"src/problm/problems/backends/{name}_backend.py" for name in ("jax", "torch") if find_spec(name) is None
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells tell what they run in the background to ignore Control-C, and its children inherit that: not ours.
    signal.signal(signal.SIGINT, signal.default_int_handler)
