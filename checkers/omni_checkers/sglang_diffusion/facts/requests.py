"""Attributes of the request that a stage sets and reads, followed through the functions that receive the request."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_checkers.engine.files import walked
from omni_checkers.sglang_diffusion.facts.sources import Sources, class_named, own_classes
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted

REQUEST = "sglang.multimodal_gen.runtime.pipelines_core.schedule_batch.Req"
_DEEPEST = 8
_ASKED = ("getattr", "setattr", "hasattr", "delattr")
_FILLS = ("append", "extend", "insert")
_HARMLESS = frozenset({"isinstance", "id", "type", "repr", "str", "deepcopy", "copy", "bool", "len"})


@dataclass(frozen=True)
class Use:
    """One place where an attribute of the request is set or read.

    Attributes:
        value: the assigned expression; None if it has no expression of its own.
        optional: it is asked for in a way that may go without.
    """

    name: str
    source: SourceFile
    node: ast.AST
    value: ast.expr | None = None
    optional: bool = False
    function: ast.FunctionDef | None = None
    owner: ClassRef | None = None


@dataclass
class Uses:
    """The uses of a request.

    Attributes:
        unseen: calls that receive the request and cannot be followed.
    """

    sets: list[Use] = field(default_factory=list)
    reads: list[Use] = field(default_factory=list)
    unseen: list[ast.Call] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """Return the attributes that are set."""
        return {use.name for use in self.sets}


def uses_of(cls: ClassRef, methods: tuple[str, ...] = ("forward",), config: ClassRef | None = None) -> Uses:
    """Return how the methods of a class use their request.

    Args:
        config: the class of the pipeline's config, whose methods are called on the way.
    """
    found = Uses()
    seen: set[tuple[int, str]] = set()
    for name in methods:
        method = cls.method(name)
        if method is not None and (batch := request_parameter(method[1])):
            _follow(_Place(cls, method[0].source, method[1], config), batch, found, seen, 0)
    return found


@dataclass(frozen=True)
class _Place:
    cls: ClassRef | None
    source: SourceFile
    function: ast.FunctionDef
    config: ClassRef | None


def request_parameter(function: ast.FunctionDef) -> str:
    """Return the parameter that is the request: by its annotation, or else by its name."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    for one in arguments:
        if one.annotation is not None and ast.unparse(one.annotation).strip("'\"").split(".")[-1] == "Req":
            return one.arg
    return next((one.arg for one in arguments if one.arg in ("batch", "req")), "")


def _follow(place: _Place, name: str, found: Uses, seen: set[tuple[int, str]], depth: int) -> None:
    key = id(place.function), name
    if key in seen or depth > _DEEPEST:
        return
    seen.add(key)
    names = {name} | _aliases(place.function, name)
    for node in walked(place.function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            use = Use(node.attr, place.source, node, _assigned(place.function, node), False, place.function, place.cls)
            (found.sets if isinstance(node.ctx, ast.Store) else found.reads).append(use)
        elif isinstance(node, ast.Call):
            if (filled := _filled(node, names)) is not None:
                found.sets.append(Use(filled.attr, place.source, filled, None, False, place.function, place.cls))
            _called(place, node, names, found, seen, depth)


def _filled(call: ast.Call, names: set[str]) -> ast.Attribute | None:
    """`batch.name` of `batch.name.append(...)` and `batch.name.extend(...)`."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr in _FILLS and isinstance(func.value, ast.Attribute)):
        return None
    owner = func.value.value
    return func.value if isinstance(owner, ast.Name) and owner.id in names else None


def _called(
    place: _Place, call: ast.Call, names: set[str], found: Uses, seen: set[tuple[int, str]], depth: int
) -> None:
    handed = list(_handed(call, names))
    if not handed:
        return
    plain = (dotted(call.func) or "").rpartition(".")[2]
    if plain in _ASKED:
        _asked(place, call, plain, found)
        return
    target = _target(place, call)
    if target is None:
        if plain not in _HARMLESS and not plain.startswith(("log", "debug", "info", "warn")):
            found.unseen.append(call)
        return
    cls, source, function, skipped = target
    order = [one.arg for one in function.args.args][skipped:]
    for position in handed:
        parameter = position if isinstance(position, str) else order[position] if position < len(order) else ""
        if parameter:
            _follow(_Place(cls, source, function, place.config), parameter, found, seen, depth + 1)


def _handed(call: ast.Call, names: set[str]) -> Iterator[int | str]:
    """Yield the arguments that are the request: positions and keywords."""
    for position, one in enumerate(call.args):
        if isinstance(one, ast.Name) and one.id in names:
            yield position
    for keyword in call.keywords:
        if keyword.arg is not None and isinstance(keyword.value, ast.Name) and keyword.value.id in names:
            yield keyword.arg


def _asked(place: _Place, call: ast.Call, how: str, found: Uses) -> None:
    name = call.args[1] if len(call.args) > 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        found.unseen.append(call)
        return
    value = call.args[2] if how == "setattr" and len(call.args) > 2 else None
    use = Use(name.value, place.source, call, value, how != "setattr", place.function, place.cls)
    (found.sets if how == "setattr" else found.reads).append(use)


def _target(place: _Place, call: ast.Call) -> tuple[ClassRef | None, SourceFile, ast.FunctionDef, int] | None:
    """Class, file and function that are called, and how many parameters are filled already."""
    func = call.func
    if isinstance(func, ast.Attribute):
        owner = _owner(place, func.value)
        method = owner.method(func.attr) if owner is not None else None
        if owner is None or method is None:
            return None
        static = any(dotted(one) == "staticmethod" for one in method[1].decorator_list)
        return owner, method[0].source, method[1], 0 if static else 1
    found = place.source.resolve_function(func.id) if isinstance(func, ast.Name) else None
    return (None, *found, 0) if found is not None else None


def _owner(place: _Place, node: ast.expr) -> ClassRef | None:
    name = dotted(node) or ""
    if name == "self":
        return place.cls
    if isinstance(node, ast.Call) and dotted(node.func) == "super" and place.cls is not None:
        return next((one for one in own_classes(place.cls) if one.node is not place.cls.node), None)
    if name.rpartition(".")[2] in ("pipeline_config", "config") and "pipeline_config" in name + _origin(place, node):
        return place.config
    return class_named(place.source, node) if name[:1].isupper() else None


def _origin(place: _Place, node: ast.expr) -> str:
    """Return the first value that the function assigns to a plain name, as text."""
    for item in walked(place.function):
        if isinstance(item, ast.Assign) and isinstance(node, ast.Name) and dotted(item.targets[0]) == node.id:
            return ast.unparse(item.value)
    return ""


def _aliases(function: ast.FunctionDef, name: str) -> set[str]:
    """Return other names of the request in a function."""
    found = {name}
    for node in walked(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in found:
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _assigned(function: ast.FunctionDef, target: ast.Attribute) -> ast.expr | None:
    """Return the value assigned to an attribute; None if it is not assigned, or unpacked from something."""
    if not isinstance(target.ctx, ast.Store):
        return None
    for node in walked(function):
        if isinstance(node, ast.Assign):
            for one in node.targets:
                if one is target:
                    return node.value
                parts = getattr(one, "elts", [])
                values = getattr(node.value, "elts", [])
                if target in parts and len(parts) == len(values):
                    return values[parts.index(target)]  # type: ignore[no-any-return]
        elif isinstance(node, ast.AnnAssign) and node.target is target:
            return node.value
    return None


def request_names(sources: Sources, sampling: ClassRef | None) -> set[str] | None:
    """Return everything that a request knows: its own fields and methods, and those of the sampling parameters."""
    request = sources.cls(REQUEST)
    if request is None:
        return None
    params = sources.cls("sglang.multimodal_gen.configs.sample.sampling_params.SamplingParams")
    return {
        name
        for cls in (request, params, sampling)
        if cls is not None
        for entry in own_classes(cls)
        for name in _members(entry)
    }


def _members(cls: ClassRef) -> Iterator[str]:
    for item in cls.node.body:
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            yield item.name
            yield from _set_on_self(item)
        for target in item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]:
            if isinstance(target, ast.Name):
                yield target.id


def _set_on_self(node: ast.AST) -> Iterator[str]:
    for item in walked(node):
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and dotted(item.value) == "self":
            yield item.attr
