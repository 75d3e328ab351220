"""A conversion reads what authors publish: safetensors, pickles of tensors alone, and averaged weights."""

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from omni_kit.resources import resource_dir

SCRIPT = resource_dir("reference_models") / "diffusers" / "lumen" / "convert_lumen_to_diffusers.py"


@pytest.fixture
def lumen(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    pytest.importorskip("diffusers")
    monkeypatch.syspath_prepend(SCRIPT.parent.parent)
    yield importlib.import_module("lumen")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lumen"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("diffusers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent.parent)
        spec = importlib.util.spec_from_file_location("convert_lumen", SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name in [name for name in sys.modules if name.partition(".")[0] == "lumen"]:
            del sys.modules[name]
        return module


ONE, OTHER = (
    {"a.weight": torch.zeros(2), "b.weight": torch.zeros(3)},
    {"a.weight": torch.ones(2), "b.weight": torch.ones(3)},
)


def test_safetensors_are_read(script: ModuleType, tmp_path: Path) -> None:
    save_file(ONE, tmp_path / "model.safetensors")
    assert [one.keys() for one in script.weights(tmp_path / "model.safetensors")] == [ONE.keys()]


def test_files_of_a_folder_or_of_an_index_are_read_as_one(script: ModuleType, tmp_path: Path) -> None:
    for name, tensor in ONE.items():
        save_file({name: tensor}, tmp_path / f"{name}.safetensors")
    (index := tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {name: f"{name}.safetensors" for name in ONE}})
    )
    for place in (tmp_path, index):
        assert [one.keys() for one in script.weights(place)] == [ONE.keys()]
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="contains no safetensors"):
        script.weights(empty)


def test_averaged_weights_come_first(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    torch.save({"model": ONE, "ema": OTHER, "args": argparse.Namespace(lr=0.1), "step": 3}, file)
    assert bool(script.weights(file)[0]["a.weight"].all())
    assert not bool(script.weights(file, ema=False)[0]["a.weight"].any())


@pytest.mark.parametrize(("averages", "found"), [
    ([torch.ones(2), torch.ones(3)], {"a.weight": 1.0, "b.table": 0.0, "c.weight": 1.0}),
    ([torch.ones(2), torch.ones(5)], None),  # of another model
    ([torch.ones(2)], {"a.weight": 1.0, "b.table": 0.0, "c.weight": 0.0}),
])  # fmt: skip
def test_averages_without_names_are_told_apart_by_their_shapes(
    averages: list[torch.Tensor], found: dict[str, float] | None, script: ModuleType, tmp_path: Path
) -> None:
    trained = {"a.weight": torch.zeros(2), "b.table": torch.zeros(4), "c.weight": torch.zeros(3)}
    torch.save({"model": trained, "ema": {"decay": 0.9, "shadow_params": averages}}, tmp_path / "last.pth")
    assert not bool(script.weights(tmp_path / "last.pth", ema=False)[0]["a.weight"].any())
    if found is None:
        with pytest.raises(SystemExit, match="--no-ema"):
            script.weights(tmp_path / "last.pth")
    else:
        (read,) = script.weights(tmp_path / "last.pth")
        assert {name: float(one.mean()) for name, one in read.items()} == found


def test_averages_that_fit_in_several_ways_are_refused(script: ModuleType, tmp_path: Path) -> None:
    trained = {"a.weight": torch.zeros(2), "a.running_mean": torch.zeros(2), "b.weight": torch.zeros(2)}
    torch.save({"model": trained, "ema": {"shadow_params": [torch.ones(2), torch.ones(2)]}}, tmp_path / "last.pth")
    with pytest.raises(SystemExit, match="several ways"):
        script.weights(tmp_path / "last.pth")


def test_a_pickle_that_runs_code_is_refused(script: ModuleType, tmp_path: Path) -> None:
    torch.save({"model": Path("lamp")}, tmp_path / "last.pt")
    with pytest.raises(Exception, match=r"(?i)weights.only|unsupported"):
        script.weights(tmp_path / "last.pt")


# The names of Lumen's tensors here -> those of its authors.
AUTHORS = (
    (r"^transformer_blocks", "blocks"), (r"attn\.to_out\.0", "attn.proj"), (r"\.ff\.", ".mlp."),
    (r"^time_embed", "time_in"), (r"^context_embedder", "text_in"), (r"^proj_out", "final"),
    (r"^norm_out", "final_norm"), (r"attn\.to_q", "attn.qkv"),
)  # fmt: skip


@pytest.fixture
def theirs(lumen: ModuleType, tmp_path: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A small model's tensors, and the same by the authors' names; the model is saved in `here`."""
    toy = json.loads((SCRIPT.parent / "toy_config.json").read_text(encoding="utf-8"))
    model = lumen.LumenTransformer2DModel.from_config({key: value for key, value in toy.items() if key[0] != "_"})
    model.save_pretrained(tmp_path / "here")
    own, found = model.state_dict(), {}
    for name, tensor in own.items():
        if ".to_k." in name or ".to_v." in name:
            continue
        rows = [own[name.replace(".to_q.", f".to_{part}.")] for part in "qkv"] if ".to_q." in name else [tensor]
        for here, there in AUTHORS:
            name = re.sub(here, there, name)
        found[name] = torch.cat(rows)
    assert found.keys() != own.keys()
    return own, found


def test_a_file_of_the_authors_is_loaded_by_the_class(
    lumen: ModuleType, theirs: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    own, found = theirs
    save_file(found, tmp_path / "authors.safetensors")
    for source in (found, str(tmp_path / "authors.safetensors")):
        loaded = lumen.LumenTransformer2DModel.from_single_file(
            source, config=str(tmp_path / "here"), torch_dtype=torch.float64
        )
        assert loaded.dtype == torch.float64
        assert all(torch.equal(loaded.state_dict()[name].float(), one) for name, one in own.items())


@pytest.mark.parametrize(("head", "beside"), [
    ("", ()), ("module._orig_mod.", ()), ("diffusion.denoise_fn.", ("text_encoder.emb.weight", "diffusion.betas")),
    ("model.", ("vae.conv.weight",)),
])  # fmt: skip
def test_a_model_is_found_below_a_prefix_and_among_others(
    head: str, beside: tuple[str, ...], script: ModuleType,
    theirs: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]], tmp_path: Path,
) -> None:  # fmt: skip
    own, found = theirs
    whole = {**{f"{head}{name}": one for name, one in found.items()}, **{name: torch.ones(2) for name in beside}}
    torch.save({"model": whole, "step": 7}, tmp_path / "last.pt")
    toy = json.loads((SCRIPT.parent / "toy_config.json").read_text(encoding="utf-8"))
    model = script.converted(tmp_path / "last.pt", {key: value for key, value in toy.items() if key[0] != "_"})
    assert all(torch.equal(model.state_dict()[name], one) for name, one in own.items())


def test_what_a_checkpoint_lacks_is_named(
    script: ModuleType, theirs: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    _, found = theirs
    torch.save({f"net.{name}": one for name, one in found.items() if name != "final.weight"}, tmp_path / "last.pt")
    toy = json.loads((SCRIPT.parent / "toy_config.json").read_text(encoding="utf-8"))
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"proj_out.weight\"\. *$"):
        script.converted(tmp_path / "last.pt", {key: value for key, value in toy.items() if key[0] != "_"})
