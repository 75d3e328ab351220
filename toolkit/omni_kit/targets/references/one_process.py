"""torch.distributed for authors' code that asks for a process group in a program of one process."""

from contextlib import ExitStack
from typing import Any

from torch import distributed
from torch.distributed import device_mesh, distributed_c10d

from omni_kit.targets.replacing import replaced

_DEFAULT, _INIT = "_get_default_group", "init_process_group"
_begun: list[ExitStack] = []


def run_in_one_process() -> None:
    """Make a group of this process alone where code asks for one, which its authors' launcher makes; once is enough.

    Nothing changes for code that asks whether there is one first.
    """
    if _begun or not distributed.is_available():
        return
    _begun.append(ExitStack())
    existing = distributed_c10d._get_default_group
    begin = distributed_c10d.init_process_group

    def alone(*args: Any, **kwargs: Any) -> None:
        if not distributed.is_initialized():
            begin("gloo", store=distributed.HashStore(), rank=0, world_size=1)

    def default_group() -> Any:
        alone()
        return existing()

    _begun[0].enter_context(replaced(distributed_c10d, _DEFAULT, default_group))
    for module in (distributed, distributed_c10d, device_mesh):
        _begun[0].enter_context(replaced(module, _INIT, alone))


def leave_group() -> None:
    """Destroy the process group and restore torch.distributed, if `run_in_one_process` has changed it."""
    if _begun and distributed.is_initialized():
        distributed.destroy_process_group()
    while _begun:
        _begun.pop().close()
