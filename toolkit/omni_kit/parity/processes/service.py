"""Replies of a side's process to steps."""

import _imp
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from omni_kit.parity.processes.loaded import watch
from omni_kit.parity.processes.side import Side


def service(name: str) -> Callable[[str], Any]:
    """Return the function that takes a step, given as a line, on the side of this name."""
    watch()
    _imp.check_hash_based_pycs = "always"  # else bytecode that says so is run unchecked, whatever its source says
    side = Side(name)

    def take(line: str) -> Any:
        from omni_kit.parity.processes.steps import step_of

        try:
            result = step_of(line).take(side)
        except Exception as error:
            with suppress(AttributeError):
                error.place = side.code.of_error(error) if side.code else ""  # type: ignore[attr-defined]
            raise
        side.check_imports()
        return result

    return take
