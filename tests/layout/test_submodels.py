"""Models of several: text models and towers that an Auto class chooses, and parts that cannot be read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omni_kit.layout import check_layout
from omni_kit.layout.taxonomy import Converter
from tests.conftest import SIZES, run_cli

VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
Wrapped = Callable[[str, str, str], Path]


def small(model_type: str, sizes: dict[str, Any]) -> Any:
    """A config of a model_type with those of the sizes that it has; a list where its default is one."""
    from transformers import AutoConfig

    default = AutoConfig.for_model(model_type)
    return AutoConfig.for_model(
        model_type,
        **{
            key: [value] * 2 if isinstance(getattr(default, key), (list, tuple)) else value
            for key, value in sizes.items()
            if hasattr(default, key)
        },
    )


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> Wrapped:
    """A toy checkpoint of a wrapper around a tower and a text model, by transformers itself."""
    made: dict[tuple[str, str, str], Path] = {}

    def make(wrapper: str, vision: str, text: str) -> Path:
        from transformers import AutoConfig, AutoModelForImageTextToText

        key = wrapper, vision, text
        if key not in made:
            config = AutoConfig.for_model(
                wrapper, vision_config=small(vision, VISION), text_config=small(text, SIZES), image_token_id=3
            )
            made[key] = tmp_path_factory.mktemp("wrapped") / "-".join(key)
            AutoModelForImageTextToText.from_config(config).save_pretrained(made[key])
        return made[key]

    return make


@pytest.mark.parametrize(
    ("wrapper", "vision", "text", "converter"),
    [
        ("internvl", "internvl_vision", "qwen3_moe", Converter.merge_concat),
        ("internvl", "internvl_vision", "gpt_oss", Converter.transpose_deinterleave),
        ("llava", "clip_vision_model", "mixtral", Converter.merge_concat),
        ("llava", "siglip_vision_model", "llama", None),
        ("llava_next", "clip_vision_model", "olmoe", Converter.merge_concat),
        ("mistral3", "pixtral", "mistral", None),
    ],
)
def test_whatever_text_model_an_auto_class_chooses(
    wrapped: Wrapped, wrapper: str, vision: str, text: str, converter: Converter | None
) -> None:
    verdict = check_layout(str(wrapped(wrapper, vision, text)))
    assert verdict.ok, verdict.findings
    assert verdict.converter is converter
    assert verdict.accounting is not None
    assert not verdict.accounting.not_judged


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_a_part_that_cannot_be_read_is_not_judged(wrapped: Wrapped, tmp_path: Path, part: str) -> None:
    """A type that this transformers does not have: its keys are neither fine nor wrong, and that is not a pass."""
    place = wrapped("llava", "clip_vision_model", "llama")
    config = json.loads((place / "config.json").read_text())
    config[part]["model_type"] = "of_next_year"
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, data = run_cli("check-layout", str(place), "--config", str(tmp_path / "config.json"), "--full")
    assert (code, data["ok"]) == (3, False)
    keys = data["keys"]
    assert (keys["unmapped"], keys["missing"]) == ([], [])
    assert sum(item["count"] for item in keys["not_judged"]) + keys["mapped"] == keys["total"]
    assert [finding["code"] for finding in data["findings"]] == ["not-judged"]


def test_what_is_wrong_elsewhere_is_still_wrong(wrapped: Wrapped, tmp_path: Path) -> None:
    place = wrapped("llava", "clip_vision_model", "llama")
    config = json.loads((place / "config.json").read_text())
    config["text_config"]["model_type"] = "of_next_year"
    config["vision_config"]["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, data = run_cli("check-layout", str(place), "--config", str(tmp_path / "config.json"))
    assert code == 1
    assert {finding["code"] for finding in data["findings"]} == {"not-judged", "missing-parameters"}
