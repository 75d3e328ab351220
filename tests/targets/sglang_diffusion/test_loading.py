"""check-layout --for sglang-diffusion: every parameter of the serving model is written exactly once."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from omni_kit.targets.sglang_diffusion.loading import account
from tests.conftest import run_cli
from tests.diffusers_pipelines import save

_HERE = importlib.util.find_spec("sglang") is not None
served = pytest.mark.skipif(not _HERE, reason="needs SGLang, in an environment of its own: make test-sglang")

FUSED = {"qkv.weight": [12, 4], "out.weight": [4, 4]}
WRITES = [["q", "qkv.weight", 0, 3], ["k", "qkv.weight", 1, 3], ["v", "qkv.weight", 2, 3], ["o", "out.weight", 0, 0]]


def answer(writes: list[list[Any]], **changed: Any) -> dict[str, Any]:
    """What SGLang's process says of a model with one fused parameter and one plain one."""
    said = {"class": "DiT", "version": "0", "parameters": FUSED, "filled": {}, "refused": {}, "writes": writes}
    return {**said, **changed}


def test_parts_and_wholes_fill_a_model() -> None:
    found = account(answer(WRITES), total=4)
    assert found.complete
    assert (found.total, found.mapped) == (4, 4)
    assert found.feeds["k"] == ("qkv.weight",)


@pytest.mark.parametrize(
    ("writes", "code", "said"),
    [
        (WRITES[1:], "half-fed", "is made of 3 parts, and k, v is not part 0"),
        ([*WRITES, ["o2", "out.weight", 0, 0]], "fed-twice", "is written by o, o2"),
        ([*WRITES, ["q2", "qkv.weight", 0, 3]], "fed-twice", "is written by q, k, v, q2"),
    ],
)
def test_what_is_not_written_exactly_once(writes: list[list[Any]], code: str, said: str) -> None:
    found = account(answer(writes), total=len(writes))
    assert [misfit.code for misfit in found.misfits] == [code]
    assert said in found.misfits[0].message
    assert not found.complete


def test_keys_that_land_nowhere_and_parameters_that_nothing_fills() -> None:
    found = account(answer([*WRITES[:3], ["o", "elsewhere", 0, 0]]), total=4)
    assert (found.unmapped, found.missing) == (("o",), ("out.weight",))


def test_what_the_model_drops_or_fills_itself_is_said() -> None:
    found = account(answer([*WRITES[:3], ["o", "", 0, 0]], filled={"out.weight": "ones"}), total=4)
    assert found.complete
    assert {(one.pattern, one.count) for one in found.ignored} == {("o", 1), ("out.weight", 1)}


def test_a_shape_that_the_loader_refuses() -> None:
    found = account(answer(WRITES, refused={"out.weight": "it gets [4, 5]"}), total=4)
    assert [(m.code, m.message) for m in found.misfits] == [("shape-mismatch", "cannot be made of o: it gets [4, 5]")]
    assert found.missing == ("out.weight",)


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny pipeline of a class that SGLang has itself."""
    return save("wan", tmp_path_factory.mktemp("loaded"))


@pytest.mark.skipif(_HERE, reason="SGLang is installed here")
def test_without_sglang_nothing_is_said_to_fit(wan: Path) -> None:
    code, said = run_cli("check-layout", str(wan), "--for", "sglang-diffusion")
    assert (code, said["error"]) == (3, "--for sglang-diffusion asks SGLang's own loader: it is not installed")


def test_a_transformer_alone_is_served_by_no_pipeline(wan: Path, tmp_path: Path) -> None:
    alone = tmp_path / "transformer"
    alone.mkdir()
    for file in (wan / "transformer").iterdir():
        (alone / file.name).write_bytes(file.read_bytes())
    code, said = run_cli("check-layout", str(alone), "--for", "sglang-diffusion")
    assert (code, "SGLang loads whole pipelines" in said["error"]) == (2, True)


@served
def test_its_own_model_is_filled(wan: Path) -> None:
    code, said = run_cli("check-layout", str(wan), "--for", "sglang-diffusion")
    assert (code, said["consumer"]) == (0, "sglang-diffusion")
    assert said["keys"]["mapped"] == said["keys"]["total"]
    assert said["keys"]["proof"].startswith(f"{said['keys']['total']} parameters of SGLang ")


@served
def test_a_config_that_is_told_by_the_pipelines_class(tmp_path: Path) -> None:
    """No directory's name leads SGLang to it."""
    code, said = run_cli("check-layout", str(save("flux", tmp_path / "some-checkpoint")), "--for", "sglang-diffusion")
    assert (code, said["keys"]["mapped"]) == (0, said["keys"]["total"])


@served
def test_lost_added_and_resized_tensors_are_errors(wan: Path, tmp_path: Path) -> None:
    """One checkpoint with three faults, of which SGLang itself would warn at most."""
    place = tmp_path / "wan"
    shutil.copytree(wan, place)
    (shard,) = (place / "transformer").glob("*.safetensors")
    tensors = load_file(shard)
    lost, resized = "blocks.0.attn1.to_q.bias", "blocks.0.attn2.to_k.weight"
    del tensors[lost]
    tensors[resized] = tensors[resized][:, :-1].contiguous()
    tensors["blocks.0.attn9.to_q.weight"] = tensors["blocks.0.attn1.to_q.weight"].clone()
    save_file(tensors, shard)
    code, said = run_cli("check-layout", str(place), "--for", "sglang-diffusion")
    assert code == 1, said
    assert said["keys"]["unmapped"] == ["blocks.0.attn9.to_q.weight"]
    missing = set(said["keys"]["missing"])
    assert len(missing) == 2
    found = {finding["code"] for finding in said["findings"] if finding["severity"] == "error"}
    assert found == {"unmapped-keys", "missing-parameters", "shape-mismatch"}


@served
def test_half_a_pipeline_is_refused_in_sglangs_own_words(wan: Path, tmp_path: Path) -> None:
    place = tmp_path / "wan"
    shutil.copytree(wan, place, ignore=lambda folder, names: ["vae"] if folder == str(wan) else [])
    code, said = run_cli("check-layout", str(place), "--for", "sglang-diffusion")
    assert (code, "missing required component directories: vae" in said["error"]) == (2, True)


@served
def test_parts_are_joined_as_the_mapping_says(tmp_path: Path) -> None:
    """Z-Image's serving class joins gate and up of its feed-forward: headers in the published size, without data.

    SGLang 0.5.23 calls the depth otherwise than diffusers does: with another depth its model has too many layers.
    """
    from accelerate import init_empty_weights
    from diffusers import ZImageTransformer2DModel

    with init_empty_weights():
        model = ZImageTransformer2DModel()
    place = tmp_path / "Z-Image" / "transformer"
    place.mkdir(parents=True)
    model.save_config(place)
    index = {"_class_name": "ZImagePipeline", "_diffusers_version": "0.37.0",
             "transformer": ["diffusers", "ZImageTransformer2DModel"]}  # fmt: skip
    (place.parent / "model_index.json").write_text(json.dumps(index))
    _headers_alone(place / "diffusion_pytorch_model.safetensors", model.state_dict())
    code, said = run_cli("check-layout", str(place.parent), "--for", "sglang-diffusion")
    assert code == 0, said
    parameters = int(said["keys"]["proof"].split()[0])
    assert parameters < said["keys"]["total"] == said["keys"]["mapped"]


def _headers_alone(file: Path, state: dict[str, Any]) -> None:
    """A safetensors file whose data is a hole."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in state.items():
        start, end = end, end + 2 * tensor.numel()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)
