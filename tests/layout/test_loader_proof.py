"""--against-model: transformers' own loader, without data."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.layout import LayoutVerdict, check_layout, read_checkpoint
from omni_kit.layout.loader_proof import prove_loading
from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import Checkpoints


@pytest.fixture
def changed(checkpoint: Checkpoints, tmp_path: Path) -> Callable[..., LayoutVerdict]:
    """The verdict on an OLMoE checkpoint with keys added, dropped or resized."""

    def make(drop: str = "", add: dict[str, tuple[int, ...]] | None = None, **config: int) -> LayoutVerdict:
        source = checkpoint("olmoe")
        tensors = {k: v for shard in sorted(source.glob("*.safetensors")) for k, v in load_file(shard).items()}
        tensors.pop(drop, None)
        tensors |= {name: np.zeros(shape, np.float32) for name, shape in (add or {}).items()}
        place = tmp_path / "changed"
        place.mkdir()
        save_file(tensors, place / "model.safetensors")
        given = json.loads((source / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**given, **config}))
        return check_layout(str(place), against_model=True)

    return make


def codes(verdict: LayoutVerdict) -> set[str]:
    return {finding.code for finding in verdict.findings}


def test_it_runs_in_a_process_of_its_own(checkpoint: Checkpoints) -> None:
    assert check_layout(str(checkpoint("olmoe")), against_model=True).ok


@pytest.mark.parametrize("model_type", ["mixtral", "gemma2", "deepseek_v3"])
def test_a_good_checkpoint_fills_the_model(checkpoint: Checkpoints, model_type: str) -> None:
    verdict = check_layout(str(checkpoint(model_type)), against_model=True)
    assert verdict.ok, verdict.findings
    assert verdict.load_proof is not None
    assert verdict.load_proof.complete
    assert "filled by the loader of transformers" in verdict.as_json()["keys"]["proof"]


def test_a_missing_parameter(changed: Callable[..., LayoutVerdict]) -> None:
    verdict = changed(drop="model.norm.weight")
    assert verdict.load_proof is not None
    assert verdict.load_proof.missing == ("model.norm.weight",)
    assert codes(verdict) == {"load-missing", "missing-parameters"}
    assert verdict.as_json()["keys"]["proof"] == "", "a loader that fails proves nothing"
    assert not verdict.ok


def test_a_missing_expert(changed: Callable[..., LayoutVerdict]) -> None:
    verdict = changed(drop="model.layers.1.mlp.experts.4.up_proj.weight")
    assert verdict.load_proof is not None
    assert not verdict.load_proof.complete
    assert not verdict.ok


def test_a_key_too_many(changed: Callable[..., LayoutVerdict]) -> None:
    verdict = changed(add={"model.extra.weight": (3,)})
    assert verdict.load_proof is not None
    assert verdict.load_proof.unexpected == ("model.extra.weight",)


def test_a_parameter_fed_twice(changed: Callable[..., LayoutVerdict]) -> None:
    """The same experts split and fused: whichever comes last would win."""
    fused = "model.layers.0.mlp.experts.down_proj"
    verdict = changed(add={fused: (6, 64, 40)})
    assert verdict.load_proof is not None
    assert fused in verdict.load_proof.twice
    assert not verdict.ok


def test_another_shape(changed: Callable[..., LayoutVerdict]) -> None:
    verdict = changed(vocab_size=98)
    assert verdict.load_proof is not None
    assert set(verdict.load_proof.mismatched) == {"model.embed_tokens.weight", "lm_head.weight"}
    assert not verdict.ok


def test_a_config_that_builds_nothing(changed: Callable[..., LayoutVerdict]) -> None:
    with pytest.raises(BadInput, match="cannot be built from this config"):
        changed(num_attention_heads=0)


def test_an_index_alone_has_no_shapes(checkpoint: Checkpoints, tmp_path: Path) -> None:
    for name in ("model.safetensors.index.json", "config.json"):
        shutil.copy(checkpoint("olmoe") / name, tmp_path)
    with pytest.raises(BadInput, match="an index has none"):
        check_layout(str(tmp_path / "model.safetensors.index.json"), against_model=True)


def test_without_torch(checkpoint: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = check_layout(str(checkpoint("olmoe")))
    assert isinstance(verdict.model, UpstreamModel)
    assert verdict.accounting is not None
    headers = read_checkpoint(checkpoint("olmoe"))
    monkeypatch.setattr("omni_kit.layout.loader_proof.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingRequirement, match="needs torch"):
        prove_loading(headers, verdict.model, verdict.accounting)
