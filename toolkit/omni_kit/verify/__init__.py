"""One verdict on an integration: every stage passed, failed, not tested or not applicable, on a card.

from omni_kit.verify import verify
card = verify(Path("plugins/olmoe"))
card.passed, card.complete        # nothing failed; nothing that could be tested was left out
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omni_kit.verify.card import Card, Stage
    from omni_kit.verify.rerun import Again, verify_again
    from omni_kit.verify.run import verify

__all__ = ["Again", "Card", "Stage", "verify", "verify_again"]

_HOMES = {"Again": "rerun", "verify_again": "rerun", "Card": "card", "Stage": "card", "verify": "run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
