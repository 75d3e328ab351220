"""How a path leaves a block."""

from typing import Any

from omni_checkers.symbolic.program import Module


class Return(Exception):
    """The function returns a value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Raised(Exception):
    """The code raises, or would raise, on this path."""

    def __init__(self, text: str, line: int, module: Module | None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.module = module


class Break(Exception):
    """The innermost loop ends."""


class Continue(Exception):
    """The innermost loop goes on with its next round."""
