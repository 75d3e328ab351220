"""Layers of a module that nobody calls: a block of two streams asks each stream's module for its layers by name."""

from collections.abc import Iterator, Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.layers import Layers, with_layers
from omni_kit.targets.diffusers.porting.parts import Part
from omni_kit.targets.diffusers.porting.per_head_projections import HeadsApart
from omni_kit.targets.diffusers.porting.projections import Projections
from omni_kit.targets.diffusers.porting.syntax import body_of, chain, own_attribute, with_body
from omni_kit.targets.diffusers.porting.visiting import visited, walk


def holds_layers_alone(part: Part, parts: Sequence[Part]) -> bool:
    """Return whether nobody calls a module: whoever makes it asks for its layers by name, and its forward is dead
    code.
    """
    held = 0
    for other in parts:
        if other is part:
            continue
        nodes = [*walk(other.node)]
        made = [name for one in nodes if isinstance(one, cst.Assign) and (name := _makes(one, part.name))]
        mentioned = sum(isinstance(one, cst.Name) and one.value == part.name for one in nodes)
        if mentioned != len(made):
            return False
        for name in made:
            every = sum(own_attribute(one) == name for one in nodes)
            asked = sum(attribute.attr.value != "forward" for attribute in _asked(nodes, {f"self.{name}"}))
            if every != asked + made.count(name):
                return False
        held += len(made)
    return held > 0


def without_forward(node: cst.ClassDef) -> cst.ClassDef:
    """Return the class without its forward."""
    kept = [one for one in body_of(node) if not (isinstance(one, cst.FunctionDef) and one.name.value == "forward")]
    return with_body(node, kept)


def with_held_layers(part: Part, parts: Sequence[Part], found: Projections) -> Projections:
    """Give the layers of such a module diffusers' names, also where they are asked for.

    Returns:
        What they are called now; empty if anything but a call asks for one, or if the order of a fused layer's
        rows depends on what its own forward knows.
    """
    if not (found.order.in_turn or found.order.innermost):
        return Projections()
    makers: list[tuple[Part, set[str]]] = []
    for other in (one for one in parts if one is not part):
        nodes = [*walk(other.node)]
        held = {f"self.{name}" for one in nodes if isinstance(one, cst.Assign) and (name := _makes(one, part.name))}
        called = {id(one.func) for one in nodes if isinstance(one, cst.Call)}
        if any(one.attr.value in found.layers and id(one) not in called for one in _asked(nodes, held)):
            return Projections()
        makers += [(other, held)] if held else []
    assert part.cls is not None
    part.node = with_layers(part.cls, found)
    for other, held in makers:
        other.node = visited(other.node, Layers(found, held), HeadsApart())
    return found


def _asked(nodes: Sequence[cst.CSTNode], holders: set[str]) -> Iterator[cst.Attribute]:
    """Yield what is asked of modules."""
    yield from (one for one in nodes if isinstance(one, cst.Attribute) and chain(one.value) in holders)


def _makes(node: cst.Assign, name: str) -> str:
    """Return the attribute that an instance of a class becomes."""
    made = isinstance(node.value, cst.Call) and chain(node.value.func) == name
    return own_attribute(node.targets[0].target) if made and len(node.targets) == 1 else ""
