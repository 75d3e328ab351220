"""Media of samples that VeOmni's collator joins: those that differ in size are padded alike first."""

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.scaffold import new_model


def imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module for media of a scaffold."""
    place = tmp_path_factory.mktemp("plugins")
    new_model("tiles", "llava_next", target="veomni", into=place)
    return imported(place / "tiles" / "media.py")


def test_pictures_of_fewer_tiles_are_padded_where_they_are_not_joined(media: Any) -> None:
    samples = [
        {"input_ids": torch.ones(3), "pixel_values": torch.ones(1, 5, 3, 4, 4)},
        {"input_ids": torch.ones(9)},
        {"input_ids": torch.ones(2), "pixel_values": torch.ones(2, 3, 3, 4, 4)},
    ]
    one, text, other = media.Evened(lambda made: made)(samples)

    assert (one["pixel_values"].shape, other["pixel_values"].shape) == ((1, 5, 3, 4, 4), (2, 5, 3, 4, 4))
    assert other["pixel_values"][:, 3:].count_nonzero() == 0
    assert [len(sample["input_ids"]) for sample in (one, text, other)] == [3, 9, 2]
    assert samples[2]["pixel_values"].shape == (2, 3, 3, 4, 4)


def test_flat_patches_with_a_grid_need_no_padding(tmp_path: Path) -> None:
    new_model("patches", "qwen2_vl", target="veomni", into=tmp_path)
    written = (tmp_path / "patches" / "media.py").read_text(encoding="utf-8")
    assert "class Evened" not in written


def test_a_model_that_hears_gets_sounds_to_train_on(tmp_path: Path) -> None:
    new_model("heard", "granite_speech", target="veomni", into=tmp_path)
    maker = imported(tmp_path / "heard" / "make_data.py")
    made = maker.sample(random.Random(0), 1, tmp_path)
    files = [piece["path"] for piece in made["messages"][0]["content"] if piece["type"] == "audio"]
    assert files
    assert all(Path(file).read_bytes()[:4] == b"RIFF" for file in files)
