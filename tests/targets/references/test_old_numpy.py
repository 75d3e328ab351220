"""Authors' code runs with the names that NumPy had."""

import numpy

from omni_kit.targets.references.old_numpy import restore_old_names


def test_removed_names_of_numpy_are_there_and_others_as_they_were() -> None:
    before = {**vars(numpy)}
    restore_old_names()
    assert numpy.product((2, 3)) == 6  # type: ignore[attr-defined]
    assert numpy.zeros(1, dtype=numpy.int).dtype.kind == "i"  # type: ignore[attr-defined]
    assert before.items() <= vars(numpy).items()
