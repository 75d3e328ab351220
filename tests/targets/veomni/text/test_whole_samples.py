"""The module that runs layers with a state on whole samples, alone and next to another process."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from omni_kit.resources import resource_dir

torch = pytest.importorskip("torch")

_LENGTHS, _PARTS = (3, 1, 4), 2


def module(gather: Callable[[Any], tuple[Any, list[int], int]], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function, with VeOmni's exchange of states replaced by `gather`."""
    exchange: Any = ModuleType("veomni.distributed.sequence_parallel")
    exchange.sp_gather_seqs = lambda states, dim: gather(states)
    exchange.sp_take_own_seq = lambda whole, dim, parts, rank: whole.split(parts, dim=dim)[rank]
    monkeypatch.setitem(sys.modules, exchange.__name__, exchange)
    scope: dict[str, Any] = {"__name__": "whole_samples"}
    text = (resource_dir("templates") / "veomni/text/whole_samples.py.jinja").read_text(encoding="utf-8")
    exec(compile(text, "whole_samples.py", "exec"), scope)
    return scope["on_whole_samples"]


def carrying(seen: dict[str, Any]) -> Callable[..., Any]:
    """A layer whose every token depends on all before it in its row, with a second output."""

    def forward(**given: Any) -> Any:
        seen.update(given)
        return given["hidden_states"].cumsum(1), None

    return forward


def alone(row: Any, *lengths: int) -> Any:
    return torch.cat([part.cumsum(1) for part in row.split(lengths, dim=1)], dim=1)


BOUNDS = {"cu_seq_lens_q": torch.tensor([0, 3, 4, 8], dtype=torch.int32), "max_length_q": 4, "seq_idx": None}


def test_each_sample_is_answered_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row, seen = torch.rand(1, sum(_LENGTHS), 2, requires_grad=True), dict[str, Any]()
    run = module(lambda states: (states, [states.shape[1]], 0), monkeypatch)

    states, other = run(carrying(seen), {"hidden_states": row, "attention_mask": torch.ones(1, 8)}, BOUNDS)

    assert other is None
    assert torch.equal(states, alone(row, *_LENGTHS))
    (gradient,) = torch.autograd.grad(states.sum(), row)
    assert torch.equal(gradient, torch.autograd.grad(alone(row, *_LENGTHS).sum(), row)[0])
    assert seen["hidden_states"].shape == (3, 4, 2)
    assert seen["attention_mask"] is None
    assert not {"cu_seq_lens_q", "max_length_q"} & {*seen}


@pytest.mark.parametrize("rank", range(_PARTS))
def test_a_process_keeps_its_own_tokens_and_padding_is_a_sample(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.rand(1, 10, 2)
    run = module(lambda states: (whole, [5, 5], rank), monkeypatch)

    states, _ = run(carrying({}), {"hidden_states": whole.split(5, dim=1)[rank], "attention_mask": None}, BOUNDS)

    assert torch.equal(states, alone(whole, *_LENGTHS, 2).split(5, dim=1)[rank])
