"""The processors of attention modules."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.source import dotted

_DECLARED = ("_default_processor_cls", "_available_processors")


def processors_of(cls: ClassRef) -> list[ClassRef]:
    """Return the classes that an attention module names as its processors, or sets; none for any other class."""
    if not cls.derives("AttentionModuleMixin"):
        return []
    found = {one.node: one for name in _named(cls) if (one := _class(cls, name)) is not None}
    return list(found.values())


def _named(cls: ClassRef) -> Iterator[str]:
    for attribute in _DECLARED:
        assigned = cls.assigned(attribute)
        if assigned is not None and assigned[0].node is cls.node:
            nodes = assigned[1].elts if isinstance(assigned[1], (ast.List, ast.Tuple)) else [assigned[1]]
            yield from (name for node in nodes if (name := dotted(node)))
    init = cls.defines("__init__")
    for call in calls(init, "set_processor") if init is not None else ():
        for given in [*call.args, *(word.value for word in call.keywords)]:
            if isinstance(given, ast.Call) and (name := dotted(given.func)):
                yield name


def _class(cls: ClassRef, name: str) -> ClassRef | None:
    found = cls.source.resolve_class(name)
    return ClassRef(*found) if found is not None else None
