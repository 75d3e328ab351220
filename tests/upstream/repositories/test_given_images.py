"""Images instead of prompts, as functions next to a sampler receive them."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.given_images import given_images
from omni_kit.upstream.repositories.reference import find_reference

NET = """from torch import nn

class Net(nn.Module):
    def forward(self, x, t, context):
        return x
"""


@pytest.mark.parametrize(("text", "found"), [
    ("def run(model, image): ...", True),
    ("class Run:\n    def __call__(self, noise, *, cond_images=None): ...", True),
    ("def run(model, image, prompt): ...", False),
    ("def run(model, image): ...\ndef other(model, prompt, negative_prompt): ...", False),
    ("def run(model, num_images_per_prompt, image_size): ...", False),
    ("def run(model, noise): ...", False),
])  # fmt: skip
def test_images_are_the_condition_where_no_prompt_is(tmp_path: Path, text: str, found: bool) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "run.py").write_text(f"\n\n{text}\n", encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    where = reference.repository.show(tmp_path / "run.py")
    assert given_images(reference, f"{where}:3") is found
    assert not given_images(reference, f"{reference.repository.show(tmp_path / 'net.py')}:5")
