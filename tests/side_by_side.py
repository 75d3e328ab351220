"""Order of test files side by side: what files of one library have read and started, one worker keeps."""

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_TESTS = Path(__file__).parent
# Rooms whose files take long; what reads libraries as they are comes first.
_FIRST = ("upstream", "toys", "parity", "verify", "targets", "checkers", "cli", "scaffold", "kernels")
# What is in the name of a folder, or of a file, that is about diffusers and what builds on it.
_OF_DIFFUSERS = ("diffus", "references", "repositories", "dit", "denoiser", "pipelines", "media")


def turn(item: pytest.Item) -> tuple[int, int]:
    """Return the place of a test's file: long rooms at both ends, of diffusers at the last; others between."""
    parts = item.path.relative_to(_TESTS).parts
    room = _FIRST.index(parts[0]) if parts[0] in _FIRST else len(_FIRST)
    words = {word for part in parts for word in part.removesuffix(".py").split("_")}
    if room < len(_FIRST) and any(word.startswith(_OF_DIFFUSERS) for word in words):
        return 2, -room
    return int(room == len(_FIRST)), room


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]
    """Gives every second worker files from the end, so that all meet in the middle."""

    def _assign_work_unit(self, node: Any) -> None:
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
