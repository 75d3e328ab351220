"""Checkpoints: directories, files, indexes, and what is wrong with them."""

import json
import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.layout import read_checkpoint
from tests.conftest import Checkpoints


@pytest.fixture
def copy(checkpoint: Checkpoints, tmp_path: Path) -> Path:
    shutil.copytree(checkpoint("olmoe"), tmp_path / "ckpt")
    return tmp_path / "ckpt"


def edit_index(place: Path, key: str, shard: str | None) -> None:
    file = place / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    if shard is None:
        del index["weight_map"][key]
    else:
        index["weight_map"][key] = shard
    file.write_text(json.dumps(index))


def test_directory_equals_what_transformers_wrote(copy: Path) -> None:
    weight_map = json.loads((copy / "model.safetensors.index.json").read_text())["weight_map"]
    found = read_checkpoint(copy)
    assert {key: info.file.name for key, info in found.tensors.items() if info} == weight_map
    assert not found.names_only


def test_single_file(copy: Path) -> None:
    file = sorted(copy.glob("*.safetensors"))[0]
    assert read_checkpoint(file).files == (file,)


def test_directory_without_index(copy: Path) -> None:
    expected = read_checkpoint(copy).tensors.keys()
    (copy / "model.safetensors.index.json").unlink()
    assert read_checkpoint(copy).tensors.keys() == expected


def test_index_alone_gives_names(copy: Path) -> None:
    expected = read_checkpoint(copy).tensors.keys()
    for shard in copy.glob("*.safetensors"):
        shard.unlink()
    found = read_checkpoint(copy / "model.safetensors.index.json")
    assert found.names_only
    assert found.tensors.keys() == expected
    assert found.shape(next(iter(expected))) is None


def test_a_missing_shard(copy: Path) -> None:
    sorted(copy.glob("*.safetensors"))[1].unlink()
    with pytest.raises(BadInput, match="which is missing"):
        read_checkpoint(copy)


def test_an_index_that_lists_too_much(copy: Path) -> None:
    edit_index(copy, "no.such.key", sorted(copy.glob("*.safetensors"))[0].name)
    with pytest.raises(BadInput, match=r"lists no\.such\.key, which no shard contains"):
        read_checkpoint(copy)


def test_an_index_that_lists_too_little(copy: Path) -> None:
    edit_index(copy, "model.norm.weight", None)
    with pytest.raises(BadInput, match=r"holds model\.norm\.weight"):
        read_checkpoint(copy)


@pytest.mark.parametrize("shard", ["../evil.safetensors", "/etc/passwd", "a/b.safetensors", ".."])
def test_an_index_that_leaves_the_directory(copy: Path, shard: str) -> None:
    edit_index(copy, "model.norm.weight", shard)
    with pytest.raises(BadInput, match="which is not next to it"):
        read_checkpoint(copy)


def test_a_key_in_two_shards(copy: Path) -> None:
    first = sorted(copy.glob("*.safetensors"))[0]
    (copy / "model.safetensors.index.json").unlink()
    shutil.copy(first, copy / "again.safetensors")
    with pytest.raises(BadInput, match="is in both"):
        read_checkpoint(copy)


@pytest.mark.parametrize("text", ["{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_a_map(copy: Path, text: str) -> None:
    (copy / "model.safetensors.index.json").write_text(text)
    with pytest.raises(BadInput, match="has no weight_map"):
        read_checkpoint(copy)


def test_a_directory_without_weights(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="contains no safetensors files"):
        read_checkpoint(tmp_path)
