"""Runs a card again, and says what differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.verify.card import Card, load_card
from omni_kit.verify.run import verify

_MACHINE = "machine"  # another machine is no other verdict


@dataclass(frozen=True)
class Again:
    """A card, run again.

    Attributes:
        card: what came of it this time.
        differences: one line each: stages whose status is another, pins that are.
    """

    card: Card
    differences: tuple[str, ...]


def verify_again(file: Path, say: Callable[[str], None] = lambda line: None) -> Again:
    """Runs what a card says was run, afresh.

    Raises:
        BadInput: the file is no card, or was changed; or as `verify`.
    """
    old = load_card(file)
    options = old.options
    card = verify(
        Path(old.path),
        weights=str(options.get("weights") or "") or None,
        quick=bool(options.get("quick")),
        fresh=True,
        device=str(options.get("device") or "cpu"),
        say=say,
    )
    return Again(card, tuple(_differences(old, card)))


def _differences(old: Card, new: Card) -> list[str]:
    before = {stage.stage: stage.status for stage in old.stages}
    now = {stage.stage: stage.status for stage in new.stages}
    found = [
        f"{name}: {now.get(name, 'no such stage')}, the card says {before.get(name, 'nothing')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]
    pinned = {key: (old.pins.get(key), new.pins.get(key)) for key in sorted({*old.pins, *new.pins}) if key != _MACHINE}
    return found + [line for key, pair in pinned.items() for line in _pin(key, *pair)]


def _pin(key: str, old: Any, new: Any) -> list[str]:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return [f"{key} differs"] if old != new else []
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [f"{key}: {name} differs" for name in names]
