"""Objects that a config sees while it is read: the DSL, and stand-ins for all of its imports."""

import ast
import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from omni_kit.patchgen import spec
from omni_kit.patchgen.spec import ImportSpec, Origin, Patch, PatchConfig, PositionedHelper
from omni_kit.patchgen.standins import StandIn
from omni_kit.pysource.eval import Domain, Frame, Function, Native, Unsupported
from omni_kit.pysource.eval.python import BUILTINS, CONSTANTS, DESCRIPTORS, LIBRARY, plain_items
from omni_kit.pysource.eval.values import COLLECTIONS, Partial, bounded, is_plain

RECORDS = (PatchConfig, Patch, ImportSpec, PositionedHelper)
AT_MODULE = "module"
"""The home of module-level code, whose lines register patches."""
_MAX_PARTS = 20_000
_LIBRARY: dict[str, Callable[..., Any]] = {
    **LIBRARY, "copy.copy": copy.copy, "copy.deepcopy": copy.deepcopy, "dataclasses.replace": dataclasses.replace,
}  # fmt: skip
_DSL = {name: getattr(spec, name) for name in (
    "PatchConfig", "Patch", "PatchType", "ImportSpec", "PositionedHelper", "create_patch_from_external",
)}  # fmt: skip


class Imports(Protocol):
    """Resolver of a config's imports."""

    def imported(self, name: str, home: Path, names: tuple[str, ...], level: int) -> Any:
        """Return the object that an import binds."""


class ConfigValues(Domain):
    """The values of one config and its siblings.

    Attributes:
        position: the line of module-level code that is being read.
    """

    def __init__(self, imports: Imports) -> None:
        super().__init__()
        self.imports = imports
        self.position: Origin | None = None

    @contextmanager
    def at(self, line: int, frame: Frame) -> Iterator[None]:
        """Return the context in which the DSL registers something at this place."""
        if frame.home == AT_MODULE:
            self.position = Origin(str(frame.path), line)
        with spec.positioned(self.position):
            yield

    def home(self, frame: Frame) -> Any:
        """See `Domain`: the body of a function is not code of the module."""
        return None

    @contextmanager
    def defining(self, node: ast.ClassDef, frame: Frame) -> Iterator[None]:
        """See `Domain`."""
        if frame.home == AT_MODULE:
            self.position = Origin(str(frame.path), node.lineno)
        yield

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        if base is spec:
            return _of_dsl(name)
        if isinstance(base, StandIn):
            path = f"{base.path}.{name}"
            own = name == "path" or name.startswith("__")  # of the stand-in itself
            return CONSTANTS.get(path, StandIn(path) if own else getattr(base, name))
        if isinstance(base, ModuleType):
            if name == "*":
                return _public(base)
            if name not in vars(base):
                raise Unsupported(f"uses {name}, which {base.__name__} does not define")
            if isinstance(found := vars(base)[name], Unsupported):
                raise found
            return found
        if isinstance(base, Native) and base.function is spec.PatchType and name in spec.PatchType.__members__:
            return spec.PatchType[name]
        if isinstance(base, spec.PatchType) and name in {"name", "value"}:
            return getattr(base, name)
        if isinstance(base, RECORDS) and not name.startswith("_") and hasattr(base, name):
            found = getattr(base, name)
            return Native(found) if name not in _fields(base) and callable(found) else found
        return super().attribute(base, name, frame)

    def set_attribute(self, base: Any, name: str, value: Any, frame: Frame) -> None:
        """See `Domain`; attributes of other libraries are none of a config's business."""
        if isinstance(base, RECORDS) and name in _fields(base):
            setattr(base, name, value)
        elif not isinstance(base, StandIn) and not (isinstance(base, Function) and name == "__doc__"):
            super().set_attribute(base, name, value, frame)

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`; a type in brackets, as annotations have it, is a stand-in."""
        if isinstance(base, (StandIn, Native, Function)):
            return StandIn("subscripted")
        return super().item(base, key, frame)

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`; what a stand-in takes part in is a stand-in."""
        if any(isinstance(one, StandIn) for one in operands):
            return StandIn("computed")
        if any(isinstance(one, Function) for one in operands) and name not in {"is_", "is_not"}:
            return StandIn("computed")
        return super().operation(name, operands, frame)

    def truth(self, value: Any, frame: Frame) -> bool:
        """See `Domain`."""
        if isinstance(value, StandIn):
            raise Unsupported(f"depends on {value.path}")
        return True

    def items(self, value: Any, frame: Frame) -> list[Any]:
        """See `Domain`."""
        if isinstance(value, StandIn):
            raise Unsupported(f"goes through {value.path}")
        return super().items(value, frame)

    def formatted(self, value: Any, frame: Frame) -> Any:
        """See `Domain`."""
        return StandIn("formatted") if isinstance(value, StandIn) else super().formatted(value, frame)

    def imported(self, name: str, names: tuple[str, ...], level: int, frame: Frame) -> Any:
        """See `Domain`."""
        return self.imports.imported(name, frame.path, names, level)

    def handles(self, error: Unsupported, node: ast.Try) -> bool:
        """See `Domain`: a handler counts where an import inside of the directory leads to nothing."""
        return isinstance(error.__cause__, ImportError)

    def decorated(self, definition: Function, decorators: list[Any], nodes: list[ast.expr], frame: Frame) -> Any:
        """See `Domain`; decorators of other libraries, and descriptors, leave a definition as it is."""
        own = [pair for pair in zip(decorators, nodes, strict=True) if not _leaves(pair[0])]
        return super().decorated(definition, [one for one, _ in own], [node for _, node in own], frame)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`; the DSL is told the line of a call as Python tells it."""
        callee = node.func if isinstance(node, ast.Call) else node
        line = callee.end_lineno if isinstance(node, ast.Call) and isinstance(callee, ast.Attribute) else node.lineno
        with self.at(line or node.lineno, frame):
            if isinstance(function, StandIn):
                return _foreign(function, arguments, keywords)
            if isinstance(function, Native) and function.function is not getattr:
                return _native(function.function, arguments, keywords)
            return super().call(function, arguments, keywords, frame, node)


def _leaves(decorator: Any) -> bool:
    descriptor = isinstance(decorator, Native) and decorator.function in DESCRIPTORS
    return descriptor or isinstance(decorator, StandIn)


def is_live(value: Any) -> bool:
    """Return whether a value can be used to change a config, be it inside a collection."""
    pending, seen = [value], 0
    while pending:
        item = pending.pop()
        seen += 1
        if isinstance(item, (*RECORDS, Native, Partial)) or seen > _MAX_PARTS:
            return True
        if isinstance(item, COLLECTIONS):
            pending += [*item.keys(), *item.values()] if isinstance(item, dict) else item
    return False


def _foreign(function: StandIn, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Return the result of calling an import: a stand-in, or the definition that a foreign function receives."""
    given = [*arguments, *keywords.values()]
    if function.path in _LIBRARY and not any(isinstance(value, StandIn) for value in given):
        return _native(_LIBRARY[function.path], arguments, keywords)
    if any(map(is_live, given)):
        raise Unsupported(f"passes the config to {function.path}")
    functions = [one for one in given if isinstance(one, Function) and not isinstance(one.node, ast.ClassDef)]
    if functions and function.path.partition(".")[0] in sys.stdlib_module_names:
        raise Unsupported(f"passes {functions[0].__name__} to {function.path}")
    if len(given) == 1 and not keywords and isinstance(given[0], Function):
        return given[0]
    return StandIn(f"{function.path}()")


def _native(function: Callable[..., Any], arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Calls what is safe to call; a function that it gives back is safe, too."""
    if function not in BUILTINS.values():
        arguments = [*map(plain_items, arguments)]
        keywords = {name: plain_items(one) for name, one in keywords.items()}
    try:
        result = function(*arguments, **keywords)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"ends in {type(error).__name__}: {error}") from error
    safe = is_plain(result) or isinstance(result, (*RECORDS, Native, Partial, StandIn, Function))
    return bounded(result) if safe or not callable(result) else Native(result)


def _of_dsl(name: str) -> Any:
    """Return the value of a name in the DSL's module."""
    if name == "*":
        return {one: Native(value) for one, value in _DSL.items()}
    if name == "patch_spec":
        return spec
    if name not in _DSL:
        raise Unsupported(f"uses {name}, which the DSL does not have")
    return Native(_DSL[name])


def _public(module: ModuleType) -> dict[str, Any]:
    """Return the names that `from module import *` binds."""
    listed = vars(module).get("__all__")
    if isinstance(listed, (list, tuple)):
        return {name: vars(module)[name] for name in listed}
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _fields(record: Any) -> set[str]:
    return {one.name for one in dataclasses.fields(record)}
