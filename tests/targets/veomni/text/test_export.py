"""parity --emit-export: an export that keeps float32 what upstream keeps in float32."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.scaffold.converter import write_export

_REFERENCES = Path("reference_models/veomni").resolve()

torch = pytest.importorskip("torch")
pytest.importorskip("veomni")


def test_an_export_casts_nothing_that_upstream_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file, save_file
    from torch.distributed import checkpoint
    from veomni.models.loader import MODELING_REGISTRY

    monkeypatch.syspath_prepend(str(_REFERENCES))
    others_registered = {key: one for key, one in MODELING_REGISTRY._global_mapping.items() if key != "olmoe"}
    monkeypatch.setattr(MODELING_REGISTRY, "_global_mapping", others_registered)  # another test's OLMoE
    monkeypatch.delitem(sys.modules, "olmoe", raising=False)
    file = tmp_path / "export.py"
    assert write_export(_REFERENCES / "olmoe", file) == f"wrote {file}"
    spec = importlib.util.spec_from_file_location("export_of_olmoe", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    model_class = made.MODELING_REGISTRY["olmoe"]("OlmoeForCausalLM")
    monkeypatch.setattr(model_class, "_keep_in_fp32_modules", ["mlp.gate"])

    name = "model.layers.0.mlp.experts"
    disk = {f"{name}.0.{part}_proj.weight": torch.ones(2, 2, dtype=torch.bfloat16) for part in ("gate", "up", "down")}
    others = {"model.norm.weight": torch.float32, "model.embed_tokens.weight": torch.bfloat16}
    gate = "model.layers.0.mlp.gate.weight"
    disk |= {key: torch.ones(2, dtype=dtype) for key, dtype in others.items()} | {
        gate: disk[f"{name}.0.up_proj.weight"]
    }
    model = tmp_path / "model"
    model.mkdir()
    save_file({key: tensor.clone() for key, tensor in disk.items()}, model / "model.safetensors")
    (model / "config.json").write_text(json.dumps({"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"]}))
    stacks = (f"{name}.gate_up_proj", f"{name}.down_proj")
    state = {key: torch.full((2, 2), 1.001) for key in (*others, gate, *stacks, "lm_head.weight")}
    checkpoint.save({"model": state}, checkpoint_id=str(tmp_path / "step"))

    made.export(tmp_path / "step", model, tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert {key for key, tensor in written.items() if tensor.dtype == torch.float32} == {"model.norm.weight", gate}
    assert written.keys() == {*others, gate, *stacks}
    assert torch.equal(written[gate], state[gate])
    assert (tmp_path / "out" / "config.json").is_file()
    sys.modules.pop("olmoe", None)


def test_a_denoiser_has_no_such_export(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="denoiser"):
        write_export(_REFERENCES / "wan", tmp_path / "export.py")
