"""A checkpointed block is called as the plain one is, or something is lost."""

from pathlib import Path

import pytest

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import read_source
from omni_kit.upstream.diffusers.checkpointing import checkpoints, lost_by_checkpointing

MODEL = """
class Lantern(ModelMixin):
    _supports_gradient_checkpointing = True

    def forward(self, x, temb, mask=None, kwargs=None):
        for block in self.blocks:
            if torch.is_grad_enabled() and self.gradient_checkpointing:
                x = self._gradient_checkpointing_func(block, {checkpointed})
            else:
                x = block({plain})
        return x
"""


@pytest.mark.parametrize(("checkpointed", "plain", "lost"), [
    ("x, temb, mask", "x, temb, mask", ""),
    ("x, temb, mask", "x, temb=temb, attention_mask=mask", ""),
    ("x, temb", "x=x, temb=temb, attention_mask=mask", "attention_mask"),
    ("x, temb", "x, temb, joint_attention_kwargs=kwargs", ""),
])  # fmt: skip
def test_what_a_checkpointed_call_leaves_out(checkpointed: str, plain: str, lost: str, tmp_path: Path) -> None:
    file = tmp_path / "lantern.py"
    file.write_text(MODEL.format(checkpointed=checkpointed, plain=plain))
    source = read_source(Library("lantern", tmp_path), file)
    cls = ClassRef(source, source.classes["Lantern"])
    assert checkpoints(cls)
    assert lost_by_checkpointing(cls) == lost
