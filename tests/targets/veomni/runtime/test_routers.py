"""Router replay and the monitor of experts' load, on a router that reads both."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("veomni")

import torch
from torch import nn

from omni_kit.targets.veomni.runtime.routers import router_faults


class HeronRouter(nn.Module):
    """Chooses two of four experts; counts its choice before or after a replay."""

    def __init__(self, early: bool) -> None:
        super().__init__()
        self.early = early

    def forward(self, scores: Any) -> Any:
        from veomni.utils.moe_monitor import record_router_indices
        from veomni.utils.moe_router_replay import get_active_replay, maybe_replay_indices

        values, indices = torch.topk(scores, 2, dim=-1)
        if self.early:
            record_router_indices(self, indices)
        if get_active_replay() is not None:
            indices = maybe_replay_indices(self, scores, indices)
            values = scores.gather(-1, indices)
        if not self.early:
            record_router_indices(self, indices)
        return values


class Heron(nn.Module):
    """A model of one router; its loss is the sum of the chosen scores."""

    def __init__(self, early: bool = False) -> None:
        super().__init__()
        self.config, self.router = SimpleNamespace(model_type="heron"), HeronRouter(early)

    def forward(self, scores: Any, use_cache: bool) -> Any:
        return SimpleNamespace(loss=self.router(scores).sum())


@pytest.mark.parametrize(
    ("announced", "early", "registered", "said"),
    [
        (True, False, "HeronRouter", []),
        (True, True, "HeronRouter", ["instead"]),
        (False, False, "HeronRouter", ["not announced"]),
        (True, False, "HeronRooter", ["HeronRouter reports its choice"]),
    ],
)
def test_replayed_choices_are_announced_and_counted(
    announced: bool, early: bool, registered: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from veomni.utils import moe_monitor, moe_router_replay

    supported = moe_router_replay.SUPPORTED_MOE_MODEL_TYPES | ({"heron"} if announced else set())
    monkeypatch.setattr(moe_router_replay, "SUPPORTED_MOE_MODEL_TYPES", supported)
    known = {*moe_monitor.EXTERNAL_RECORD_ROUTERS, registered}
    monkeypatch.setattr(moe_monitor, "EXTERNAL_RECORD_ROUTERS", known)
    found = [*router_faults(Heron(early), {"scores": torch.rand(3, 4)})]
    assert len(found) == len(said)
    assert all(word in one for word, one in zip(said, found, strict=True))
