"""Tests of the time that a search has taken."""

import time

from omni_kit.toys.elapsed import Elapsed


def test_waiting_counts_half_and_computing_whole() -> None:
    """A process that waits for others may take twice as long."""
    elapsed, begun = Elapsed(), time.process_time()
    time.sleep(0.2)
    waited = elapsed.seconds
    while time.process_time() < begun + 0.5:
        pass
    assert waited >= 0.1
    assert elapsed.seconds >= 0.5
