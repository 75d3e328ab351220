"""Numbers of steps and scales of guidance, as authors' samplers and command lines state them."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.usual_sampling import UsualSampling, usual_sampling

NET = """from torch import nn

class Net(nn.Module):
    def forward(self, x, t, context):
        return x
"""
OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--num-sampling-steps", type=int, default=250)
parser.add_argument("--cfg-scale", type=float, default=1.5)
"""


@pytest.mark.parametrize(("text", "options", "found"), [
    ("def run(model, x, num_steps=30, cfg_scale=6.5):\n    return x", "", UsualSampling(30, 6.5)),
    ("def run(model, x, *, nfe=32, guidance=3):\n    return x", OPTIONS, UsualSampling(32, 3.0)),
    ("def run(model, x, steps, cfg=1.0):\n    return x", OPTIONS, UsualSampling(250, 1.5)),
    ("def run(model, x, steps, cfg_scale=1.0):\n    return x", "", UsualSampling(scale=1.0)),
    ("def run(model, x, timesteps=1000, w=True):\n    return x", "", UsualSampling()),  # all steps of a training
    ("def run(model, x, scale_shift=2.0, step_size=4):\n    return x", "", UsualSampling()),
    ("def run(model, height=480, width=832, num_frames=49): ...", "", UsualSampling(None, None, 480, 832, 49)),
    ("def run(model, x, image_size=256, batch_size=64):\n    return x", "", UsualSampling(height=256, width=256)),
    ("def run(model, x, h=256, w=7.5):\n    return x", "", UsualSampling(scale=7.5)),
    ("STEPS = 8\ndef run(model, x, num_steps=STEPS, guidance_scale=0.0):\n    return x", "", UsualSampling(8, 0.0)),
    ("from more import STEPS\ndef run(model, x, num_steps=STEPS):\n    return x", "", UsualSampling()),
    ("def other(n_steps=7):\n    return 1\ndef run(model, x):\n    return x", "", UsualSampling()),
])  # fmt: skip
def test_what_a_sampler_states_comes_before_command_lines(
    tmp_path: Path, text: str, options: str, found: UsualSampling
) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "run.py").write_text(f"{text}\n", encoding="utf-8")
    (tmp_path / "main.py").write_text(options, encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    line = text.count("\n") + 1
    assert usual_sampling(reference, f"{reference.repository.show(tmp_path / 'run.py')}:{line}") == found


@pytest.mark.parametrize(("names", "steps"), [((), 4), (["Slow"], 250), (["Unheard"], 4)])
def test_command_lines_that_name_the_sampler_count(names: list[str], steps: int, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "run.py").write_text("def run(model, x):\n    return x\n", encoding="utf-8")
    (tmp_path / "fast.py").write_text(OPTIONS.replace("250", "4"), encoding="utf-8")
    (tmp_path / "main.py").write_text(f"from samplers import Slow\n{OPTIONS}", encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    where = f"{reference.repository.show(tmp_path / 'run.py')}:1"
    assert usual_sampling(reference, where, names).steps == steps
