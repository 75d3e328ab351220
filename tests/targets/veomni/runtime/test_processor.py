"""The processor of a small model: conversations with files become samples as upstream takes them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.targets.veomni.runtime.processor import Made, ToyProcessor, toy_processors

PICTURE = {
    "input_ids": torch.tensor([[5, 9, 9]]),
    "attention_mask": torch.ones(1, 3, dtype=torch.long),
    "mm_token_type_ids": torch.tensor([[0, 1, 1]]),
    "pixel_values": torch.ones(2, 4),
    "image_grid_thw": torch.tensor([[1, 2, 2]]),
}


def processor(*, typed: bool = True) -> ToyProcessor:
    return ToyProcessor([3, 4, 5, 6], {"I": PICTURE}, typed=typed)


def conversation(file: Path, content: bytes, answer: str = "red blue") -> list[dict[str, Any]]:
    file.write_bytes(content)
    asked = [{"type": "image", "path": str(file)}, {"type": "text", "text": "Which color?"}]
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": [{"type": "text", "text": answer}]},
    ]


def test_a_question_is_the_beginning_of_its_conversation(tmp_path: Path) -> None:
    """By this, the integration's transform finds the answer's tokens."""
    messages = conversation(tmp_path / "1.png", b"red")
    whole = processor().apply_chat_template(messages)["input_ids"][0]
    asked = processor().apply_chat_template(messages[:1], add_generation_prompt=True)["input_ids"][0]

    assert asked.equal(whole[: len(asked)])
    assert len(whole) == len(asked) + 2


def test_the_content_of_files_decides_values_and_tokens_and_not_sizes(tmp_path: Path) -> None:
    one, other = (
        processor().apply_chat_template(conversation(tmp_path / name, content))
        for name, content in (("1.png", b"red"), ("2.png", b"green"))
    )
    assert one["pixel_values"].shape == other["pixel_values"].shape
    assert not one["pixel_values"].equal(other["pixel_values"])
    assert one["image_grid_thw"].equal(other["image_grid_thw"])


def test_text_alone_has_no_media(tmp_path: Path) -> None:
    found = processor().apply_chat_template([{"role": "user", "content": [{"type": "text", "text": "How?"}]}])
    assert found.keys() == {"input_ids", "attention_mask", "mm_token_type_ids"}


@pytest.mark.parametrize("typed", [True, False])
def test_samples_are_found_again_by_what_the_pipeline_passes_on(tmp_path: Path, typed: bool) -> None:
    made = processor(typed=typed)
    sample = made.apply_chat_template(conversation(tmp_path / "1.png", b"red"))
    ids = sample["input_ids"][0].tolist()

    (kept,) = [one for key, one in made.made.items() if key == (5, 0, 0, *ids[3:])]
    assert ("mm_token_type_ids" in sample) is typed
    assert kept["mm_token_type_ids"].shape == sample["input_ids"].shape
    assert kept["pixel_values"].equal(sample["pixel_values"])


def test_a_directory_without_one_keeps_its_own_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from veomni import models

    monkeypatch.setattr(models, "build_processor", lambda place, **options: "its own")
    made: Made = {}
    processor().save_pretrained(str(tmp_path / "toy"))
    with toy_processors(made):
        assert models.build_processor(str(tmp_path)) == "its own"
        found = models.build_processor(str(tmp_path / "toy"), max_pixels=1)
    assert found.made is made
