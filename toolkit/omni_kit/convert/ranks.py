"""Processes that share one conversion: alone, or as the ranks of a torchrun."""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from omni_kit.errors import BadInput, MissingRequirement, OmniKitError

_T = TypeVar("_T")
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _place() -> tuple[int, int]:
    """Rank and number of ranks, from a complete and consistent set of torchrun's variables; else one process alone.

    Half of them, as batch systems and notebooks leave behind, says nothing about this run: a process that believed a
    rank alone would write its share into a place that nobody has looked at.

    Raises:
        BadInput: all of them are there, and contradict each other.
    """
    given = {name: os.environ.get(name, "") for name in _VARIABLES}
    if not all(given.values()):
        return 0, 1
    rank, count = given["RANK"], given["WORLD_SIZE"]
    if not (rank.isascii() and rank.isdigit() and count.isascii() and count.isdigit() and int(rank) < int(count)):
        raise BadInput(f"RANK={rank} and WORLD_SIZE={count} are not a rank of a launch", "unset them, or use torchrun")
    return int(rank), int(count)


class Ranks:
    """The processes of this run. torch is imported only where there is more than one."""

    def __init__(self) -> None:
        self.rank, self.count = _place()
        self._distributed: Any = None
        if self.count > 1:
            try:
                import torch.distributed as distributed
            except ImportError as error:
                raise MissingRequirement(
                    "torch is not installed, and torchrun needs it", "pip install torch"
                ) from error
            distributed.init_process_group("gloo")
            self._distributed = distributed

    @property
    def first(self) -> bool:
        """Return whether this process is the one that opens the destination and reports."""
        return self.rank == 0

    def share(self, items: Sequence[_T]) -> Sequence[_T]:
        """Return this process's part of `items`, round-robin."""
        return items[self.rank :: self.count]

    def agree(self, mine: Any, error: OmniKitError | None = None) -> list[Any]:
        """Return the values of all ranks, once every rank has arrived.

        Raises:
            OmniKitError: the first error that any rank brought; every rank raises it.
        """
        if self._distributed is None:
            gathered: list[Any] = [(mine, error)]
        else:
            gathered = [None] * self.count
            self._distributed.all_gather_object(gathered, (mine, error))
        failed = next((problem for _, problem in gathered if problem is not None), None)
        if failed is not None:
            raise failed
        return [value for value, _ in gathered]

    def close(self) -> None:
        """Leave the process group, if there is one."""
        if self._distributed is not None:
            self._distributed.destroy_process_group()
