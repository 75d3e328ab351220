"""Parameters that authors cast to float32 wherever they compute with them: a model in half precision loses nothing by
keeping them, which diffusers does for the names in `_keep_in_fp32_modules`.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import code

_SINGLE = re.compile(r"^torch\.float(32)?$")
_NORM = re.compile(r"(^|\.)(LayerNorm|GroupNorm)$")
_AFFINE = frozenset({"weight", "bias"})  # parameters of torch's norms
_PARAMETER = re.compile(r"(^|\.)Parameter$")
_EMPTY = re.compile(r"(^|\.)(Identity|Dropout|SiLU|GELU|ReLU)$")
_INITIALISES = re.compile(r"^(__init__|_?(init|reset|initiali[sz]e)\w*)$")


def kept_in_float32(parts: Parts) -> list[str]:
    """Return the names of modules and parameters that stay in float32, in order.

    A name stands for whatever contains it, so that none is returned that another module or parameter contains, too.
    """
    nodes = (ast.parse(code(part.node)).body[0] for part in parts.parts if part.cls is not None)
    classes = [_Class.of(node) for node in nodes if isinstance(node, ast.ClassDef)]
    whole = {one.name for one in classes if one.parameters and not one.modules and one.single >= one.parameters}
    kept, others = dict[str, None](), {*_AFFINE}
    for one in classes:
        for name, made in one.modules.items():
            if made - whole or not made:
                others.add(name)
            else:
                kept[name] = None
        if one.name not in whole:
            kept |= dict.fromkeys(sorted(one.single))
            others |= one.parameters - one.single
    return [name for name in kept if not any(name in other for other in others)]


@dataclass(frozen=True)
class _Class:
    """A class of the file.

    Attributes:
        modules: attribute -> the classes that its value is made of.
        parameters: its own.
        single: those that it reads in float32 alone.
    """

    name: str
    modules: dict[str, frozenset[str]]
    parameters: frozenset[str]
    single: frozenset[str]

    @classmethod
    def of(cls, node: ast.ClassDef) -> "_Class":
        """Read a class."""
        modules: dict[str, frozenset[str]] = {}
        norm = any(_NORM.search(dotted(base) or "") for base in node.bases)
        parameters = set(_AFFINE if norm else ())
        for name, value in _assigned(node):
            made = [dotted(one.func) or "" for one in ast.walk(value) if isinstance(one, ast.Call)]
            if any(map(_PARAMETER.search, made)):
                parameters.add(name)
            elif made or isinstance(value, ast.Name):  # a module that a caller makes, for all that is known
                modules[name] = modules.get(name, frozenset()) | {one for one in made if not _EMPTY.search(one)}
        single = frozenset(name for name in parameters if _is_single(name, node))
        return cls(node.name, modules, frozenset(parameters), single)


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of its own that a class sets, with the values."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign):
            own = [name for target in one.targets if (name := dotted(target) or "").startswith("self.")]
            yield from ((name.removeprefix("self."), one.value) for name in own)


def _is_single(name: str, node: ast.ClassDef) -> bool:
    """Return whether a class reads a parameter at least once, and never but to cast it to float32, or to ask whether
    it is there.
    """
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and not _INITIALISES.search(one.name)]
    above = {child: one for method in methods for one in ast.walk(method) for child in ast.iter_child_nodes(one)}
    reads = [one for one in above if isinstance(one, ast.Attribute) and dotted(one) == f"self.{name}"]
    casts = [one for one in reads if not isinstance(above[one], ast.Compare)]
    return bool(casts) and all(_is_cast(above, one) for one in casts)


def _is_cast(above: dict[ast.AST, ast.AST], node: ast.AST) -> bool:
    """Return whether a value is cast to float32 at once, or an index of it is."""
    parent = above.get(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return _is_cast(above, parent)
    call = above.get(parent) if isinstance(parent, ast.Attribute) else None
    if not isinstance(parent, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not parent:
        return False
    given: Collection[ast.expr] = [*call.args, *(one.value for one in call.keywords)]
    if parent.attr == "float":
        return not given
    return parent.attr in ("to", "type") and len(given) == 1 and all(_SINGLE.match(dotted(one) or "") for one in given)
