"""Call graph of a module: which of its functions each call leads to, as far as the source shows.

It follows plain names, `self.method(...)`, and modules that an `__init__` puts into attributes (`self.mlp = MLP(...)`,
`self.layers = nn.ModuleList([Layer(...) ...])`), whose call is their `forward`.
"""

import ast
from dataclasses import dataclass
from functools import lru_cache

from omni_kit.patchgen.source import SourceModule


@dataclass(frozen=True)
class Call:
    """A call of `target` ("f", "C.m") that stands in the definition `caller`."""

    target: str
    caller: str
    node: ast.Call


def calls_in(module: SourceModule) -> list[Call]:
    """All calls whose target is known, of functions and methods of the module itself."""
    reader = _Reader(module)
    found = []
    for caller, node in module.nodes[ast.Call]:
        target = reader.target(node.func, caller)
        if target is not None:
            found.append(Call(target, caller, node))
    return found


class _Reader:
    """Answers what a called expression is, from the attributes and loops of one module."""

    def __init__(self, module: SourceModule) -> None:
        self.module = module
        self.attributes = _attributes(module)
        self.loops = _loops(module)
        self.members = lru_cache(maxsize=None)(self._members)
        self.method = lru_cache(maxsize=None)(self._method)

    def target(self, func: ast.expr, caller: str) -> str | None:
        owner = self._owner(caller)
        match func:
            case ast.Name(id=name):
                looped = self.members(owner).get(self.loops.get((caller, name), ""))
                if looped:
                    return self.method(looped, "forward")
                definition = self.module.get(name)
                return name if definition is not None and not definition.is_class else None
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if owner:
                made = self.members(owner).get(name)
                return self.method(made, "forward") if made else self.method(owner, name)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=member), attr=name) if owner:
                made = self.members(owner).get(member)
                return self.method(made, name) if made else None
        return None

    def _owner(self, caller: str) -> str:
        definition = self.module.get(caller)
        return definition.owner.path if definition and definition.owner else ""

    def _method(self, owner: str, name: str, depth: int = 0) -> str | None:
        """Return the path of the method that instances of `owner` have, looked up through bases in the same module."""
        if self.module.get(f"{owner}.{name}") is not None:
            return f"{owner}.{name}"
        found = (self._method(base, name, depth + 1) for base in self._bases(owner, depth))
        return next(filter(None, found), None)

    def _members(self, owner: str, depth: int = 0) -> dict[str, str]:
        """Attribute name to the class of what it holds, inherited ones included."""
        known: dict[str, str] = {}
        for base in reversed(self._bases(owner, depth)):
            known.update(self._members(base, depth + 1))
        return {**known, **self.attributes.get(owner, {})}

    def _bases(self, owner: str, depth: int) -> list[str]:
        definition = self.module.get(owner) if owner and depth < 8 else None
        if definition is None or not isinstance(definition.node, ast.ClassDef):
            return []
        return [base.id for base in definition.node.bases if isinstance(base, ast.Name) and base.id != owner]


def _attributes(module: SourceModule) -> dict[str, dict[str, str]]:
    """By class, the attributes that are only ever assigned instances of one class of the module."""
    found: dict[str, dict[str, set[str]]] = {}
    for place, node in module.nodes[ast.Assign]:
        for target in node.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                classes = found.setdefault(place.rpartition(".")[0], {}).setdefault(target.attr, set())
                classes.add(_made(node.value, module) or "")
    return {
        owner: {name: next(iter(classes)) for name, classes in made.items() if len(classes) == 1 and "" not in classes}
        for owner, made in found.items()
    }


def _made(value: ast.expr, module: SourceModule) -> str | None:
    match value:
        case ast.Call(func=ast.Name(id=name)):
            definition = module.get(name)
            return name if definition is not None and definition.is_class else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="_from_config")):
            return name if module.get(name) is not None else None
        case ast.Call(func=ast.Attribute(attr="ModuleList"), args=[ast.ListComp(elt=element)]):
            return _made(element, module)
    return None


def _loops(module: SourceModule) -> dict[tuple[str, str], str]:
    """(definition, loop variable) to the attribute of self that the loop runs over."""
    found = {}
    for place, node in module.nodes[ast.For]:
        target, iterated = node.target, node.iter
        match iterated:
            case ast.Call(func=ast.Name(id="enumerate"), args=[first, *_]):
                target = target.elts[-1] if isinstance(target, ast.Tuple) else target
                iterated = first
        if isinstance(iterated, ast.Subscript):
            iterated = iterated.value
        match target, iterated:
            case ast.Name(id=name), ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                found[place, name] = attribute
    return found
