"""The door for config values, against what transformers' own classes accept and refuse."""

import ast
import json
import random
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.config_values import check_values
from omni_kit.upstream.transformers.configs import ModelConfig, config_class, model_types

SAMPLE = (
    "qwen3_moe", "deepseek_v3", "gpt_oss", "llama", "gemma2", "mixtral", "granitemoe", "nemotron_h", "qwen2_vl",
    "jetmoe", "internvl", "llava", "t5", "swin",
)  # fmt: skip
VALUES: tuple[Any, ...] = (None, [], [1], "x", True, {}, 3, 2.5, "٣", [[1]], {"a": 1})
# Of any other type, an alias of the file, nothing is known.
PLAIN = {"int", "float", "str", "bool", "list", "tuple", "dict", "Literal", "Any"}


def refused(library: Library, model_type: str, values: dict[str, Any]) -> str:
    try:
        check_values(ModelConfig(config_class(library, model_type), values, "config.json"))
    except BadInput as error:
        return error.message
    return ""


def defaults(model_type: str) -> dict[str, Any] | None:
    """What transformers writes for a config of defaults, as JSON has it."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(model_type)
    except Exception:  # it cannot be built from its defaults alone, or wants a library that is not there
        return None
    values: dict[str, Any] = json.loads(json.dumps(config.to_dict(), default=str))
    return values


def known_types(library: Library) -> list[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return [name for name in CONFIG_MAPPING if name in model_types(library)]


@pytest.mark.parametrize("which", ["sample", pytest.param("all", marks=pytest.mark.sweep)])
def test_what_transformers_writes_passes(library: Library, which: str) -> None:
    types = SAMPLE if which == "sample" else known_types(library)
    told = {name: refused(library, name, values) for name in types if (values := defaults(name)) is not None}
    assert {name: message for name, message in told.items() if message} == {}
    assert len(told) >= len(types) - 20


@pytest.mark.parametrize("which", ["sample", pytest.param("all", marks=pytest.mark.sweep)])
def test_types_are_refused_where_transformers_refuses_them(library: Library, which: str) -> None:
    """One value at a time; nothing else is refused, and of plain types all but whole numbers for floats."""
    from huggingface_hub.errors import StrictDataclassFieldValidationError
    from transformers import PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    rng, tried = random.Random(0), 0
    for name in SAMPLE if which == "sample" else known_types(library):
        if defaults(name) is None:
            continue
        cls = CONFIG_MAPPING[name]
        fields = [field for field in cls.__dataclass_fields__ if field in config_class(library, name).annotations]
        for field in rng.sample(fields, min(12, len(fields))):
            value = rng.choice(VALUES)
            wrong = False
            try:
                cls(**{field: value})
            except StrictDataclassFieldValidationError as error:
                wrong = field in str(error)
            except Exception:  # of the right type, and wrong otherwise
                wrong = False
            declared = {
                n.id for n in ast.walk(config_class(library, name).annotations[field]) if isinstance(n, ast.Name)
            }
            lenient = not declared <= PLAIN or (value in (3, [1], [[1]]) and "float" in declared)
            told = bool(refused(library, name, {field: value}))
            unchecked = told and field in PretrainedConfig.__annotations__  # newer releases check what a class adds
            assert told == wrong or (wrong and lenient) or unchecked, (name, field, value)
            tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("model_type", "values", "says"),
    [
        ("llama", {"hidden_size": [64]}, "hidden_size is [64], LlamaConfig expects int"),
        ("llama", {"num_hidden_layers": None}, "num_hidden_layers is null, LlamaConfig expects int"),
        ("llama", {"vocab_size": "97"}, 'vocab_size is "97", LlamaConfig expects int'),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, expected at most 1000"),
        (
            "olmoe",
            {"num_experts": 10**30},
            "num_experts is an integer of more than 64 bits, expected at most 65536",
        ),
        ("mixtral", {"num_local_experts": 10**9}, "expected at most"),
        ("gpt2", {"n_layer": 10**9}, "n_layer is 1000000000, expected at most 1000"),
        ("llama", {"hidden_size": -4}, "hidden_size is -4, expected at least 0"),
        ("qwen2_vl", {"vision_config": {"depth": "deep"}}, 'config.json: vision_config: depth is "deep"'),
        ("qwen2_vl", {"text_config": 3}, "text_config is 3"),
        ("llama", {"architectures": "LlamaModel"}, 'architectures is "LlamaModel"'),
        ("llama", {"architectures": [1]}, "architectures is [1]"),
    ],
)
def test_key_value_and_expectation_are_named(
    library: Library, model_type: str, values: dict[str, Any], says: str
) -> None:
    assert says in refused(library, model_type, values)


@pytest.mark.parametrize(
    "values",
    [
        {"head_dim": None, "pad_token_id": None, "num_key_value_heads": None},
        {"pad_token_id": -1, "rms_norm_eps": 1},
        {"num_nextn_predict_layers": 1, "of_next_year": [1, {"a": None}], "torch_dtype": "bfloat16", "rope_theta": 1e6},
        {"eos_token_id": [1, 2], "max_position_embeddings": 10_485_760, "rms_norm_eps": {"__float__": "Infinity"}},
    ],
)
def test_what_published_configs_say_passes(library: Library, values: dict[str, Any]) -> None:
    assert refused(library, "llama", values) == ""
