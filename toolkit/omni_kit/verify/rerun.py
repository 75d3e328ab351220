"""Runs a card again, and says what differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.verify.card import Card, load_card
from omni_kit.verify.run import verify
from omni_kit.verify.signature import fingerprint_of

_MACHINE = "machine"  # another machine is no other verdict


@dataclass(frozen=True)
class Again:
    """A card, run again.

    Attributes:
        card: what came of it this time.
        differences: one line each: stages whose status is another, pins that are.
        signer: the fingerprint of the key that signed the card's file; empty for a card without a signature.
    """

    card: Card
    differences: tuple[str, ...]
    signer: str


def verify_again(
    file: Path,
    say: Callable[[str], None] = lambda line: None,
    signed_by: Path | None = None,
    *,
    allow_path: bool = False,
) -> Again:
    """Run again what a card records, reusing no earlier stage.

    Args:
        say: receives the directory whose code runs, then each stage as it ends.
        signed_by: a public key file; a card that this key did not sign is refused.
        allow_path: also run code outside the working directory.

    Raises:
        BadInput: the file is not a card, was changed, or is not signed by that key; it names a directory outside the
            working directory; or as `verify`.
        MissingRequirement: the card is signed and `cryptography` is not installed; or as `verify`.
    """
    wanted = fingerprint_of(signed_by) if signed_by is not None else ""
    loaded = load_card(file)
    if wanted and loaded.signer != wanted:
        found = f"the key {loaded.signer} signed it" if loaded.signer else "it has no signature"
        raise BadInput(f"{signed_by} did not sign {file}: {found}", "ask the signer for the card, or verify PATH")
    old = loaded.card
    options = old.options
    path = Path(old.path)
    say(f"running the code in {_place(path, file, allow_path)}")
    if weights := options.get("weights"):
        say(f"reading the headers of {weights}")
    card = verify(
        path,
        weights=weights or None,
        quick=bool(options.get("quick")),
        fresh=True,
        device=options.get("device") or "cpu",
        min_branches=options.get("min_branches"),
        say=say,
    )
    return Again(card, tuple(_differences(old, card)), loaded.signer)


def _place(path: Path, file: Path, allowed: bool) -> Path:
    """Return where the card's path leads. The card may be a stranger's, and verifying it runs the code there."""
    try:
        place = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{file} names a path that does not exist: {error}", "verify PATH") from error
    if not (allowed or place.is_relative_to(Path.cwd().resolve())):
        raise BadInput(
            f"{file} names {place}, outside the working directory", "read the code there, then pass --allow-path"
        )
    return place


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
