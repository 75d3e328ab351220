"""Classes of the authors whose objects hold the model: their constructors make it, or are given it in their code."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, definitions, meanings
from omni_kit.upstream.repositories.processes.class_members import bases, constructor_arguments
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import MADE, methods_of, of_self
from omni_kit.upstream.repositories.sources import sources_of

_DEEPEST = 3  # functions and tables


@dataclass(frozen=True)
class Holder:
    """A class whose objects hold the model.

    Attributes:
        made: the attributes that its constructor makes as the model.
        arguments: those of its constructor that the authors pass the model.
        given: the attributes that keep these.
    """

    made: frozenset[str]
    arguments: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    @property
    def attributes(self) -> frozenset[str]:
        """All attributes that are the model."""
        return self.made | self.given


@cache
def holders(reference: Reference) -> Mapping[ast.ClassDef, Holder]:
    """Return the classes whose objects surely hold the class of a reference."""
    model = Defined(reference.cls.source, reference.class_name, reference.cls.node)
    given: dict[ast.ClassDef, set[str]] = {}
    places: dict[ast.ClassDef, SourceFile] = {}
    for meant, name in receivers(reference):
        if isinstance(meant.node, ast.ClassDef):
            given.setdefault(meant.node, set()).add(name)
            places[meant.node] = meant.source
    named = makers(reference)
    for source in sources_of(reference):
        if any(name in source.text for name in named):
            places |= {node: source for node in source.tree.body if isinstance(node, ast.ClassDef)}
    found = {}
    for cls, source in places.items():
        sets = [*_sets(source, cls)]
        names = given.get(cls, set())
        made = frozenset(name for name, value in sets if is_instance(source, value, model))
        kept = frozenset(name for name, value in sets if isinstance(value, ast.Name) and value.id in names)
        if cls is not reference.cls.node and (made or kept):
            found[cls] = Holder(made, frozenset(names), kept)
    return found


def receivers(reference: Reference) -> Iterator[tuple[Defined, str]]:
    """Yield the classes and functions that the authors pass an instance of the class, each with the argument."""
    model = Defined(reference.cls.source, reference.class_name, reference.cls.node)
    named = makers(reference)
    for source in (one for one in sources_of(reference) if any(name in one.text for name in named)):
        nodes = [*ast.walk(source.tree)]
        sets = [node for node in nodes if isinstance(node, ast.Assign)]
        names = {ast.unparse(target) for one in sets if is_instance(source, one.value, model) for target in one.targets}
        wrapped = {name: calls for name in names if (calls := [one.value for one in sets if _wraps(one, name)])}
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            values = [*call.args, *(one.value for one in call.keywords)]
            mine = [one for one in values if is_instance(source, one, model)
                    or ((name := dotted(one)) in names and (name not in wrapped or call in wrapped[name]))]  # fmt: skip
            for meant in meanings(source, dotted(call.func) or "") if mine else ():
                told = passed(call, order := _order(meant))
                yield from ((meant, name) for name, value in told.items() if value in mine and name in order)


def _wraps(node: ast.Assign, name: str) -> bool:
    """Return whether an assignment puts what a name holds into another object of that name: `net = Flow(net)`."""
    value = node.value
    given = [dotted(one) for one in value.args] if isinstance(value, ast.Call) else []
    return name in given and name in map(ast.unparse, node.targets)


def _order(meant: Defined) -> list[str]:
    """Return the names of the arguments of a function or a constructor."""
    if isinstance(meant.node, ast.FunctionDef):
        return [one.arg for one in (*meant.node.args.posonlyargs, *meant.node.args.args, *meant.node.args.kwonlyargs)]
    if isinstance(meant.node, ast.ClassDef):
        return [one.arg for one, _ in constructor_arguments(meant.source, meant.node)]
    return []


@cache
def makers(reference: Reference) -> tuple[str, ...]:
    """Return the names by which code may make a model: that of its class, and of the functions and tables of its file
    that make it.
    """
    source = reference.cls.source
    model = Defined(source, reference.class_name, reference.cls.node)
    others = (Defined(source, name, node) for name, node in definitions(source).items()
              if isinstance(node, ast.FunctionDef | ast.Assign))  # fmt: skip
    return (reference.class_name, *(one.name for one in others if _makes(one, model, _DEEPEST)))


def is_instance(source: SourceFile, node: ast.expr, model: Defined, deep: int = _DEEPEST) -> bool:
    """Return whether an expression makes a model: `Net(8)`, `Net.from_pretrained(place)`, `Net(8).to(device)`; or calls
    what makes one: a function, or one that a table has, `NETS["small"](dim=8)`.
    """
    while isinstance(node, ast.Call):
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        name = dotted(called) or ""
        meant = [one for each in (name, name.rpartition(".")[0]) if each for one in meanings(source, each)]
        if model in meant or any(_makes(one, model, deep - 1) for one in meant if deep):
            return True
        if not isinstance(node.func, ast.Attribute):
            return False
        node = node.func.value
    return False


def _makes(meant: Defined, model: Defined, deep: int) -> bool:
    """Return whether a function returns a model that it makes, or a table has such a function, or the class."""
    match meant.node:
        case ast.FunctionDef() as function:
            values = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value is not None]
            names = {one.id for one in values if isinstance(one, ast.Name)}
            values += [one.value for one in ast.walk(function) if isinstance(one, ast.Assign)
                       and {*map(ast.unparse, one.targets)} & names]  # fmt: skip
            return any(is_instance(meant.source, one, model, deep) for one in values)
        case ast.Assign(value=ast.Dict(values=values)):
            named = [found for one in values for found in meanings(meant.source, dotted(one) or "")]
            return model in named or any(_makes(one, model, deep - 1) for one in named if deep)
    return False


def _sets(source: SourceFile, cls: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes that constructors set, with their values."""
    for one in (cls, *bases(source, cls)):
        init = methods_of(one).get(MADE)
        for node in ast.walk(init) if init is not None else ():
            if isinstance(node, ast.Assign):
                yield from ((name, node.value) for target in node.targets if (name := of_self(target)))
