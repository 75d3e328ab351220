"""Config classes read from source, against the real ones."""

import copy
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ModelConfig, config_class, model_types
from omni_kit.upstream.transformers.defaults import default_values

SUBJECTS = ["llama", "qwen3_moe", "olmoe", "deepseek_v3", "mixtral", "gpt_oss", "gemma3_text", "granitemoe"]


@pytest.mark.parametrize("model_type", SUBJECTS)
def test_values_equal_the_built_config(library: Library, model_type: str) -> None:
    """What is read, `__post_init__` included, is what the class gives; values that cannot be read are absent."""
    from transformers import AutoConfig

    real = AutoConfig.for_model(model_type).to_dict()
    read = ConfigView(ModelConfig(config_class(library, model_type), {}, "")).as_dict()
    common: dict[str, Any] = {k: v for k, v in read.items() if k in real and k not in {"rope_parameters", "dtype"}}
    assert len(common) > 15
    assert common == {k: real[k] for k in common}


@pytest.mark.parametrize("model_type", [*SUBJECTS, "stablelm", "persimmon"])
@pytest.mark.parametrize("given", [{}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 500.0}])
def test_constructors_read_the_rope_settings_of_the_built_config(
    library: Library, model_type: str, given: dict[str, Any]
) -> None:
    """The base class of configs completes them; what config.json leaves open stays open in the config's own values."""
    from transformers import AutoConfig

    real = AutoConfig.for_model(model_type, **copy.deepcopy(given))
    view = ConfigView(ModelConfig(config_class(library, model_type), given, ""))
    before = copy.deepcopy(view.as_dict())
    assert view.get("rope_parameters") == real.rope_parameters
    assert view.as_dict() == before


def test_constructors_read_no_rope_settings_of_a_config_without_them(library: Library) -> None:
    view = ConfigView(ModelConfig(config_class(library, "mamba"), {}, ""))
    assert view.get("rope_parameters") is UNKNOWN


def test_model_types_are_those_of_the_auto_table(library: Library) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    own = set(model_types(library))
    special = {"gpt-sw3", "vit_hybrid", "mobilevitv2"}
    missing = {m for m in CONFIG_MAPPING_NAMES if m not in own} - special
    assert len(missing) <= 0.02 * len(CONFIG_MAPPING_NAMES), sorted(missing)


def test_alias_attributes_are_the_same_value(library: Library) -> None:
    config = ModelConfig(config_class(library, "qwen3_moe"), {"num_experts": 6}, "config.json")
    assert config.get("num_local_experts") == 6
    found = config.find("num_local_experts")
    assert found is not None
    assert found.evidence == "config.json: num_experts"


def test_default_cites_its_line(library: Library) -> None:
    found = ModelConfig(config_class(library, "olmoe"), {}, "").find("num_experts")
    assert found is not None
    file, _, line = found.evidence.partition(":")
    assert "num_experts" in (library.root.parent / file).read_text().splitlines()[int(line) - 1]


def test_unknown_model_type_suggests(library: Library) -> None:
    with pytest.raises(BadInput, match="unknown model_type 'qwen3moe'") as error:
        config_class(library, "qwen3moe")
    assert "qwen3_moe" in error.value.hint


SPECIFIED = """
class FooTextConfig(PreTrainedConfig):
    model_type = "foo_text"
    width: int = 8
    experts: int = 4

    def __post_init__(self, **kwargs):
        if (experts := kwargs.get("num_experts")) is not None:
            self.experts = experts
        super().__post_init__(**kwargs)


class FooConfig(PreTrainedConfig):
    model_type = "foo"
    sub_configs_defaults = {
        "text_config": SubConfigSpec(config_class=FooTextConfig),
        "vision_config": SubConfigSpec(config_class=AutoConfig, model_type="foo_text"),
        "audio_config": SubConfigSpec(config_class=AutoConfig, model_type="foo_text", optional=True),
    }
"""


def test_nested_configs_by_specification(tmp_path: Path) -> None:
    """A specification names a class or a model_type; what it calls optional is not made by default."""
    folder = tmp_path / "transformers" / "models" / "foo"
    folder.mkdir(parents=True)
    (folder / "configuration_foo.py").write_text(SPECIFIED, encoding="utf-8")
    cls = config_class(Library("transformers", tmp_path / "transformers"), "foo")
    values = default_values(cls)
    assert values == {"text_config": {"model_type": "foo_text"}, "vision_config": {"model_type": "foo_text"}}
    view = ConfigView(ModelConfig(cls, values, ""))
    assert [view.get(name).get("width") for name in values] == [8, 8]


@pytest.mark.parametrize(("given", "experts"), [({}, 4), ({"num_experts": 6}, 6)])
def test_a_value_named_in_its_condition(tmp_path: Path, given: dict[str, int], experts: int) -> None:
    folder = tmp_path / "transformers" / "models" / "foo"
    folder.mkdir(parents=True)
    (folder / "configuration_foo.py").write_text(SPECIFIED, encoding="utf-8")
    cls = config_class(Library("transformers", tmp_path / "transformers"), "foo_text")
    assert ConfigView(ModelConfig(cls, given, "")).get("experts") == experts


def test_a_default_of_arithmetic_is_read(library: Library) -> None:
    """DeepSeek-V4's share of a head that turns is written as a quotient."""
    default = config_class(library, "deepseek_v4").defaults["default_partial_rotary_factor"]
    assert default.value == 64 / 512
