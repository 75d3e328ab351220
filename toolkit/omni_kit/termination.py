"""Requests to stop this process.

A signal raises KeyboardInterrupt wherever the process stands, and a library that stands there may swallow it, as
imports of large packages do. So it is also remembered, and looked at where a command continues.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_asked = threading.Event()


@contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the block as Ctrl-C does, so that processes kept in reserve end, too.

    A signal that the process was told to ignore stays ignored.
    """
    _asked.clear()
    own = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _SIGNALS if own}
    mine = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    for number in mine:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
        # `python -m` dies by SIGINT if an interruption went through an exec of text, as those of dataclasses are,
        # however it was handled: CPython remembers how the last such exec ended.
        exec("", {})


def asked() -> bool:
    """Return whether such a signal came."""
    return _asked.is_set()


def go_on() -> None:
    """Raise if somebody requested this process to stop.

    Raises:
        KeyboardInterrupt: somebody has.
    """
    if _asked.is_set():
        raise KeyboardInterrupt


def _stop(number: int, frame: object) -> NoReturn:
    _asked.set()
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_IGN)  # cleaning up is not stopped in its turn
    raise KeyboardInterrupt
