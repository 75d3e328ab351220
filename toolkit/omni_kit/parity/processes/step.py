"""Requests to a process: typed steps, which travel as JSON and run where they arrive."""

import importlib
import json
import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from omni_kit.parity.processes.side import Side

R = TypeVar("R")
_KNOWN: dict[str, type["Step[Any]"]] = {}


@dataclass(frozen=True)
class Step(ABC, Generic[R]):
    """A question to one side. Its fields are its arguments: paths, and what JSON knows; so is the answer."""

    def __init_subclass__(cls) -> None:
        _KNOWN[cls.title()] = cls

    @classmethod
    def title(cls) -> str:
        """Return its name in messages, as words."""
        return re.sub(r"(?<!^)(?=[A-Z])", " ", cls.__name__).lower()

    @abstractmethod
    def take(self, side: "Side") -> R:
        """Take the step, in the process that was asked."""

    def as_line(self) -> str:
        """Return the request, one line of JSON."""
        return json.dumps({"step": self.title(), "of": type(self).__module__, "args": asdict(self)}, default=str)


def known_steps() -> dict[str, type[Step[Any]]]:
    """Title -> step, of those that have been imported."""
    return dict(_KNOWN)


def step_of(line: str) -> Step[Any]:
    """Return the step that a line of `as_line` means; the room that it is of is imported where it was not yet.

    Raises:
        KeyError: there is none of that title.
        TypeError: the arguments are not its own.
    """
    request = json.loads(line)
    if request["step"] not in _KNOWN and request.get("of", "").startswith("omni_kit."):
        importlib.import_module(request["of"])
    kind = _KNOWN[request["step"]]
    paths = {field.name for field in fields(kind) if field.type is Path}
    return kind(**{name: Path(value) if name in paths else value for name, value in request["args"].items()})
