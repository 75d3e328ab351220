"""Every class with experts of the installed transformers: what it saves, to the form in memory and back to the hub's.

The truth is the model: its parameters bit by bit, and the file that transformers wrote.
"""

from pathlib import Path
from typing import Any

import pytest

from omni_kit.convert import convert
from omni_kit.layout import read_checkpoint
from tests.moe_models import build, every_modeling_file, moe_classes, saved

# Their recipe transposes experts when loading, as published checkpoints have them; saving leaves them as in memory.
TURNED = {"Qwen3VLMoeModel", "Qwen3VLMoeForConditionalGeneration"}


def tensors(directory: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {key: value for file in sorted(directory.glob("*.safetensors")) for key, value in load_file(file).items()}


@pytest.mark.parametrize("module", every_modeling_file())
def test_there_and_back(module: str, tmp_path: Path) -> None:
    import torch

    for cls in moe_classes(module):
        hub, memory, back = (tmp_path / cls.__name__ / part for part in ("hub", "memory", "back"))
        model = build(cls)
        written = saved(model, hub)
        convert(str(hub), memory, to="memory")
        held = tensors(memory)
        parameters = dict(model.named_parameters(remove_duplicate=False))
        for name, tensor in held.items():
            if name in parameters:
                assert torch.equal(tensor, parameters[name]), (cls.__name__, name)
        state = model.state_dict()
        assert set(held) <= set(state), cls.__name__
        convert(str(memory), back, to="hub")
        returned = tensors(back)
        assert returned.keys() == written.keys(), cls.__name__
        for key, tensor in written.items():
            turned = cls.__name__ in TURNED and tensor.ndim == 3
            assert torch.equal(returned[key], tensor.transpose(1, 2) if turned else tensor), (cls.__name__, key)
        assert not read_checkpoint(back).canonical
