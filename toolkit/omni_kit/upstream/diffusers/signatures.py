"""Signatures of diffusers' constructors and forwards."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal

# What forwards of denoisers call the step that they are at.
STEP_NAMES = ("timestep", "timesteps", "t")
IS_POSITIONS = re.compile("rope|rotary")
"""In the names of arguments for tables of positions, which all rows of a batch share."""
# Types of pydantic that check a value of Python's own.
_CHECKED = re.compile(r"\b(?:pydantic\.)?(?:Strict|Positive|NonNegative|Finite)(Int|Float|Bool|Str)\b")


@dataclass(frozen=True)
class Argument:
    """One argument of a method.

    Attributes:
        default: the literal that it is by default; UNKNOWN if it has none, or one that is no literal.
        required: it has no default.
        annotation: as written, with Python's own types for pydantic's of them; empty without one.
        where: file:line.
    """

    name: str
    default: Any
    required: bool
    annotation: str
    where: str

    @property
    def placement(self) -> str:
        """Return "device" or "dtype" for an argument that sets where, or in which dtype, tensors are made.

        Empty for other arguments, and for one whose default is a literal.
        """
        named = self.annotation in ("", "str") and self.name == "device"
        said = self.name if named else (self.annotation or self.name).removeprefix("torch.")
        return said if self.default is UNKNOWN and said in ("device", "dtype") else ""

    @property
    def unset_placement(self) -> bool:
        """Return whether it is a device or a dtype that torch chooses by default."""
        return self.name in ("device", "dtype") and self.default is None

    @property
    def names(self) -> list[str]:
        """The names in the annotation: A and B of `A | B | None`."""
        nodes = ast.walk(ast.parse(self.annotation, mode="eval")) if self.annotation else ()
        return [node.id for node in nodes if isinstance(node, ast.Name)]


def arguments(cls: ClassRef, method: str = "__init__") -> dict[str, Argument]:
    """Return the named arguments of a method without `self`, in order; none if neither the class nor a base has it."""
    found = cls.method(method)
    if found is None:
        return {}
    home, node = found
    return {one.name: one for one in _arguments(home, node)}


def _arguments(home: ClassRef, node: ast.FunctionDef) -> Iterator[Argument]:
    positional = [*node.args.posonlyargs, *node.args.args]
    without = len(positional) - len(node.args.defaults)
    defaults = [*[None] * without, *node.args.defaults, *node.args.kw_defaults]
    bound = not any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
    for argument, default in list(zip([*positional, *node.args.kwonlyargs], defaults, strict=True))[bound:]:
        written = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        annotation = _CHECKED.sub(lambda one: one[1].lower(), written)
        where = home.source.where(argument)
        yield Argument(argument.arg, literal(default), default is None, annotation, where)
