"""Models that several processes may share, as they are in one."""

import ast
from pathlib import Path

from omni_kit.targets.diffusers.porting.one_process import without_processes
from omni_kit.upstream.repositories.reference import find_reference

HEAD = "import torch\nimport torch.nn as nn\n"
STATES = """
import torch.distributed as dist
_SHARED = False
class Ranks:
    def __init__(self):
        self.size = 1
        self.group = None
ranks = Ranks()
def set_shared(size):
    global _SHARED
    _SHARED = size > 1
def is_shared():
    global _SHARED
    return _SHARED
class Mesh:
    def __init__(self, size=1):
        self.size, self.group = size, dist.new_group([0])
    @property
    def on(self):
        return self.size > 1
_mesh = None
def mesh():
    global _mesh
    if _mesh is None:
        _mesh = Mesh()
    return _mesh
def gathered(x, group=None):
    if dist.get_world_size(group) == 1:
        return x
    parts = [x.clone() for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x, group=group)
    return sum(parts)
"""
NET = """
import states
from states import gathered, is_shared, mesh, ranks
import torch.distributed as dist
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        BODY
        return self.proj(x)
"""


def body_of(folder: Path, *lines: str) -> str:
    """Return forward without what several processes do, and after it the names of all that it needs."""
    (folder / "states.py").write_text(STATES, encoding="utf-8")
    (folder / "m.py").write_text(HEAD + NET.replace("BODY", "\n        ".join(lines)), encoding="utf-8")
    found = without_processes(find_reference(f"{folder}::Net").closure).definitions
    return "\n".join([ast.unparse(found[-1].node).partition("def forward")[2], *(one.name for one in found)])


def test_branches_of_several_processes_are_left_out(tmp_path: Path) -> None:
    found = body_of(tmp_path, "if is_shared():", "    x = torch.chunk(x, ranks.size, dim=1)[0]")
    assert "chunk" not in found
    assert "ranks" not in found


def test_what_a_module_of_theirs_says_is_known(tmp_path: Path) -> None:
    assert "chunk" not in body_of(tmp_path, "if states.is_shared():", "    x = torch.chunk(x, 1)[0]")


def test_an_object_that_joins_a_group_is_not_made(tmp_path: Path) -> None:
    found = body_of(
        tmp_path, "state = mesh()", "shared = state.on", "if shared:", "    x = gathered(x, state.group)", "else:",
        "    x = x * 2",
    )  # fmt: skip
    assert "x * 2" in found
    assert "mesh" not in found
    assert "gathered" not in found


def test_numbers_of_processes_are_written_as_numbers(tmp_path: Path) -> None:
    found = body_of(tmp_path, "x = torch.chunk(x, dist.get_world_size(), dim=1)[dist.get_rank()]")
    assert "torch.chunk(x, 1, dim=1)[0]" in found


def test_nothing_stands_after_what_one_process_returns(tmp_path: Path) -> None:
    found = body_of(tmp_path, "if not dist.is_initialized():", "    return x", "x = x * 3")
    assert "* 3" not in found


def test_waiting_for_other_processes_is_left_out(tmp_path: Path) -> None:
    lines = ("if dist.is_initialized() and dist.get_world_size() > 1:", "    x = x * 3", "dist.barrier()")
    found = body_of(tmp_path, *lines)
    assert "* 3" not in found
    assert "barrier" not in found


def test_other_conditions_stay(tmp_path: Path) -> None:
    lines = ("if x.shape[1] > 4 or is_shared():", "    x = x * 3", "if t is not None:", "    x = x + 1")
    found = body_of(tmp_path, *lines)
    assert "* 3" in found
    assert "if t is not None" in found
