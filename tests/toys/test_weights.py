"""Deterministic weights: every element differs, activations stay in range, and nothing depends on chance."""

import pytest
import torch
from torch import nn

from omni_kit.toys.batches.language import text_inputs
from omni_kit.toys.weights import fill, shuffled_ramp, unfreeze


class Block(nn.Module):
    def __init__(self, centred: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 24)
        self.linear = nn.Linear(24, 36)
        self.conv = nn.Conv1d(36, 36, 4, groups=36)
        self.norm = nn.RMSNorm(36)
        self.experts = nn.Parameter(torch.empty(5, 14, 24))
        self.register_buffer("correction", torch.zeros(5))
        self.register_buffer("inverse_frequency", torch.tensor([1.0, 0.5]), persistent=False)
        self.register_buffer("count", torch.tensor([3]))
        if centred:
            nn.init.zeros_(self.norm.weight)


@pytest.fixture
def block() -> Block:
    made = Block(centred=False)
    fill(made)
    return made


def test_every_element_of_every_parameter_differs(block: Block) -> None:
    for name, parameter in block.named_parameters():
        assert len(set(parameter.flatten().tolist())) == parameter.numel(), name


def test_no_two_parameters_of_one_shape_are_alike() -> None:
    assert not torch.equal(shuffled_ramp("layers.0.weight", (4, 4)), shuffled_ramp("layers.1.weight", (4, 4)))


def test_the_same_name_gives_the_same_values(block: Block) -> None:
    again = Block(centred=False)
    fill(again)

    for name, tensor in block.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_activations_keep_their_size_through_a_linear_layer(block: Block) -> None:
    hidden = torch.randn(200, 24, generator=torch.Generator().manual_seed(0))

    assert 0.8 < float(nn.functional.linear(hidden, block.linear.weight).detach().std()) < 1.25
    assert 0.8 < float(nn.functional.linear(hidden, block.experts[0]).detach().std()) < 1.25


def test_norms_stay_around_what_their_class_starts_from() -> None:
    plain, centred = Block(centred=False), Block(centred=True)
    fill(plain)
    fill(centred)

    assert float(plain.norm.weight.detach().mean()) == pytest.approx(1.0, abs=0.05)
    assert float(centred.norm.weight.detach().mean()) == pytest.approx(0.0, abs=0.05)
    assert float(plain.norm.weight.detach().min()) > 0.5


def test_stored_buffers_are_filled_and_computed_ones_are_left_alone(block: Block) -> None:
    assert len(set(block.get_buffer("correction").tolist())) == 5
    assert block.get_buffer("inverse_frequency").tolist() == [1.0, 0.5]
    assert block.get_buffer("count").tolist() == [3]


def test_more_elements_than_float32_can_tell_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="more than float32 has distinct values for"):
        shuffled_ramp("huge", (2**23 + 1,))


def test_the_second_row_is_padded_on_the_left_and_padding_is_never_a_label() -> None:
    batch = text_inputs(list(range(50)))

    assert batch["attention_mask"][0].all()
    assert batch["attention_mask"][1, :3].tolist() == [0, 0, 0]
    assert batch["attention_mask"][1, 3:].all()
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()


def test_labels_are_the_tokens_with_some_left_out() -> None:
    batch = text_inputs(list(range(50)))
    kept = batch["labels"] != -100

    assert torch.equal(batch["labels"][kept], batch["input_ids"][kept])
    assert 0 < int((~kept[0]).sum()) < batch["labels"].shape[1] // 2


def test_tokens_with_a_meaning_are_not_drawn() -> None:
    batch = text_inputs(list(range(3, 29)))

    assert not set(batch["input_ids"].flatten().tolist()) & {0, 1, 2, 29}
    assert int(batch["input_ids"].max()) < 30


class Router(nn.Module):
    table: torch.Tensor
    order: torch.Tensor

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(7, 24))
        self.register_buffer("table", torch.zeros(50, 3, dtype=torch.long), persistent=persistent)
        self.register_buffer("order", torch.arange(9)[None])


def test_a_table_of_experts_names_each_once_and_all_in_the_end() -> None:
    router = Router(persistent=True)
    fill(router)

    assert all(len({*row}) == 3 for row in router.table.tolist())
    assert set(router.table.flatten().tolist()) == set(range(7))
    assert router.order.tolist() == [list(range(9))]


def test_a_table_that_no_checkpoint_holds_stays() -> None:
    router = Router(persistent=False)
    fill(router)

    assert not router.table.any()


def test_layers_are_unfrozen_and_tables_are_not() -> None:
    class Own(nn.Sequential):
        pass

    model = Own(nn.Linear(2, 2), nn.LayerNorm(2))
    model.register_parameter("table", nn.Parameter(torch.ones(2), requires_grad=False))
    model.requires_grad_(False)
    assert [name for name, one in unfreeze(model).named_parameters() if not one.requires_grad] == ["table"]


class Inflated(nn.Conv2d):
    """A convolution under another name."""


@pytest.mark.parametrize("kind", [nn.Conv2d, Inflated])
def test_activations_keep_their_size_through_a_convolution(kind: type[nn.Conv2d]) -> None:
    layer = kind(64, 64, 3, bias=False)
    fill(layer)
    assert 0.5 < float(layer(torch.randn(1, 64, 16, 16)).std()) < 1.5
