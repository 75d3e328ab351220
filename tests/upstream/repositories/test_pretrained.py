"""Models of authors that derive from transformers' PreTrainedModel."""

import ast
from pathlib import Path

from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import port
from omni_kit.upstream.repositories.reference import find_reference

HEAD = """
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
"""
CONFIG = """
class NetConfig(PretrainedConfig):
    def __init__(self, width=16, patch=(1, 2), **kwargs):
        self.width = width
        self.patch = patch
        super().__init__(**kwargs)
"""
NET = """
class Base(PreTrainedModel):
    config_class = NetConfig

class Net(Base):
    def __init__(
        self,
        config,
    ):
        super().__init__(
            config
        )
        self.proj = nn.Linear(config.width, config.width)
        self.post_init()

    def forward(self, x, timestep):
        return self.proj(x) * timestep.view(-1, 1, 1) * self.config.patch[1]
"""


def written(place: Path) -> str:
    (place / "m.py").write_text(HEAD + CONFIG + NET, encoding="utf-8")
    return f"{place / 'm.py'}::Net"


def test_the_config_s_arguments_are_those_of_the_model(tmp_path: Path) -> None:
    reference = find_reference(written(tmp_path))
    found = {name: one.default for name, one in reference.arguments.items()}
    assert found == {"width": 16, "patch": (1, 2)}
    assert reference.made_as == "NetConfig"


def test_lines_of_the_file_keep_their_numbers(tmp_path: Path) -> None:
    cls = find_reference(written(tmp_path)).cls
    plain = {node.name: node for node in ast.parse(HEAD + CONFIG + NET).body if isinstance(node, ast.ClassDef)}["Net"]
    assert [one.lineno for one in cls.node.body] == [one.lineno for one in plain.body]
    assert cls.node.end_lineno == plain.end_lineno


def test_the_port_has_no_config_of_transformers(tmp_path: Path) -> None:
    text = port(find_reference(written(tmp_path)), "Net", find_library("diffusers"), "diffusers").text
    assert not [word for word in ("NetConfig", "PreTrained", "post_init", "pass\n") if word in text]
    assert "def __init__(self, width=16, patch=(1, 2)):" in text
