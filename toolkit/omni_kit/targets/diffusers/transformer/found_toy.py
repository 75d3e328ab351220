"""Confirms a plan in processes of their own: the authors' class runs with the toy, or a variant that it takes, and the
written file can be imported.
"""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omni_kit.isolation.worker import StepError
from omni_kit.targets.diffusers.porting.checking import with_todo
from omni_kit.targets.diffusers.porting.port import Port, todo_in
from omni_kit.targets.diffusers.trials import IMPORTING, TOYS, tried
from omni_kit.upstream.repositories.reference import BETWEEN, Reference

NO_TORCH = "torch is not installed"
"""The reason why nothing was run."""
_TIMEOUT = 300.0  # of the clock: a search ends by itself, on a busy machine too
_LISTED = re.compile(r"(\w+)\[\d+\]")


@dataclass(frozen=True)
class FoundToy:
    """The values and inputs that the authors' class was found to take.

    Attributes:
        values: the arguments of its constructor; empty if none were found.
        shapes: authors' name of forward's argument -> its shape in the first sample.
        answer: the shape of what it returns for that sample.
        needed: authors' names of arguments that forward has a default for, and does not run without.
        inputs: authors' name of forward's argument -> what it is in the first sample, as data.
        answers: how many tensors it returns; the shape is that of all of them one after the other, if they are several.
            0 for a list of them.
        why: why none were found; empty if they were.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    answer: Sequence[int] = ()
    needed: Sequence[str] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    answers: int = 1
    why: str = ""


def found_toy(reference: Reference, toy: Mapping[str, Any]) -> FoundToy:
    """Return the toy that `parity` would compare on: these values, or the first variant that the class takes."""
    if importlib.util.find_spec("torch") is None:
        return FoundToy(why=NO_TORCH)
    given = f"{reference.cls.source.path}{BETWEEN}{reference.class_name}"
    request = {"toy": dict(toy), "reference": given}
    try:
        said = tried(f"{TOYS}:find", request, _TIMEOUT)
    except (StepError, TypeError, ValueError) as error:  # values that JSON does not have, too
        return FoundToy(why=str(error))
    return FoundToy(**{**said, "shapes": _joined(said["shapes"])})


def _joined(shapes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return shapes with those of the tensors in a list, which are alike, as that of one tensor."""
    listed: dict[str, list[Sequence[int]]] = {}
    for name, one in shapes.items():
        if (found := _LISTED.fullmatch(name)) is not None:
            listed.setdefault(found[1], []).append(one)
    return {**shapes, **{name: [len(every), *every[0]] for name, every in listed.items()
                         if all(one == every[0] for one in every)}}  # fmt: skip


def imported(port: Port) -> Port:
    """Return the port, with a to-do at the line where its file cannot be imported."""
    if importlib.util.find_spec("torch") is None:
        return port
    try:
        wrong = tried(f"{IMPORTING}:run", {"text": port.text}, _TIMEOUT, library=True)
    except StepError as error:
        wrong = {"line": 1, "why": str(error)}
    if not wrong:
        return port
    text = with_todo(port.text, wrong["line"], f"this file cannot be imported: {wrong['why']}")
    return replace(port, text=text, todo=tuple(todo_in(text)))
