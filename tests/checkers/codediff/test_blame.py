"""Of two copies that differ, only the one that also differs from upstream or from the framework is named."""

import ast

import pytest

from omni_kit.pysource.library import find_library
from tests.checkers.conftest import Edits, Subject, found

COUSIN = """\
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("cousin")
def register_cousin_modeling(architecture):
    raise NotImplementedError
"""
_DATA = find_library("veomni").root / "distributed/sequence_parallel/data.py"
(FRAMEWORKS,) = (
    ast.unparse(node)
    for node in ast.parse(_DATA.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name == "sp_pad_and_slice"
)
PAD = "        tensor = torch.cat((tensor, pad), dim=dim)\n"
SCALED = "    scale_sp_size = sp_size * pad_scale\n"
CHUNK = "    sp_chunk_size = (seq_length + scale_sp_size - 1) // scale_sp_size\n"
# Each a slip in VeOmni's own function.
SLIPS = {
    "an operator": ("sp_size * pad_scale", "sp_size + pad_scale"),
    "a number": ("+ sp_size - 1", "+ sp_size - 2"),
    "another value": ("sp_rank * sp_chunk_size", "sp_rank * sp_size"),
    "an expression": ("sp_chunk_size * scale_sp_size - seq_length", "scale_sp_size"),
    "a statement that is left out": (PAD, ""),
    "two statements in another order": (SCALED + CHUNK, CHUNK + SCALED),
}
NORM = """\
# Source: transformers.models.olmoe.modeling_olmoe
import torch
from torch import nn


class OlmoeRMSNorm(nn.Module):
    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow({power}).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        self.seen = self.seen + 1
        return self.weight * hidden_states.to(input_dtype)
"""


def _beside(ours: str, theirs: str) -> Edits:
    """A plugin, and one beside it."""
    return {
        "../cousin/__init__.py": COUSIN,
        "../cousin/sharing.py": f"import torch\n\n\n{theirs}\n",
        "sharing.py": f"import torch\n\n\n{ours}\n",
    }


@pytest.mark.parametrize("slip", SLIPS)
def test_the_broken_one_of_two_plugins_is_named(slip: str, subject: Subject) -> None:
    old, new = SLIPS[slip]
    assert old in FRAMEWORKS
    assert found(subject(edits=_beside(FRAMEWORKS.replace(old, new), FRAMEWORKS)), "VEO427")


@pytest.mark.parametrize("slip", SLIPS)
def test_the_right_one_of_two_plugins_is_not(slip: str, subject: Subject) -> None:
    old, new = SLIPS[slip]
    assert found(subject(edits=_beside(FRAMEWORKS, FRAMEWORKS.replace(old, new))), "VEO427") == []


def test_where_nothing_tells_the_one_that_is_checked_is_named(subject: Subject) -> None:
    """Neither is as VeOmni's."""
    ours, theirs = (FRAMEWORKS.replace("sp_size * pad_scale", f"sp_size {way} pad_scale") for way in "+-")
    assert len(found(subject(edits=_beside(ours, theirs)), "VEO427")) == 1


@pytest.mark.parametrize(("gpu", "npu", "named"), [("3", "2", "gpu"), ("2", "3", "npu"), ("4", "3", "npu")])
def test_of_two_devices_the_one_that_differs_from_upstream_is_named(
    gpu: str, npu: str, named: str, subject: Subject
) -> None:
    files = {
        f"generated/patched_modeling_olmoe_{one}.py": NORM.format(power=power)
        for one, power in (("gpu", gpu), ("npu", npu))
    }
    (finding,) = found(subject(edits=files), "VEO706")
    path, _ = finding.generated or (finding.path, finding.line)
    assert path.stem.endswith(named)
