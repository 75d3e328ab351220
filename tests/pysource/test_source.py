"""Reading source files leaves no garbage behind."""

import gc

from omni_kit.pysource.source import without_collection

OBJECTS = 60_000  # of a round


def test_cycles_are_freed_in_a_process_that_reads_again_and_again() -> None:
    with without_collection():
        pass
    bound = 2 * max(gc.get_freeze_count(), 500_000) + 2 * OBJECTS
    for _ in range(bound // OBJECTS + 1):
        with without_collection():
            cycle: list[object] = []
            cycle += [[cycle] for _ in range(OBJECTS)]
            del cycle
        assert gc.get_freeze_count() < bound
    assert gc.isenabled()
