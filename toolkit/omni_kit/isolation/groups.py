"""Run one function in several processes that work together, and end them all when one fails."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

_LAST_WORDS = 30.0  # seconds in which processes that are asked to end can write their stacks


def run_group(function: Callable[..., None], arguments: Sequence[Any], count: int, *, fork: bool = True) -> list[int]:
    """Call `function(rank, environment, *arguments)` in `count` processes; return their exit codes, in order of rank.

    When one fails, the others are ended by SIGTERM, and later by SIGKILL. `environment` holds the variables by which
    torch.distributed finds the others.

    Args:
        fork: the processes are forks of this one, which must have one thread; otherwise each imports for itself.
    """
    context = get_context("fork") if fork else get_context("spawn")
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(_free_port())}  # fmt: skip
    processes: list[BaseProcess] = []
    try:
        for rank in range(count):
            environment = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
            processes.append(context.Process(target=function, args=(rank, environment, *arguments)))
            processes[-1].start()
        while not any(process.exitcode for process in processes):
            running = [process.sentinel for process in processes if process.exitcode is None]
            if not running:
                break
            wait(running)
    finally:
        _end(processes)
    return [process.exitcode or 0 for process in processes]


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _LAST_WORDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()


def _free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
