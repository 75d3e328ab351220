"""A module that was not given something is not to blame for what it then answers; one with a fault of its own is."""

from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.parity.compare.missing_inputs import caller_at_fault, lacking
from omni_kit.parity.compare.modules import Compared, first_forward
from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.trace import Recording, Script, recorded
from omni_kit.toys.weights import fill, shuffled_ramp

HIDDEN = shuffled_ramp("hidden", (2, 5, 8)).requires_grad_()
GAIN = 2 + shuffled_ramp("gain", (2, 5, 8))
EVERYTHING = torch.ones(1, 1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, hidden: torch.Tensor, gain: torch.Tensor | None = None, unused: Any = None) -> torch.Tensor:
        answer: torch.Tensor = self.project(hidden if gain is None else hidden * gain)
        return answer


class Halved(Attention):
    def forward(self, hidden: torch.Tensor, gain: torch.Tensor | None = None, unused: Any = None) -> torch.Tensor:
        return 0.5 * super().forward(hidden, gain)


class Block(nn.Module):
    """Hands all that it is given to its attention."""

    attention = Attention

    def __init__(self) -> None:
        super().__init__()
        self.attend = self.attention()

    def forward(self, hidden: torch.Tensor, extra: dict[str, torch.Tensor]) -> torch.Tensor:
        answer: torch.Tensor = self.attend(hidden, unused=HIDDEN.detach(), **extra)
        return answer


class Withholding(Block):
    def forward(self, hidden: torch.Tensor, extra: dict[str, torch.Tensor]) -> torch.Tensor:
        answer: torch.Tensor = self.attend(hidden, unused=HIDDEN.detach())
        return answer


class Faulty(Block):
    """Does not hand on what is not used, which is no fault."""

    attention = Halved

    def forward(self, hidden: torch.Tensor, extra: dict[str, torch.Tensor]) -> torch.Tensor:
        answer: torch.Tensor = self.attend(hidden, **extra)
        return answer


class Model(nn.Module):
    def __init__(self, block: type[Block], extra: dict[str, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.block = block()
        self._extra = {"gain": GAIN} if extra is None else extra
        fill(self)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.block(hidden, self._extra)
        return answer


def run(model: nn.Module, script: Script | None = None) -> Recording:
    with recorded(model, script) as recording:
        model(HIDDEN)
    return recording


def blamed(candidate: nn.Module) -> tuple[str, str]:
    """The module that is blamed and for what, by the steps that a comparison takes."""
    reference, free = run(Model(Block)), run(candidate)
    pairs = pair_calls(reference, free)
    replay, completed = (run(candidate, Script(reference, pairs, complete)) for complete in (False, True))
    compared = [Compared(reference, other, EVERYTHING) for other in (replay, free, completed)]
    blame = first_forward(compared[0], compared[1])
    assert blame is not None
    assert lacking(compared[0], blame.call)
    blame = caller_at_fault(compared[0], blame, compared[2], compared[1])
    return blame.call.module, blame.what


@pytest.mark.parametrize(
    ("candidate", "module", "what"),
    [
        (Model(Withholding), "block", "block.attend, without upstream's gain"),
        (Model(Block, extra={}), "", "block, without upstream's extra.gain"),
        (Model(Block, extra={"gain": GAIN[:, :1]}), "", "block, without upstream's extra.gain"),
    ],
)
def test_who_does_not_hand_it_on_is_to_blame(candidate: nn.Module, module: str, what: str) -> None:
    found = blamed(candidate)

    assert found == (module, f"its input to {what}")


def test_a_fault_of_its_own_stays_with_the_module_that_lacks_something_else() -> None:
    module, what = blamed(Model(Faulty))

    assert module == "block.attend"
    assert "without" not in what
