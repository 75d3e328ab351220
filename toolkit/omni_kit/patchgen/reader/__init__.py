"""Reads what a config says without running it: its syntax tree is gone through, and only the DSL's own calls are made.

Imported things are stand-ins. What they are worth is not known, which matters only where the config's outcome depends
on it. A statement whose effect cannot be told is refused, never guessed.
"""

from omni_kit.patchgen.reader.session import Reader, settled
from omni_kit.patchgen.reader.values import Unreadable

__all__ = ["Reader", "Unreadable", "settled"]
