"""A constructor's argument of which only attributes are read: `args`, or a config."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.namespace import Apart
from omni_kit.upstream.repositories.reference import find_reference

MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self, args, depth=2):
        super().__init__()
        self.args = args
        self.proj = nn.Linear(args.hidden_size, args.hidden_size)
        {more}

    def forward(self, x, t):
        return self.proj(x) * self.args.scale
"""
PARSER = """
parser.add_argument("--hidden-size", type=int, default=384)
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--fp16", action="store_true")
parser.set_defaults(scale=0.5)
"""


def written(place: Path, more: str = "pass", parser: str = "") -> str:
    (place / "model.py").write_text(MODEL.format(more=more))
    (place / "train.py").write_text(parser)
    return f"{place}/model.py::Net"


def test_each_attribute_is_an_argument(tmp_path: Path) -> None:
    found = find_reference(written(tmp_path, "self.half = args.fp16", PARSER))
    assert found.namespace is not None
    assert found.namespace.argument == "args"
    assert {name: one.default for name, one in found.arguments.items()} == {
        "hidden_size": 384, "fp16": False, "scale": 0.5, "depth": 2,
    }  # fmt: skip


def test_what_no_command_line_gives_has_no_default(tmp_path: Path) -> None:
    found = find_reference(written(tmp_path))
    assert {name: one.required for name, one in found.arguments.items()} == {
        "hidden_size": True, "scale": True, "depth": False,
    }  # fmt: skip


def test_what_a_config_has_is_the_default_and_a_reference_to_it_is_no_argument(tmp_path: Path) -> None:
    """The object that stands for the fields is none that `**kwargs` take, either."""
    given = written(tmp_path).partition("::")[0]
    text = (tmp_path / "model.py").read_text().replace("depth=2", "depth=2, **kwargs")
    (tmp_path / "model.py").write_text(text)
    (tmp_path / "base.yaml").write_text("train:\n  ablation:\n    hidden_size: 96\n    scale: 0.25\n")
    (tmp_path / "net.yaml").write_text("net:\n  target: model.Net\n  depth: 3\n  args: ${train.ablation}\n  width: 4\n")
    found = find_reference(f"{given}::Net")
    assert {name: one.default for name, one in found.arguments.items() if name != "width"} == {
        "hidden_size": 96, "scale": 0.25, "depth": 2,
    }  # fmt: skip


@pytest.mark.parametrize("more", [
    "self.inner = Inner(args)",
    "self.width = args.pop('width', 4)",
    "self.inner = nn.Linear(args, 4)",
    "self.depth = args.depth",
    "args.scale = 2",
])  # fmt: skip
def test_an_object_that_is_used_otherwise_stays(tmp_path: Path, more: str) -> None:
    found = find_reference(written(tmp_path, more, PARSER))
    assert found.namespace is None
    assert [*found.arguments] == ["args", "depth"]


HANDED_ON = """
from torch import nn


class Inner(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.norm = nn.LayerNorm(options["width"], eps=options.get("eps", 1e-6))

    def forward(self, x):
        return self.norm(x) * self.options["scale"]


class Net(nn.Module):
    def __init__(self, size, config):
        super().__init__()
        depth = config["depth"]
        self.layers = nn.ModuleList([Inner(config) for _ in range(depth)])
        {more}

    def forward(self, x, t):
        return self.layers[0](x)
"""


def test_reads_are_followed_to_the_classes_within(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(HANDED_ON.replace("{more}", "pass"))
    found = find_reference(f"{tmp_path}/model.py::Net")
    assert found.namespace is not None
    assert found.namespace.argument == "config"
    assert {name: one.default for name, one in found.arguments.items() if not one.required} == {"eps": 1e-6}
    assert [*found.arguments] == ["depth", "width", "eps", "scale", "size"]


@pytest.mark.parametrize("more", ["self.last = nn.Sequential(*config)", "self.last = Inner(**config)", "print(config)"])
def test_an_object_that_goes_elsewhere_stays(tmp_path: Path, more: str) -> None:
    (tmp_path / "model.py").write_text(HANDED_ON.replace("{more}", more))
    assert find_reference(f"{tmp_path}/model.py::Net").namespace is None


NESTED = """
from torch import nn


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        args = config.model.args
        self.kind = config.model.kind.lower()
        self.proj = nn.Linear(args.get("width", 8), config.data.size)
        {more}

    def forward(self, x, t):
        return self.proj(x) * self.config.model.scale
"""


def test_fields_in_sections_are_arguments(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(NESTED.replace("{more}", "pass"))
    found = find_reference(f"{tmp_path}/model.py::Net")
    assert found.namespace is not None
    assert {*found.arguments} == {"kind", "width", "size", "scale"}
    assert found.namespace.sections == {"model", "args", "data"}
    assert found.namespace.aliases == {"args"}


@pytest.mark.parametrize("more", [
    "self.kind = config.kind.model.kind", "self.model = config.data.model", "print(config)",
])  # fmt: skip
def test_sections_that_no_flat_object_can_stand_for_stay(tmp_path: Path, more: str) -> None:
    (tmp_path / "model.py").write_text(NESTED.replace("{more}", more))
    assert find_reference(f"{tmp_path}/model.py::Net").namespace is None


@pytest.mark.parametrize(("more", "text"), [
    ("self.size = config.model.size", "config.model.size"), ("self.size = config.get('size', 2)", ""),
    ("self.size = hasattr(config.model, 'size')", "hasattr(config.model, 'size')"),
])  # fmt: skip
def test_fields_of_two_sections_with_one_name_are_told_apart(tmp_path: Path, more: str, text: str) -> None:
    (tmp_path / "model.py").write_text(NESTED.replace("{more}", more))
    found = find_reference(f"{tmp_path}/model.py::Net").namespace
    assert (found is not None) is bool(text)
    if found is not None:
        assert found.apart == {text: Apart("model", "size", "model_size")}
        assert {"size", "model_size"} <= found.fields.keys()
        assert found.fields["model_size"].tested is text.startswith("hasattr")


@pytest.mark.parametrize("more", [
    "self.gate = config.model.gate if hasattr(config.model, 'gate') else False",
    "if hasattr(config.model, 'gate'):\n            self.gate = config.model.gate",
    "self.gated = hasattr(config, 'gate')",
])  # fmt: skip
def test_a_field_that_may_be_absent_is_null_by_default(tmp_path: Path, more: str) -> None:
    (tmp_path / "model.py").write_text(NESTED.replace("{more}", more))
    found = find_reference(f"{tmp_path}/model.py::Net")
    assert found.namespace is not None
    assert found.namespace.fields["gate"].tested
    assert found.arguments["gate"].default is None
    assert not found.arguments["gate"].required


IN_FUNCTION = """
from torch import nn


def width_of(config):
    return config.model.width


class Part(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = {inner}


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.proj = nn.Linear(config.data.size, width_of(config))
        {more}

    def forward(self, x, t):
        return self.proj(x)
"""


def test_functions_read_fields_in_sections(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(IN_FUNCTION.format(inner="config.width", more="pass"))
    found = find_reference(f"{tmp_path}/model.py::Net").namespace
    assert found is not None
    assert {*found.fields} == {"size", "width"}
    assert found.readers == {("width_of", "config")}


@pytest.mark.parametrize("inner", ["config.model.width", 'config["model"]["width"]'])
def test_other_classes_read_fields_in_sections(inner: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(IN_FUNCTION.format(inner=inner, more="self.part = Part(config)"))
    found = find_reference(f"{tmp_path}/model.py::Net").namespace
    assert found is not None
    assert {*found.fields} == {"size", "width"}
    assert found.readers == {("width_of", "config"), ("Part", "config")}


@pytest.mark.parametrize("inner", ["config.model", "len(config.model)"])
def test_a_section_that_another_class_takes_as_a_whole_stays(inner: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(IN_FUNCTION.format(inner=inner, more="self.part = Part(config)"))
    assert find_reference(f"{tmp_path}/model.py::Net").namespace is None


@pytest.mark.parametrize(("more", "read"), [("pass", True), ("if args is not None: self.half = args.fp16", False)])
def test_what_is_none_by_default_and_read_in_any_case_is_needed(more: str, read: bool, tmp_path: Path) -> None:
    source = written(tmp_path, more, PARSER)
    model = tmp_path / "model.py"
    model.write_text(model.read_text().replace("args, depth=2", "depth=2, args=None"))
    assert (find_reference(source).namespace is not None) is read
