"""Time that a search has taken, so that a busy machine finds what a quiet one does."""

import time

_BUSY = 2.0


class Elapsed:
    """The seconds of the processor since it was made, or half of those of the clock, whichever are more."""

    def __init__(self) -> None:
        self._since = time.process_time(), time.monotonic()

    @property
    def seconds(self) -> float:
        """Return them."""
        return max(time.process_time() - self._since[0], (time.monotonic() - self._since[1]) / _BUSY)
