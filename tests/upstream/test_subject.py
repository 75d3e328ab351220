"""SOURCE of the command line."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.layout import check_layout
from omni_kit.upstream.subject import open_name, open_source
from tests.conftest import Checkpoints


def test_checkpoint_directory(checkpoint: Checkpoints) -> None:
    place = checkpoint("olmoe")
    source = open_source(str(place))
    assert (source.name, source.weights, source.directory) == ("olmoe", place, place)
    assert source.values["num_experts"] == 6


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "model-00001-of-*.safetensors", "config.json"])
def test_files_of_a_checkpoint(checkpoint: Checkpoints, name: str) -> None:
    file = next(checkpoint("olmoe").glob(name))
    source = open_source(str(file))
    assert source.name == "olmoe"
    assert source.weights == {"config.json": None, "model.safetensors.index.json": file}.get(name, file.parent)
    assert bool(source.notes) == name.startswith("model-")


def test_one_shard_of_several_is_its_checkpoint(checkpoint: Checkpoints, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(checkpoint("olmoe"), place)
    shards = sorted(place.glob("*.safetensors"))
    verdict = check_layout(str(shards[1]))
    assert verdict.ok
    assert verdict.total == check_layout(str(place)).total
    assert verdict.findings[0].message == f"{shards[1].name} is one shard of several: read as {place}"
    (place / "model.safetensors.index.json").unlink()
    assert check_layout(str(shards[1])).total == verdict.total
    shards[0].unlink()
    with pytest.raises(BadInput, match=f"{shards[0].name}, which is missing"):
        check_layout(str(shards[1]))


def test_the_only_file_is_itself(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """Also beside others that have nothing to do with it."""
    for number, shard in enumerate(sorted(checkpoint("olmoe").glob("*.safetensors"))[:2]):
        shutil.copy(shard, tmp_path / f"lonely{number}.safetensors")
    source = open_source(str(tmp_path / "lonely0.safetensors"))
    assert (source.weights, source.notes) == (tmp_path / "lonely0.safetensors", ())


def test_model_type() -> None:
    source = open_source("olmoe")
    assert (source.name, source.weights) == ("olmoe", None)
    assert source.config.get("num_experts") == 64


def test_a_directory_named_as_a_model_type(
    checkpoint: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(checkpoint("olmoe"), tmp_path / "qwen3_moe")
    (tmp_path / "mixtral").mkdir()
    monkeypatch.chdir(tmp_path)
    taken = open_source("qwen3_moe")
    assert taken.name == "olmoe"
    assert taken.notes == (f"read {tmp_path / 'qwen3_moe'}; pass transformers:qwen3_moe for the name in transformers",)
    named = open_source("transformers:qwen3_moe")
    assert (named.name, named.directory, named.notes) == ("qwen3_moe", None, ())
    assert open_name("qwen3_moe").name == "qwen3_moe"
    with pytest.raises(BadInput) as refused:
        open_source("mixtral")
    assert refused.value.hint == "pass transformers:mixtral for the name in transformers"
    assert open_source("./qwen3_moe").notes == ()
    with pytest.raises(BadInput, match=r"transformers .* has no model_type 'FluxPipeline'"):
        open_source("transformers:FluxPipeline")


def test_a_name_whose_config_leaves_the_number_of_experts_open() -> None:
    (note,) = open_source("dots1").notes
    assert note.startswith("dots1's config leaves n_routed_experts open: pass a config.json")
    assert open_source("deepseek_v3").notes == open_source("llama").notes == ()


def test_a_name_alone_has_the_defaults_of_nested_configs_too() -> None:
    subject = open_source("qwen3_vl_moe")
    assert subject.kind == "vlm-moe"
    assert subject.profile.experts is not None
    assert subject.profile.experts.count == 60
    assert subject.model.find("num_hidden_layers") is None  # of the text model, as the config class has it


def test_config_beside_can_be_replaced(checkpoint: Checkpoints) -> None:
    other = checkpoint("mixtral") / "config.json"
    assert open_source(str(checkpoint("olmoe")), config=other).name == "mixtral"


def test_neither_path_nor_model_type() -> None:
    with pytest.raises(BadInput, match="'nonsense' is neither"):
        open_source("nonsense")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("qwen3-moe", "did you mean qwen3_moe?"),
        ("Qwen/Qwen3-30B-A3B", "hf://Qwen/Qwen3-30B-A3B"),
        ("olmoee", "olmoe"),
        ("WanTransformer3DModels", "WanTransformer3DModel"),
        ("zzzzzzzzzz", "pass a config.json"),
    ],
)
def test_what_was_meant_is_said(given: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_source(given)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("given", "said"), [("no/such/config.json", "no/such/config.json does not exist"), ("x" * 5000, "'xxx")]
)
def test_a_path_that_leads_nowhere_is_named_in_one_short_line(given: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_source(given)
    assert caught.value.message.startswith(said)
    assert len(caught.value.message) < 300


def test_a_config_of_another_name_is_cited_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text('{"model_type": "olmoe", "num_experts": "many"}', encoding="utf-8")
    with pytest.raises(BadInput, match=r"^small\.json: num_experts") as caught:
        _ = open_source(str(tmp_path / "small.json")).config
    assert caught.value.hint == "correct small.json"


@pytest.mark.parametrize(("name", "words"), [("model.gguf", "GGUF"), ("model.bin", "pickle"), ("x.pt", "pickle")])
def test_other_formats_are_named_with_the_way_out(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(BadInput) as caught:
        open_source(str(tmp_path / name))
    assert words in caught.value.hint


def test_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"neither config\.json nor safetensors"):
        open_source(str(tmp_path))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(BadInput, match="only pickled weights"):
        open_source(str(tmp_path))


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\udcff", "[" * 100_000])
def test_damaged_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput):
        open_source(str(tmp_path))


def test_config_without_model_type(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    source = open_source(str(tmp_path))
    with pytest.raises(BadInput, match="has no model_type"):
        _ = source.config


@pytest.mark.parametrize("given", ["", "  "])
def test_an_empty_source_is_said(given: str) -> None:
    with pytest.raises(BadInput, match="SOURCE is empty"):
        open_source(given)


def test_code_of_a_repository_is_named_with_the_way_to_open_it(tmp_path: Path) -> None:
    auto = '{"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}'
    (tmp_path / "config.json").write_text(f'{{"model_type": "of_its_own", "auto_map": {auto}}}', encoding="utf-8")
    with pytest.raises(BadInput, match="unknown model_type 'of_its_own'"):
        _ = open_source(str(tmp_path)).config
    (tmp_path / "modeling_own.py").write_text("class OwnForCausalLM: ...\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"modeling_own\.py, named by auto_map") as refusal:
        _ = open_source(str(tmp_path)).config
    assert refusal.value.hint == f"open the class: {tmp_path}::OwnForCausalLM"
