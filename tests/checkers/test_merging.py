"""Steps in one statement, and the same steps in several: in another order they are told."""

import pytest

from omni_checkers.symbolic.alterations import Copy
from omni_checkers.symbolic.merging import nested_otherwise

from .test_alterations import function

ORIGINAL = """
def forward(self, hidden_states, weights):
    scores = self.scores(hidden_states)
    scores = F.relu(scores)
    total = torch.einsum("bsht,bsh->bst", scores, weights)
    return self.out(total)
"""
STEPS = """\
    scores = F.relu(scores)
    total = torch.einsum("bsht,bsh->bst", scores, weights)
"""


def _found(lines: str, original: str = ORIGINAL) -> list[str]:
    copy = Copy(function(ORIGINAL.replace(STEPS, lines)), function(original))
    return [here.text for here, _ in nested_otherwise(copy)]


@pytest.mark.parametrize(
    "lines",
    [
        '    total = F.relu(torch.einsum("bsht,bsh->bst", scores, weights))\n',
        '    total = torch.einsum("bsht,bsh->bst", scores, F.relu(weights))\n',
    ],
)
def test_another_order_of_steps_is_told(lines: str) -> None:
    assert len(_found(lines)) == 1
    assert len(_found(STEPS, ORIGINAL.replace(STEPS, lines))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        STEPS,
        '    total = torch.einsum("bsht,bsh->bst", F.relu(scores), weights)\n',
        '    total = torch.einsum("bsht,bsh->bst", scores.relu(), weights)\n',
        '    active = F.relu(scores)\n    total = torch.einsum("bsht,bsh->bst", active, weights)\n',
        '    total = fused(F.relu(torch.einsum("bsht,bsh->bst", scores, weights)))\n',
        "    total = kernel(scores, weights)\n",
    ],
)
def test_the_same_steps_and_other_steps_are_not(lines: str) -> None:
    assert _found(lines) == []


def test_where_values_only_change_their_shape_nothing_is_said() -> None:
    original = ORIGINAL.replace(
        STEPS, "    scores = F.silu(scores)\n    total = scores.reshape(-1, weights.shape[0])\n"
    )
    copy = Copy(
        function(ORIGINAL.replace(STEPS, "    total = F.silu(scores.reshape(-1, weights.shape[0]))\n")),
        function(original),
    )
    assert list(nested_otherwise(copy)) == []
