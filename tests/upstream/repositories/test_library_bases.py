"""Classes that derive from a model of diffusers."""

import ast
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.repositories.reference import find_reference

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from diffusers.models import DiTTransformer2DModel as Base
from diffusers.models.embeddings import PatchEmbed
"""
NET = """
class Net(Base):
    def __init__(self, extra=4, **kwargs):
        super().__init__(**kwargs)
        self.extra = nn.Linear(extra, extra)

    def forward(self, hidden_states, timestep=None, class_labels=None):
        return super().forward(self.extra(hidden_states), timestep, class_labels, return_dict=False)[0]
"""


def test_the_library_s_model_is_read_with_the_authors(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HEAD + NET, encoding="utf-8")
    reference = find_reference(f"{tmp_path}::Net")
    assert {"extra", "num_attention_heads", "num_layers"} <= reference.arguments.keys()
    assert [*reference.forward] == ["hidden_states", "timestep", "class_labels"]
    base, model = reference.closure.definitions[-2:]
    assert [base.name, model.name] == ["Base", "Net"]
    assert (
        reference.closure.foreign[base]["BasicTransformerBlock"] == "diffusers.models.attention.BasicTransformerBlock"
    )


def test_lines_of_the_file_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HEAD + NET, encoding="utf-8")
    plain = next(one for one in ast.parse(HEAD + NET).body if isinstance(one, ast.ClassDef))
    assert find_reference(f"{tmp_path}::Net").cls.node.lineno == plain.lineno


def test_other_classes_of_the_names_that_it_needs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(HEAD + "class BasicTransformerBlock(nn.Module):\n    pass\n" + NET, encoding="utf-8")
    with pytest.raises(BadInput, match=r"derives from diffusers\.models\.DiTTransformer2DModel"):
        find_reference(f"{tmp_path}::Net")
