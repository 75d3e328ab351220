"""Which layers VeOmni's adapters are asked for."""

import torch
from torch import nn

from omni_kit.targets.veomni.runtime.lora import _targets


class Router(nn.Linear):
    """Answers logits and what was chosen."""

    def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        logits = super().forward(given)
        return logits, logits.argmax(-1)


def test_a_linear_layer_with_a_forward_of_its_own_gets_no_adapter() -> None:
    model = nn.ModuleDict({"router": Router(4, 2), "up_proj": nn.Linear(4, 4)})
    assert _targets(model, stacked=False) == ["up_proj"]
