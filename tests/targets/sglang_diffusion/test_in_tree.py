"""An integration inside SGLang's own package, found by SGLang's own discovery: `make test-sglang`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.scaffold import new_model
from tests.diffusers_pipelines import save

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="needs SGLang, in an environment of its own: make test-sglang"
)


def test_sglang_finds_it_and_answers_what_diffusers_answers(tmp_path: Path) -> None:
    import diffusers
    import torch

    checkpoint, checkout = save("ltx", tmp_path / "ltx"), linked(tmp_path / "checkout")
    new_model("tiny_ltx", str(checkpoint), target="sglang-diffusion", force=True, style="in-tree", into=checkout)
    probe, out = Path(__file__).with_name("in_tree_probe.py"), tmp_path / "out.pt"
    path = os.pathsep.join([str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(probe), str(checkpoint), str(out)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(out)
    assert found["denoiser"] == "sglang.multimodal_gen.runtime.models.dits.tiny_ltx"
    pipeline = diffusers.LTXPipeline.from_pretrained(checkpoint)
    expected = pipeline(
        "a cat", height=64, width=64, num_inference_steps=2, num_frames=9, output_type="pt",
        generator=torch.Generator("cpu").manual_seed(0),
    ).frames  # fmt: skip
    assert torch.allclose(found["picture"].movedim(1, 2), expected, atol=1e-4)


def linked(root: Path) -> Path:
    """A checkout of the installed SGLang: folders of its own, with links to the files."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for folder, _, names in os.walk(package):
        place = root / "sglang" / Path(folder).relative_to(package)
        place.mkdir(parents=True)
        for name in names:
            (place / name).symlink_to(Path(folder) / name)
    return root
