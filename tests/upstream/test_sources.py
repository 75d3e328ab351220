"""SOURCE of the command line."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.library import Library
from omni_kit.upstream.sources import model_config, read_source_argument
from tests.conftest import Checkpoints


def test_checkpoint_directory(library: Library, checkpoint: Checkpoints) -> None:
    place = checkpoint("olmoe")
    source = read_source_argument(str(place), library)
    assert (source.model_type, source.weights, source.directory) == ("olmoe", place, place)
    assert source.config["num_experts"] == 6


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "model-00001-of-*.safetensors", "config.json"])
def test_files_of_a_checkpoint(library: Library, checkpoint: Checkpoints, name: str) -> None:
    file = next(checkpoint("olmoe").glob(name))
    source = read_source_argument(str(file), library)
    assert source.model_type == "olmoe"
    assert source.weights == (None if name == "config.json" else file)


def test_model_type(library: Library) -> None:
    source = read_source_argument("olmoe", library)
    assert (source.model_type, source.weights) == ("olmoe", None)
    assert model_config(source, library).get("num_experts") == 64


def test_config_beside_can_be_replaced(library: Library, checkpoint: Checkpoints) -> None:
    other = checkpoint("mixtral") / "config.json"
    assert read_source_argument(str(checkpoint("olmoe")), library, other).model_type == "mixtral"


def test_neither_path_nor_model_type(library: Library) -> None:
    with pytest.raises(BadInput, match="'nonsense' is neither"):
        read_source_argument("nonsense", library)


def test_empty_directory(library: Library, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"neither config\.json nor safetensors"):
        read_source_argument(str(tmp_path), library)


def test_pickled_weights_are_refused(library: Library, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(BadInput, match="only pickled weights"):
        read_source_argument(str(tmp_path), library)


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\udcff", "[" * 100_000])
def test_damaged_config(library: Library, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput):
        read_source_argument(str(tmp_path), library)


def test_config_without_model_type(library: Library, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    source = read_source_argument(str(tmp_path), library)
    with pytest.raises(BadInput, match="does not say its model_type"):
        model_config(source, library)
