"""Classes whose forward their constructor assigns, and constructors that take a dataclass among other arguments."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.upstream.repositories.reference import Reference, find_reference

CHOSEN = """import torch
class Net(torch.nn.Module):
    def __init__(self, saves=None, flag=False):
        super().__init__()
        self.saves = saves
        {assigned}

    def plainly(self, x, t, **kwargs):
        \"\"\"Return it.\"\"\"
        return x + t

    def saving(self, x, t{more}, **kwargs):
        return x - t

    def last(self):
        return 1
"""
BOTH = "if {}:\n            self.forward = self.saving\n        else:\n            self.forward = self.plainly"


def found_in(folder: Path, text: str) -> Reference:
    (folder / "m.py").write_text(text, encoding="utf-8")
    return find_reference(f"{folder}::Net")


def test_a_method_that_the_constructor_assigns_is_forward(tmp_path: Path) -> None:
    text = CHOSEN.format(assigned="self.forward = self.plainly", more="")
    cls = found_in(tmp_path, text).cls
    assert cls.defines("forward") is not None
    assert cls.defines("plainly") is None
    assert "self.forward" not in cls.source.text


def test_of_two_methods_forward_asks_which_as_the_constructor_does(tmp_path: Path) -> None:
    text = CHOSEN.format(assigned=BOTH.format("self.saves"), more="")
    cls = found_in(tmp_path, text).cls
    assert "if self.saves: return self.saving(x, t, **kwargs)" in cls.source.text
    last = cls.defines("last")
    assert last is not None
    assert last.lineno == text.split("\n").index("    def last(self):") + 1


@pytest.mark.parametrize(("assigned", "more"), [
    (BOTH.format("flag"), ""),  # of the constructor alone
    (BOTH.format("self.saves"), ", y=None"),  # other arguments
    ("self.forward = torch.compile(self.plainly)", ""),
])  # fmt: skip
def test_what_is_assigned_in_another_way_is_no_forward(assigned: str, more: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no forward"):
        found_in(tmp_path, CHOSEN.format(assigned=assigned, more=more))


PASSES = """import torch
class Net(torch.nn.Module):
    def forward(self, *args, **kwargs):
        {first}
        return self.plainly(*args, **kwargs)

    def cached(self, x, t, cache):
        return x + cache

    def plainly(self, x, t, y=None):
        return x + t

    def last(self):
        return 1
"""
IN_BOTH = "if kwargs.get('cache', None) is not None:\n            return self.cached(*args, **kwargs)"


@pytest.mark.parametrize("first", ["", IN_BOTH, "if 'cache' in kwargs: return self.cached(*args, **kwargs)"])
def test_a_method_to_which_forward_passes_all_on_is_forward(first: str, tmp_path: Path) -> None:
    text = PASSES.format(first=first)
    found = found_in(tmp_path, text)
    forward, last = found.cls.defines("forward"), found.cls.defines("last")
    assert (found.forwards, [*found.forward]) == ("plainly", ["x", "t", "y"])
    assert forward is not None
    assert last is not None
    assert last.lineno == text.split("\n").index("    def last(self):") + 1


@pytest.mark.parametrize("first", ["if self.training: return self.cached(*args, **kwargs)", "args = args[::-1]"])
def test_a_forward_that_does_more_stays(first: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, PASSES.format(first=first))
    assert not found.forwards
    assert found.cls.defines("plainly") is not None


MIXED = """from dataclasses import dataclass, field
import torch

class Inner:
    pass

@dataclass
class Config:
    width: int = 64
    inner: Inner = field(default_factory=Inner)

class Net(torch.nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        self.proj = torch.nn.Linear(channels, config.width)

    def forward(self, x, t):
        return self.proj(x)
"""


def test_a_dataclass_may_be_one_of_several_arguments(tmp_path: Path) -> None:
    found = found_in(tmp_path, MIXED.format(arguments="channels: int, config: Config"))
    assert found.settings is not None
    assert [*found.arguments] == ["width", "inner", "channels"]
    assert found.settings.made_inside == {"inner"}


@pytest.mark.parametrize("arguments", ["channels: int, config: Config = None", "width: int, config: Config"])
def test_a_dataclass_that_may_be_null_or_has_the_name_of_an_argument_is_none(arguments: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, MIXED.format(arguments=arguments)).settings is None


CONVERTS = """import torch
from no_such_configs import Config

class Net(torch.nn.Module):
    def __init__(self, config, size: int = 4):
        super().__init__()
        {first}
        self.proj = torch.nn.Linear(size, config.model.width)

    def forward(self, x, t):
        return self.proj(x)
"""


@pytest.mark.parametrize("first", [
    "if type(config) == dict:\n            config = Config(**config)",
    "if isinstance(config, (dict, Config)):\n            config = Config.create(config)",
    "if not isinstance(config, Config):\n            config = Config(values=config)",
])  # fmt: skip
def test_a_config_that_is_converted_first_is_read_by_its_fields(first: str, tmp_path: Path) -> None:
    text = CONVERTS.format(first=first)
    found = found_in(tmp_path, text)
    assert found.namespace is not None
    assert [*found.arguments] == ["width", "size"]
    assert len(found.cls.source.lines) == len(text.split("\n"))


@pytest.mark.parametrize("first", [
    "if isinstance(config, dict):\n            config = Config(config, size)",  # of another argument, too
    "if isinstance(config, dict):\n            config = Config(config)\n        else:\n            size = 2",
    "if isinstance(config, torch.Tensor):\n            config = Config(config)",
    "if size > 4:\n            config = Config(config)",
])  # fmt: skip
def test_a_config_that_is_changed_in_another_way_is_an_object(first: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, CONVERTS.format(first=first)).namespace is None


LOADS = """import torch
from transformers import T5Config

def width_of(name):
    {body}

class Net(torch.nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        self.proj = torch.nn.Linear(size, text_dim)

    def forward(self, x, t):
        return self.proj(x)
"""
LOADED = "return T5Config.from_pretrained(name).d_model"


@pytest.mark.parametrize(("arguments", "required", "default"), [
    ("size, *, text_dim: int = width_of('t5'), depth=2", True, UNKNOWN),
    ("size=4, text_dim=width_of('t5'), depth=2", False, None),
])  # fmt: skip
def test_a_default_for_which_a_model_is_loaded_is_none(
    arguments: str, required: bool, default: object, tmp_path: Path
) -> None:
    found = found_in(tmp_path, LOADS.format(body=LOADED, arguments=arguments))
    assert (found.arguments["text_dim"].required, found.arguments["text_dim"].default) == (required, default)
    assert found.arguments["depth"].default == 2
    assert [one.name for one in found.closure.definitions] == ["Net"]


def test_a_default_that_is_worked_out_stays(tmp_path: Path) -> None:
    found = found_in(tmp_path, LOADS.format(body="return len(name)", arguments="size, *, text_dim=width_of('t5')"))
    assert not found.arguments["text_dim"].required
    assert [one.name for one in found.closure.definitions] == ["width_of", "Net"]
