"""The module that runs packed samples as rows of their own, on forwards that mix all tokens of a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from omni_kit.resources import resource_dir

torch = pytest.importorskip("torch")

_LENGTHS = (3, 1, 4)


@dataclass
class Output:
    """As upstream's outputs are."""

    hidden: Any
    flat: Any
    loss: Any


def mixing(seen: dict[str, Any]) -> Callable[..., Output]:
    """A forward whose every token depends on all before it in its row."""

    def forward(**given: Any) -> Output:
        seen.update(given)
        states = given["inputs_embeds"].cumsum(1)
        return Output(states, states.flatten(0, 1), states.sum())

    return forward


def ran(**more: Any) -> tuple[Output, dict[str, Any], Any]:
    """The output for samples packed into one row, what the forward got, and the row."""
    scope: dict[str, Any] = {"__name__": "packed_rows"}
    text = (resource_dir("templates") / "veomni/text/packed_rows.py.jinja").read_text(encoding="utf-8")
    exec(compile(text, "packed_rows.py", "exec"), scope)
    seen: dict[str, Any] = {}
    row = torch.rand(1, sum(_LENGTHS), 2, requires_grad=True)
    bounds = torch.tensor([0, *torch.tensor(_LENGTHS).cumsum(0).tolist()], dtype=torch.int32)
    given = {"input_ids": None, "inputs_embeds": row, "attention_mask": None, **more}
    return scope["rows_of_their_own"](mixing(seen), given, {"cu_seq_lens_q": bounds, "max_length_q": 4}), seen, row


def test_each_sample_is_answered_as_if_alone() -> None:
    answer, seen, row = ran()
    alone = torch.cat([part.cumsum(1) for part in row.split(_LENGTHS, dim=1)], dim=1)
    assert torch.equal(answer.hidden, alone)
    assert torch.equal(answer.flat, alone[0])
    (gradient,) = torch.autograd.grad(answer.hidden.sum(), row)
    assert torch.equal(gradient, torch.autograd.grad(alone.sum(), row)[0])
    assert "cu_seq_lens_q" not in seen
    assert "max_length_q" not in seen


def test_masks_labels_and_positions_are_divided_too() -> None:
    labels, axes = torch.arange(8)[None], torch.arange(24).view(3, 1, 8)
    _, seen, _ = ran(labels=labels, position_ids=axes)
    assert seen["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert seen["labels"].tolist() == [[0, 1, 2, -100], [3, -100, -100, -100], [4, 5, 6, 7]]
    assert seen["position_ids"].shape == (3, 3, 4)
    assert seen["position_ids"][1].tolist() == [[8, 9, 10, 0], [11, 0, 0, 0], [12, 13, 14, 15]]
    _, seen, _ = ran(position_ids=axes.transpose(0, 1))
    assert seen["position_ids"].shape == (3, 3, 4)
    assert seen["position_ids"][2, 0].tolist() == [4, 5, 6, 7]


def test_a_part_of_the_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="the samples have 8 tokens, and this process has 4"):
        ran(inputs_embeds=torch.rand(1, 4, 2))
