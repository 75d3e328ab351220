"""Recording, replaying and blaming, on small models whose faults are known."""

from pathlib import Path

import pytest
import torch
from torch import nn

from omni_kit.parity.compare.modules import Compared, first_backward, first_forward, growth, owner, relative_error
from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.trace import Recording, Script, fits, recorded
from omni_kit.toys.weights import fill, shuffled_ramp

BATCH = shuffled_ramp("batch", (2, 5, 8)).requires_grad_()
NO_PADDING = torch.ones(2, 5, dtype=torch.long)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 8)

    def forward(self, hidden: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        result: torch.Tensor = self.down(torch.tanh(self.up(hidden)) * scale)
        return result


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mixer = Mixer()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.mixer(hidden=self.norm(hidden))
        return hidden + mixed


class Model(nn.Module):
    def __init__(self, block: type[nn.Module] = Block) -> None:
        super().__init__()
        self.first = block()
        self.second = block()
        fill(self)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(hidden))
        return result


class ScaledInside(Mixer):
    def forward(self, hidden: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return super().forward(hidden, 1.01)


class WithScaledMixer(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = ScaledInside()


class WithoutNorm(Block):
    """Calls its norm and then hands on something else."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.mixer(hidden=self.norm(hidden) * 0 + hidden)
        return hidden + mixed


class WithDetachedMixer(Block):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.mixer(hidden=self.norm(hidden).detach())
        return hidden + mixed


class DetachingMixer(Mixer):
    def forward(self, hidden: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return super().forward(hidden).detach()


class WithDetachingMixer(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = DetachingMixer()


class OtherWay(Block):
    """The same result in another order: the halves of the batch swap places and swap back."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.mixer(hidden=self.norm(hidden).flip(0)).flip(0)
        return hidden + mixed


def run(model: nn.Module, script: Script | None = None) -> Recording:
    with recorded(model, script) as recording:
        output = model(BATCH)
        if script is None:
            output.square().sum().backward()
    return recording


def compare(candidate: nn.Module) -> tuple[Compared, Compared]:
    """The free runs of a sound model and the candidate, and the candidate's replay of the sound one."""
    reference, free = run(Model()), run(candidate)
    replay = run(candidate, Script(reference, pair_calls(reference, free)))
    return Compared(reference, free, NO_PADDING), Compared(reference, replay, NO_PADDING)


def test_every_call_is_recorded_in_order_with_what_went_in_and_out() -> None:
    recording = run(Model())
    modules = [call.module for call in recording.calls]

    assert modules[:6] == ["", "first", "first.norm", "first.mixer", "first.mixer.up", "first.mixer.down"]
    mixer = recording.calls[3]
    assert (mixer.inputs, mixer.outputs, recording.calls[mixer.parent].module) == (["hidden"], [""], "first")
    assert recording.tensors[f"{mixer.number}.in.hidden"].shape == BATCH.shape
    assert Path(mixer.source.rpartition(":")[0]).name == "test_modules.py"


def test_gradients_are_recorded_as_they_pass() -> None:
    recording = run(Model())
    mixer = recording.calls[3]

    assert bool(recording.tensors[f"{mixer.number}.grad_in.hidden"].any())
    assert bool(recording.tensors[f"{mixer.number}.grad_out."].any())
    assert {"in.hidden", "out."} <= set(mixer.differentiable)


def test_recording_changes_neither_results_nor_gradients() -> None:
    plain, watched = Model(), Model()
    plain(BATCH).square().sum().backward()
    run(watched)

    for (name, one), (_, other) in zip(plain.named_parameters(), watched.named_parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad), name


def test_what_runs_without_gradients_is_not_recorded() -> None:
    model = Model()
    with recorded(model) as recording, torch.no_grad():
        model(BATCH)

    assert recording.calls == []


def test_a_module_that_is_called_twice_is_recorded_twice() -> None:
    model = Model()
    model.second = model.first
    calls = [call for call in run(model).calls if call.module == "first.mixer"]

    assert [call.occurrence for call in calls] == [0, 1]


def test_a_recording_survives_its_file(tmp_path: Path) -> None:
    before = run(Model())
    before.save(tmp_path)
    after = Recording.load(tmp_path)

    assert after.calls == before.calls
    assert after.events == before.events
    assert all(torch.equal(after.tensors[name], tensor) for name, tensor in before.tensors.items())


def test_a_sound_model_is_not_blamed() -> None:
    free, replay = compare(Model())

    assert first_forward(replay, free) is None
    assert first_backward(free, 1e-5) is None
    assert all(step.error == 0.0 for step in growth(free))


@pytest.mark.parametrize(
    ("block", "module", "what"),
    [
        (WithScaledMixer, "first.mixer", "its input to first.mixer.down"),
        (WithoutNorm, "first", "its input to first.mixer"),
    ],
)
def test_the_first_module_that_adds_error_is_blamed(block: type[nn.Module], module: str, what: str) -> None:
    free, replay = compare(Model(block))

    blame = first_forward(replay, free)

    assert blame is not None
    assert (blame.call.module, blame.what) == (module, what)
    assert blame.added > 1e-3


def test_a_fault_in_a_late_module_is_not_blamed_on_an_early_one() -> None:
    candidate = Model()
    candidate.second = WithScaledMixer()
    fill(candidate)
    free, replay = compare(candidate)

    blame = first_forward(replay, free)

    assert blame is not None
    assert blame.call.module == "second.mixer"
    assert free.error(free.same(blame.call), "in") == 0.0


def test_what_a_module_inherits_is_not_what_it_adds() -> None:
    free, replay = compare(Model(WithScaledMixer))
    late = next(call for call in replay.candidate.calls if call.module == "second.norm")

    assert free.error(free.same(late), "out") > 1e-4
    assert replay.error(late, "out") == 0.0


def test_another_way_to_the_same_result_is_excused() -> None:
    free, replay = compare(Model(OtherWay))

    inside = next(call for call in replay.candidate.calls if call.module == "first.mixer")
    assert replay.error(inside, "in") > 1e-3
    assert first_forward(replay, free) is None


@pytest.mark.parametrize(
    ("block", "module", "what"),
    [
        (WithDetachedMixer, "second", "the gradient that it returns to second.norm"),
        (WithDetachingMixer, "second.mixer", "the gradient that it cuts off"),
    ],
)
def test_a_gradient_that_is_lost_is_blamed_on_who_loses_it(block: type[nn.Module], module: str, what: str) -> None:
    free, replay = compare(Model(block))

    assert first_forward(replay, free) is None
    blame = first_backward(free, 1e-5)
    assert blame is not None
    assert (blame.call.module, blame.what) == (module, what)


def test_a_wrong_gradient_of_weights_alone_is_blamed_on_their_module() -> None:
    free, _ = compare(Model())

    blame = owner(free, ["first.norm.weight", "second.mixer.up.weight"])

    assert blame is not None
    assert blame.call.module == "second.mixer.up"


def test_a_renamed_module_is_paired_by_its_weights() -> None:
    class Renamed(Block):
        def __init__(self) -> None:
            super().__init__()
            self.token_mixer = self.mixer
            del self.mixer

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = self.token_mixer(hidden=self.norm(hidden))
            return hidden + mixed

    reference, candidate = run(Model()), run(Model(Renamed))
    pairs = pair_calls(reference, candidate)

    assert reference.calls[pairs["first.token_mixer", 0]].module == "first.mixer"
    assert reference.calls[pairs["second.token_mixer.down", 0]].module == "second.mixer.down"


def test_a_fused_module_has_no_partner_and_its_work_counts_for_the_one_around_it() -> None:
    class Fused(Block):
        def __init__(self) -> None:
            super().__init__()
            self.everything = nn.Linear(8, 8)
            del self.mixer

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = self.everything(self.norm(hidden))
            return hidden + mixed

    free, replay = compare(Model(Fused))
    assert ("first.everything", 0) not in replay.pairs

    blame = first_forward(replay, free)
    assert blame is not None
    assert blame.call.module == "first"


class TestRelativeError:
    def test_padding_is_left_out(self) -> None:
        mask = torch.tensor([[True, True], [False, True]])
        reference, candidate = torch.ones(2, 2, 3), torch.ones(2, 2, 3)
        candidate[1, 0] = 9

        assert relative_error(reference, candidate, mask) == 0.0
        assert relative_error(reference.flatten(0, 1), candidate.flatten(0, 1), mask) == 0.0
        assert relative_error(reference, candidate, torch.ones(2, 2, dtype=torch.bool)) == 8.0

    def test_whole_numbers_differ_by_how_many_of_them_do(self) -> None:
        mask = torch.ones(1, 1, dtype=torch.bool)

        assert relative_error(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5]), mask) == 0.25

    def test_the_infinities_of_a_mask_are_equal_and_others_are_not(self) -> None:
        mask = torch.ones(1, 1, dtype=torch.bool)
        masked = torch.tensor([0.0, -torch.inf])

        assert relative_error(masked, masked.clone(), mask) == 0.0
        assert relative_error(masked, torch.tensor([0.0, 1.0]), mask) == torch.inf


@pytest.mark.parametrize(
    ("shape", "other", "expected"),
    [((2, 5, 8), (10, 8), True), ((2, 5, 8), (2, 5, 8), True), ((2, 5, 8), (2, 8, 5), False), ((4,), (2, 2), False)],
)
def test_tensors_fit_up_to_flattened_leading_axes(
    shape: tuple[int, ...], other: tuple[int, ...], expected: bool
) -> None:
    assert fits(shape, other) == expected
