"""NumPy with the names that it had when authors wrote their code, in the process that runs it."""

import builtins
import math

import numpy

from omni_kit.upstream.repositories.old_numpy import RENAMED, TYPES


def restore_old_names() -> None:
    """Give NumPy the names that it has no longer; those that it has mean what they do."""
    known = vars(numpy)
    old = {**{name: getattr(builtins, name) for name in TYPES}, "math": math}
    old |= {name: known[new] for name, new in RENAMED.items() if new in known}
    for name in old.keys() - known.keys():
        setattr(numpy, name, old[name])
