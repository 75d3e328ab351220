"""Positions of an author's class in a model, as patterns of the names of its parameters."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.targets.diffusers.porting.held_modules import Held, held_by, last_name
from omni_kit.targets.diffusers.porting.naming import Names
from omni_kit.targets.diffusers.porting.parts import Parts

_DEEPEST = 12


@dataclass(frozen=True)
class Place:
    """Position of a class.

    Attributes:
        pattern: of the authors' path, with a group for every number or name in it.
        path: the path here, in terms of these groups.
    """

    pattern: str = ""
    path: str = ""

    @property
    def groups(self) -> int:
        """Number of groups in the pattern."""
        return re.compile(self.pattern).groups

    def below(self, attribute: str, name: str, inside: str = "") -> "Place":
        """Return a module that the class has.

        Args:
            attribute, name: what the authors call it, and what it is called here.
            inside: the pattern of what stands between the attribute and the module.
        """
        more = "".join(f".\\{self.groups + number}" for number in range(1, re.compile(inside).groups + 1))
        return Place(_joined(self.pattern, re.escape(attribute), r"\.") + inside, _joined(self.path, name, ".") + more)


def _joined(path: str, name: str, between: str) -> str:
    return f"{path}{between}{name}" if path else name


def places_of(parts: Parts, others: Mapping[str, str], names: Names) -> dict[str, list[Place]]:
    """Return the class, as it is called in the file -> the paths at which the model has it: none for one that others
    only inherit from.

    Args:
        others: what classes of torch's are called in the file where another stands in their place.
        names: what modules are called here.
    """
    held = held_by(parts, others)
    found: dict[str, list[Place]] = {parts.root.name: [Place()]}
    for place, name in _walked(parts.root.name, held, names, Place(), 0):
        found.setdefault(name, []).append(place)
    used = {name for part in parts.parts for name in _used(part.definition.node)}
    heirs = {last_name(base) for part in parts.parts for base in getattr(part.definition.node, "bases", [])}
    bases = {part.name: part.definition.name for part in parts.parts if part.definition.name in heirs - used}
    return {**{name: [] for name in bases}, **found}


def alternatives(parts: Parts) -> dict[str, set[str]]:
    """Return the class, as it is called in the file -> those that the authors make at an attribute in its place."""
    found: dict[str, set[str]] = {}
    for held in held_by(parts, {}).values():
        for classes in held.values():
            for name in classes:
                found.setdefault(name, set()).update({*classes} - {name})
    return found


def _walked(name: str, held: Mapping[str, Held], names: Names, place: Place, depth: int) -> Iterator[tuple[Place, str]]:
    for (attribute, inside), classes in held.get(name, {}).items() if depth < _DEEPEST else ():
        inner = place.below(attribute, names.get(name, {}).get(attribute, attribute), inside)
        for cls in classes:
            yield inner, cls
            yield from _walked(cls, held, names, inner, depth + 1)


def _used(node: ast.AST) -> Iterator[str]:
    """Yield the names that code reads, other than those of base classes and of arguments of `super`."""
    if isinstance(node, ast.Name):
        yield node.id
    skipped = node.bases if isinstance(node, ast.ClassDef) else []
    skipped = node.args if isinstance(node, ast.Call) and last_name(node.func) == "super" else skipped
    for one in ast.iter_child_nodes(node):
        if one not in skipped:
            yield from _used(one)
