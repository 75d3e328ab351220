"""Pairing of module calls: by name, and by their inputs where these come in another order."""

import torch
from torch import nn

from omni_kit.parity.compare.pairing import named_alike, pair_calls
from omni_kit.parity.compare.trace import Recording, recorded


class Loop(nn.Module):
    """Calls one activation for each row."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.order = order
        self.act_fn = nn.SiLU()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.act_fn(rows[number]) for number in self.order]).sum(0)


def recording(order: list[int], rows: torch.Tensor) -> Recording:
    with recorded(model := Loop(order)) as found:
        model(rows)
    return found


ROWS = torch.arange(12.0).reshape(3, 4).requires_grad_()


def numbers(candidate: Recording) -> list[int]:
    pairs = pair_calls(recording([0, 1, 2], ROWS), candidate)
    return [pairs["act_fn", occurrence] for occurrence in range(3)]


def test_calls_in_the_same_order_are_paired_in_order() -> None:
    assert numbers(recording([0, 1, 2], ROWS * 1.001)) == [1, 2, 3]


def test_calls_in_another_order_are_paired_by_their_inputs() -> None:
    assert numbers(recording([2, 0, 1], ROWS * 1.001)) == [3, 1, 2]


def test_calls_with_other_inputs_stay_in_order() -> None:
    assert numbers(recording([2, 0, 1], ROWS + 1)) == [1, 2, 3]
    assert numbers(recording([2, 2, 1], ROWS)) == [1, 2, 3]


class Alone(nn.Module):
    """A projection with nothing around it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.fc2(self.act(self.fc1(rows)))
        return found


class Activated(nn.Module):
    """A projection, and the activation that follows it, in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.proj(rows))


def test_a_module_around_one_projection_is_no_partner_of_a_bare_projection() -> None:
    with recorded(reference := Alone()) as upstream:
        reference(ROWS)
    for order in ([Activated(), nn.Linear(4, 4)], [nn.Identity(), Activated(), nn.Linear(4, 4)]):
        with recorded(candidate := nn.Sequential(*order)) as ours:
            candidate(ROWS)
        first = len(order) - 2
        fc1, fc2 = (next(one.number for one in upstream.calls if one.module == name) for name in ("fc1", "fc2"))
        assert pair_calls(upstream, ours) == {("", 0): 0, (f"{first}.proj", 0): fc1, (f"{first + 1}", 0): fc2}
        back = pair_calls(ours, upstream)
        assert {ours.calls[number].module for number in back.values()} == {"", f"{first}.proj", f"{first + 1}"}


class Shift(nn.Module):
    """Adds what another module returns, in a tuple or not, to an argument of any name."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.inner(rows)
        moved: torch.Tensor = found[0] if isinstance(found, tuple) else found
        return moved + rows


class Plain(nn.Linear):
    """A projection."""


class Wrapped(nn.Linear):
    """The same with another argument, and a tuple as its answer."""

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return super().forward(hidden_states), None


def test_what_goes_in_and_out_has_the_candidate_s_names() -> None:
    found = []
    for inner in (Plain(4, 4), Wrapped(4, 4)):
        with recorded(model := Shift(inner)) as recording:
            model(ROWS).sum().backward()
        found.append(recording)
    upstream, ours = found
    pairs = pair_calls(upstream, ours)
    named = named_alike(upstream, ours, pairs)
    assert [(call.inputs, call.outputs) for call in upstream.calls[1:]] == [(["input"], [""])]
    assert [(call.inputs, call.outputs) for call in named.calls[1:]] == [(["hidden_states"], ["0"])]
    assert {name for name in named.tensors if name.startswith("1.")} == {
        "1.in.hidden_states", "1.out.0", "1.grad_in.hidden_states", "1.grad_out.0",
    }  # fmt: skip
    assert named_alike(upstream, upstream, pair_calls(upstream, upstream)) is upstream
