"""What SGLang has itself is said with its place, and not replaced unasked."""

from pathlib import Path

import pytest

from omni_kit.errors import Refusal
from omni_kit.inspection import inspect
from omni_kit.scaffold import new_model
from omni_kit.targets.sglang_diffusion.built_in import own

ROOM = "runtime/models/vaes"


def checkout(root: Path) -> Path:
    """A checkout with one pipeline in a folder of its own, one autoencoder and its config."""
    package = root / "python/sglang/multimodal_gen"
    files = {
        "registry.py": "",
        "runtime/pipelines/lumina/image.py": "class P:\n    pipeline_name = 'LuminaPipeline'\n\n\nEntryClass = [P]\n",
        f"{ROOM}/ltx.py": "from x import LTXConfig\n\n\nclass AutoencoderKLLTXVideo:\n    _aliases = ['LTX']\n\n"
        "    def __init__(self, config: LTXConfig): ...\n\n\nEntryClass = AutoencoderKLLTXVideo\n",
        "configs/models/vaes/ltx_config.py": "class LTXConfig: ...\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return root


def test_pipelines_classes_aliases_and_configs_are_read_with_their_places(tmp_path: Path) -> None:
    found = own(checkout(tmp_path))
    assert found.here
    assert found.pipelines == {"LuminaPipeline": "sglang/multimodal_gen/runtime/pipelines/lumina/image.py:2"}
    assert found.models["LTX"] == found.models["AutoencoderKLLTXVideo"] == f"sglang/multimodal_gen/{ROOM}/ltx.py:4"
    config = "sglang.multimodal_gen.configs.models.vaes.ltx_config:LTXConfig"
    assert found.vae_configs == {"AutoencoderKLLTXVideo": config}


def test_a_plugin_does_not_replace_a_pipeline_of_sglang_without_force(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"has FluxPipeline itself \(sglang/.*flux\.py:\d+\)") as raised:
        new_model("mine", "FluxPipeline", target="sglang-diffusion", into=tmp_path)
    assert "--force" in raised.value.hint
    assert not list(tmp_path.iterdir())
    assert new_model("mine", "FluxPipeline", target="sglang-diffusion", force=True, into=tmp_path).changes


def test_a_pipeline_that_sglang_lacks_needs_no_force(tmp_path: Path) -> None:
    assert new_model("mine", "LuminaPipeline", target="sglang-diffusion", into=tmp_path).changes


def test_inspect_names_pipeline_denoiser_and_autoencoder_with_their_places() -> None:
    notes = [note for note in inspect("Flux2Pipeline")["notes"] if "itself" in note]
    for what in ("pipeline Flux2Pipeline", "denoiser Flux2Transformer2DModel", "autoencoder AutoencoderKLFlux2"):
        assert any(f"it has the {what} itself (sglang/" in note for note in notes)
    assert not [note for note in inspect("LuminaPipeline")["notes"] if "the pipeline" in note]
    assert [note for note in inspect("WanTransformer3DModel")["notes"] if "the denoiser WanTransformer3DModel" in note]


def test_its_own_autoencoder_decodes_where_it_decodes_the_same(tmp_path: Path) -> None:
    new_model("mine", "WanPipeline", target="sglang-diffusion", force=True, into=tmp_path)
    assert "import WanVAEConfig" in (tmp_path / "mine/pipeline_config.py").read_text()
    new_model("film", "HunyuanVideoPipeline", target="sglang-diffusion", force=True, into=tmp_path)
    assert "vaes/hunyuanvae.py" in (tmp_path / "film/loaders.py").read_text()
    new_model("other", "LTXPipeline", target="sglang-diffusion", into=tmp_path)
    assert "has no AutoencoderKLLTXVideo" in (tmp_path / "other/loaders.py").read_text()
