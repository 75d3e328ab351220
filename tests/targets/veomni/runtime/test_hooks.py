"""Hooks of a model: what is asked of its hook for loading, which no toy of a text model shows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from omni_kit.targets.veomni.runtime.hooks import INDEX, _loading

HUB = ("thinker.weight", "thinker.bias", "talker.weight", "code2wav.conv.weight")


class Speaker(nn.Module):
    """A model without the parts that speak, which drops their keys by prefix."""

    def __init__(self, dropped: tuple[str, ...]) -> None:
        super().__init__()
        self.thinker = nn.Linear(2, 2)
        self.dropped = dropped
        if dropped:
            self.register_load_state_dict_pre_hook(self._drop)  # type: ignore[no-untyped-call]

    @staticmethod
    def _drop(module: nn.Module, state: dict[str, Any], prefix: str, *rest: object) -> None:
        assert isinstance(module, Speaker)
        for key in [key for key in state if key.startswith(module.dropped)]:
            del state[key]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """The index of a whole checkpoint."""
    files: Mapping[str, str] = dict.fromkeys(HUB, "model-00001-of-00001.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    return tmp_path


def test_a_part_that_is_kept_ends_a_strict_load(hub: Path) -> None:
    (said,) = list(_loading(Speaker(("talker.",)), hub) or [])
    assert "keeps code2wav.conv.weight" in said


@pytest.mark.parametrize("dropped", [("talker.", "code2wav."), ("other.",)])
def test_all_or_nothing_is_dropped(dropped: tuple[str, ...], hub: Path) -> None:
    assert list(_loading(Speaker(dropped), hub) or []) == []


def test_nothing_is_asked_without_a_hook_or_an_index(hub: Path, tmp_path: Path) -> None:
    assert _loading(Speaker(()), hub) is None
    assert _loading(Speaker(("talker.",)), tmp_path / "elsewhere") is None
