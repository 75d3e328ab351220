"""Faults in merging media and in sharing them between processes: each changes what it names, and is gone afterwards."""

from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.parity.fault_runs import PlacedFault
from omni_kit.parity.faults.calling import CALL_FAULTS, mistaken
from omni_kit.parity.faults.fault_injection import Place, find_places, planted
from omni_kit.parity.faults.media import MEDIA_FAULTS
from omni_kit.parity.faults.merging import MERGING
from omni_kit.parity.faults.sharing import SHARING_FAULTS, fault_between, kinds_between


class Text(nn.Module):
    def forward(self, hidden: torch.Tensor, deepstack_embeds: list[torch.Tensor]) -> torch.Tensor:
        for layer in range(2):
            hidden = hidden * 2
            if layer < len(deepstack_embeds):
                hidden = hidden + deepstack_embeds[layer]
        return hidden


class Media:
    def needs_dummy(self) -> bool:
        return True


class Model(nn.Module):
    """Merges two features into four tokens, and gives both layers of its text those of an earlier layer."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial_merge_size = 2
        self.text = Text()

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        media = Media()
        dummies = 1.0 if media.needs_dummy() else 0.0
        mask = (input_ids == 9)[:, None]
        hidden = torch.zeros(len(input_ids), 1).masked_scatter(mask, torch.tensor([[3.0], [5.0]]))
        rows = torch.full((1,), float(self.spatial_merge_size))
        return torch.cat([self.text(hidden, [torch.ones(1)]).flatten(), rows, position_ids, torch.tensor([dummies])])


IDS, POSITIONS = torch.tensor([1, 9, 9, 1]), torch.arange(8.0)


def answer(model: Model) -> list[float]:
    found: torch.Tensor = model(input_ids=IDS, position_ids=POSITIONS)
    return found.tolist()


def place_of(model: Model, name: str) -> Place:
    (place,) = (one for one in find_places(model, MERGING, lambda: answer(model)) if one.fault.name == name)
    return place


RIGHT = [2.0, 14.0, 22.0, 2.0, 2.0, *range(8), 1.0]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("pictures-shifted", [2.0, 22.0, 14.0, 2.0, 2.0]),
        ("later-features-lost", [2.0, 14.0, 2.0, 2.0, 2.0]),
        ("deepstack-one-layer-later", [1.0, 13.0, 21.0, 1.0, 2.0]),
        ("merge-size-wrong", [2.0, 14.0, 22.0, 2.0, 1.0]),
    ],
)
def test_a_fault_of_merging_changes_what_it_names(name: str, wrong: list[float]) -> None:
    model = Model()

    with planted(model, place_of(model, name)) as outcome:
        found = answer(model)

    assert found[:5] == wrong
    assert outcome.changed
    assert answer(model) == RIGHT


@pytest.mark.parametrize(
    ("kind", "place", "wrong"),
    [
        ("positions-made-after-cutting", slice(5, 13), [0.0, 1, 2, 3, 0, 1, 2, 3]),
        ("dummy-left-out", slice(13, 14), [0.0]),
    ],
)
def test_a_fault_of_sharing_changes_what_it_names(kind: str, place: slice, wrong: list[float]) -> None:
    model, call = Model(), nn.Module.__call__

    with fault_between(kind) as outcome:
        found = answer(model)

    assert found[place] == wrong
    assert outcome.changed
    assert nn.Module.__call__ is call
    assert answer(model) == RIGHT


@pytest.mark.parametrize("kind", SHARING_FAULTS)
def test_a_model_of_text_alone_has_no_place_for_it(kind: str) -> None:
    with fault_between(kind) as outcome:
        Text()(torch.ones(2, 1), [])

    assert not outcome.changed


@pytest.mark.parametrize("axis", [0, 1])
def test_films_without_time_keep_their_rows_and_columns(axis: int) -> None:
    _, change = MEDIA_FAULTS["videos have no time axis"]
    positions = torch.tensor([[0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3], [0, 1, 1, 1, 1, 3]]).unsqueeze(1 - axis)
    called: dict[str, Any] = {"position_ids": positions, "video_mask": torch.tensor([[0, 1, 1, 1, 1, 0]]).bool()}

    change(None, called)

    found = called["position_ids"].squeeze(1 - axis).tolist()
    assert found == [[0, 1, 1, 1, 1, 3], [0, 1, 2, 1, 2, 3], [0, 1, 1, 1, 1, 3]]
    assert called["position_ids"] is not positions


def test_pictures_without_a_film_keep_their_positions() -> None:
    _, change = MEDIA_FAULTS["videos have no time axis"]
    called: dict[str, Any] = {"position_ids": torch.arange(6)[None]}

    change(None, called)

    assert called["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_a_fault_of_sharing_is_planted_where_it_can_show() -> None:
    assert {kind for kind in SHARING_FAULTS if kind in kinds_between("sp")} == {"positions-made-after-cutting"}
    assert {kind for kind in SHARING_FAULTS if kind in kinds_between("fsdp")} == {"dummy-left-out"}
    assert not {*SHARING_FAULTS} & {*kinds_between("ep")}


class Called(nn.Module):
    """Answers whatever it is called with."""

    def forward(self, **called: Any) -> dict[str, Any]:
        return called


@pytest.mark.parametrize(
    ("fault", "called", "changed"),
    [
        ("output_router_logits is dropped", {"output_router_logits": True}, ["output_router_logits"]),
        ("output_router_logits is dropped", {"use_cache": True}, []),
        ("images and frames of one pack see each other", {"multimodal_metadata": {"placeholders": {"image": [4]}}}, []),
        (
            "images and frames of one pack see each other",
            {"multimodal_metadata": {"cu_seqlens": torch.tensor([0, 4, 8])}},
            ["multimodal_metadata"],
        ),
        (  # each frame is a run of its own, and has one time anyway
            "videos have no time axis",
            {
                "position_ids": torch.tensor([[[0, 1, 1, 2, 5]], [[0, 1, 1, 2, 5]], [[0, 1, 2, 2, 5]]]),
                "video_mask": torch.tensor([[False, True, True, False, True]]),
            },
            [],
        ),
        (
            "videos have no time axis",
            {"position_ids": torch.tensor([[[0, 1, 2]]] * 3), "video_mask": torch.tensor([[False, True, True]])},
            ["position_ids"],
        ),
    ],
)
def test_a_mistake_with_nothing_to_do_wrong_is_told_apart(
    fault: str, called: dict[str, Any], changed: list[str]
) -> None:
    with mistaken(model := Called(), CALL_FAULTS[fault]) as found:
        model(**called)
    assert found == changed


def test_an_error_is_located_where_its_line_is_in_the_method_with_the_fault() -> None:
    fault = PlacedFault(number=0, **place_of(Model(), "merge-size-wrong").described())
    first, here = Model.forward.__code__.co_firstlineno, __file__.rpartition("/")[2]

    assert fault.raises(f"RuntimeError: sizes differ (/a/{here}:{first + 6})")
    assert not fault.raises(f"RuntimeError: sizes differ (/a/{here}:{first + 60})")
    assert not fault.raises(f"RuntimeError: sizes differ (/a/other.py:{first + 6})")
    assert not fault.raises("the process ended")
