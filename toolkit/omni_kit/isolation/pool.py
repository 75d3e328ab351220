"""Share work out over forks of this process, which know all that it has read."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from omni_kit.isolation.worker import cores

T = TypeVar("T")
R = TypeVar("R")
_END_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def map_in_forks(function: Callable[[T], R], items: Sequence[T], most: int) -> Iterable[R]:
    """Return the results for all items, in order; computed here where forking is not safe or would not help.

    Args:
        function: of a module's top level; it, its results and the items travel between processes.
        most: processes at a time, where there are as many cores.
    """
    workers = min(cores(), most, len(items)) if sys.platform == "linux" else 1
    if workers < 2:
        return [function(item) for item in items]
    with ProcessPoolExecutor(workers, get_context("fork"), _end_with, (os.getpid(),)) as pool:
        return list(pool.map(function, items))


def _end_with(parent: int) -> None:
    """End this process when its parent ends."""
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
