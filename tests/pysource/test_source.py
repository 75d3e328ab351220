"""Reading source files leaves no garbage behind."""

import sys

from omni_kit.pysource.source import _FEW, without_collection

OBJECTS = 500_000


def test_cycles_are_freed_in_a_process_that_reads_again_and_again() -> None:
    bound = 2 * max(sys.getallocatedblocks(), _FEW) + 2 * OBJECTS
    for _ in range(15):
        with without_collection():
            for _ in range(OBJECTS):
                cycle: list[object] = []
                cycle.append(cycle)
        assert sys.getallocatedblocks() < bound
