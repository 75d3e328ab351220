"""Code is told apart by what it computes: other spellings agree, and the slightest change is named."""

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.targets.veomni.text.kernels import experts_difference, mlp_difference, norm_difference
from omni_kit.upstream.construction import Module
from omni_kit.upstream.construction.interpreter import construct

EXPERTS = """
import torch
from torch import nn
from torch.nn import functional as F

class Experts(nn.Module):
    def __init__(self, count=4, size=8, inner=6):
        super().__init__()
        self.num_experts = count
        self.most = 7.0
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * inner, size))
        self.down_proj = nn.Parameter(torch.empty(count, size, inner))

    def forward(self, x, index, weights):
{body}
"""
LOOP = """
final = torch.zeros_like(x)
for expert in range(self.num_experts):
    token, place = torch.where(index == expert)
    gate, up = F.linear(x[token], self.gate_up_proj[expert]).chunk(2, dim=-1)
    y = F.linear(F.silu(gate) * up, self.down_proj[expert])
    final.index_add_(0, token, y * weights[token, place, None])
return final
"""
SAME = {
    "a loop": LOOP,
    "slices and matmul": """
        final = torch.zeros_like(x)
        inner = self.gate_up_proj.shape[1] // 2
        for expert in index.unique():
            token, place = (index == expert).nonzero(as_tuple=True)
            both = x[token] @ self.gate_up_proj[expert].T
            gate = both[..., :inner]
            y = both[..., inner:] * (gate * torch.sigmoid(gate))
            y = (y @ self.down_proj[expert].transpose(0, 1)) * weights[token, place].unsqueeze(1)
            final[token] = final[token] + y
        return final
    """,
    "every expert for every token": """
        both = torch.einsum("th,eih->tei", x, self.gate_up_proj)
        gate, up = both.split(both.shape[-1] // 2, dim=-1)
        y = torch.einsum("tei,ehi->teh", nn.functional.silu(gate) * up, self.down_proj)
        share = torch.zeros(x.shape[0], self.num_experts, dtype=x.dtype).scatter_add_(1, index, weights)
        return (y * share.unsqueeze(-1)).sum(dim=1)
    """,
    "the tokens of each expert in a row": """
        rows = index.flatten()
        order = rows.argsort()
        tokens = order // index.shape[1]
        ends = torch.bincount(rows, minlength=self.num_experts).cumsum(0)
        gate, up = torch._grouped_mm(x[tokens], self.gate_up_proj.transpose(-2, -1), offs=ends).chunk(2, -1)
        y = torch._grouped_mm(F.silu(gate).mul_(up), self.down_proj.transpose(-2, -1), offs=ends)
        return torch.zeros_like(x).index_add(0, tokens, y * weights.flatten()[order][:, None])
    """,
}
OTHER = {
    "a clamp": (("F.silu(gate)", "F.silu(gate.clamp(max=self.most))"), "gate.clamp(max=self.most)"),
    "a cast": (("F.silu(gate)", "F.silu(gate.float()).to(x.dtype)"), "gate.float()"),
    "a factor": (("* weights[token, place, None]", "* weights[token, place, None] * 1.5"), "1.5"),
    "a bias": (("F.silu(gate) * up", "F.silu(gate) * (up + 1)"), "up + 1"),
    "a stopped gradient": (("F.silu(gate)", "F.silu(gate.detach())"), "gate.detach()"),
    "another order": (("gate, up =", "up, gate ="), ""),
    "another activation": (("F.silu", "F.gelu"), ""),
    "no weights": ((" * weights[token, place, None]", ""), ""),
    "every token once": (("torch.where(index == expert)", "torch.where(index[:, :1] == expert)"), ""),
}


def experts(body: str, folder: Path) -> Module:
    text = EXPERTS.format(body="".join(f"        {line}\n" for line in dedent(body).strip().splitlines()))
    return construct(ClassRef(source := library(folder, text), source.classes["Experts"]), [], {})


def library(folder: Path, text: str) -> SourceFile:
    (folder / "own").mkdir()
    (folder / "own" / "__init__.py").write_text("")
    (folder / "own" / "modeling.py").write_text(text)
    return read_source(Library("own", folder / "own"), folder / "own" / "modeling.py")


@pytest.mark.parametrize("name", SAME)
def test_other_spellings_agree(name: str, tmp_path: Path) -> None:
    assert experts_difference(experts(SAME[name], tmp_path)) is None


@pytest.mark.parametrize("name", OTHER)
def test_a_change_is_seen_and_its_cause_named(name: str, tmp_path: Path) -> None:
    (old, new), cause = OTHER[name]
    assert old in LOOP
    found = experts_difference(experts(LOOP.replace(old, new), tmp_path))
    assert found is not None
    assert cause in str(found)
    assert all(where.startswith("own/modeling.py:") for where, _ in found.causes)


def test_what_cannot_be_evaluated_is_said_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no_such") as raised:
        experts_difference(experts(LOOP.replace("F.silu(gate)", "torch.no_such(gate)"), tmp_path))
    assert raised.value.line is not None


NORM = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return {result}

class MLP(nn.Module):
    def __init__(self, scale=1.0, drop=0.0):
        super().__init__()
        self.gate_proj = nn.Linear(8, 6)
        self.up_proj = nn.Linear(8, 6)
        self.down_proj = nn.Linear(6, 8)
        self.scale, self.drop = scale, drop

    def forward(self, x):
        return {mlp}
"""
STANDARD = "self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))"


@pytest.mark.parametrize(
    ("result", "agrees"),
    [
        ("self.weight * wide.to(x.dtype)", True),
        ("wide.type_as(x).mul(self.weight)", True),
        ("(self.weight * wide).to(x.dtype)", False),
        ("(1 + self.weight) * wide.to(x.dtype)", False),
        ("self.weight * wide", False),
    ],
)
def test_norms(result: str, agrees: bool, tmp_path: Path) -> None:
    source = library(tmp_path, NORM.format(result=result, mlp=STANDARD))
    norm = construct(ClassRef(source, source.classes["Norm"]), [8], {})
    assert (norm_difference(norm, "epsilon") is None) == agrees


@pytest.mark.parametrize(
    ("mlp", "agrees"),
    [
        (STANDARD, True),
        ("self.down_proj(self.up_proj(x) * torch.nn.SiLU()(self.gate_proj(x)))", True),
        (f"{STANDARD} * self.scale", False),
        (f"nn.functional.dropout({STANDARD}, p=self.drop, training=self.training)", False),
        (STANDARD.replace("silu", "relu"), False),
    ],
)
def test_a_factor_of_one_and_a_dropout_of_zero_are_seen(mlp: str, agrees: bool, tmp_path: Path) -> None:
    """What this config switches off the next one may switch on."""
    source = library(tmp_path, NORM.format(result="x", mlp=mlp))
    assert ast.unparse(source.tree)
    made = construct(ClassRef(source, source.classes["MLP"]), [], {})
    assert (mlp_difference(made) is None) == agrees


@pytest.mark.parametrize(
    ("old", "new", "first"),
    [
        ("mean(-1", "mean(-2", "wide.square().mean(-2, keepdim=True)"),
        ("torch.rsqrt(", "1 + torch.sqrt(", "torch.sqrt("),
        ("wide = x.float()", "wide = x", "wide.square()"),
    ],
)
def test_the_first_value_that_is_not_expected_is_named(tmp_path: Path, old: str, new: str, first: str) -> None:
    text = NORM.format(result="self.weight * wide.to(x.dtype)", mlp=STANDARD)
    assert old in text
    source = library(tmp_path, text.replace(old, new))
    found = norm_difference(construct(ClassRef(source, source.classes["Norm"]), [8], {}), "epsilon")
    assert found is not None
    assert str(found).startswith(f"the values part at `{first}")


def test_another_order_of_gate_and_up_is_named_where_it_first_shows(tmp_path: Path) -> None:
    found = experts_difference(experts(LOOP.replace("gate, up =", "up, gate ="), tmp_path))
    assert found is not None
    assert found.first[1] == "F.silu(gate)"
