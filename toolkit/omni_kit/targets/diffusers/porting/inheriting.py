"""Attention whose class inherits from another one that nobody else uses: both as one class."""

import ast
import copy

from omni_kit.pysource.signatures import defaults, named, signature
from omni_kit.targets.diffusers.porting.alternatives import reached
from omni_kit.targets.diffusers.porting.rewritten import rewritten_class
from omni_kit.upstream.repositories.attending import attending_in
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined

_SUPER = "super"


def with_bases(closure: Closure) -> Closure:
    """The closure with what such a base has written into the one class that inherits from it."""
    helpers = {one.definition for one in attending_in(closure)}
    helpers |= {one for one in closure.definitions
                if any(isinstance(other.node, ast.FunctionDef) and other in helpers
                       for other in closure.uses[one].values())}  # fmt: skip
    changed, more = dict[Defined, Defined](), dict[Defined, Defined]()
    for one in closure.definitions:
        base = _base(one, closure)
        if base is None or (one not in helpers and base not in helpers) or one is closure.definitions[-1]:
            continue
        users = [other for other in closure.definitions if base in closure.uses[other].values()]
        same = one.source.path == base.source.path or _alike(one, base, closure)
        if users == [one] and same and (node := _joined(one, base)) is not None:
            changed[one], more[one] = rewritten_class(one, node), base
    if not changed:
        return closure
    uses = {one: {**(closure.uses[more[one]] if one in more else {}), **names} for one, names in closure.uses.items()}
    foreign = {one: {**(closure.foreign[more[one]] if one in more else {}), **names}
               for one, names in closure.foreign.items()}  # fmt: skip
    return reached(Closure(closure.definitions, uses, foreign), changed)


def _base(one: Defined, closure: Closure) -> Defined | None:
    if not isinstance(one.node, ast.ClassDef) or len(one.node.bases) != 1:
        return None
    found = closure.uses[one].get(ast.unparse(one.node.bases[0]))
    return found if found is not None and isinstance(found.node, ast.ClassDef) else None


def _alike(one: Defined, base: Defined, closure: Closure) -> bool:
    """Whether names that both files use mean the same in both."""
    meant = [{**closure.uses[each], **closure.foreign[each]} for each in (one, base)]
    return all(meant[0][name] == meant[1][name] for name in meant[0].keys() & meant[1].keys())


def _joined(one: Defined, base: Defined) -> ast.ClassDef | None:
    """The class with the methods of its base; None where it calls one of them that it has itself."""
    assert isinstance(one.node, ast.ClassDef)
    assert isinstance(base.node, ast.ClassDef)
    node, inner = copy.deepcopy(one.node), copy.deepcopy(base.node)
    own = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    theirs = {item.name: item for item in inner.body if isinstance(item, ast.FunctionDef)}
    if "__init__" in own and "__init__" in theirs and not _constructed(own["__init__"], theirs["__init__"]):
        return None
    for name, method in own.items():
        if name != "__init__" and any(_is_super(node) for node in ast.walk(method)):
            return None
    node.bases = inner.bases
    node.body = [
        *(item for item in inner.body if isinstance(item, ast.FunctionDef) and item.name not in own),
        *node.body,
    ]
    node.body.sort(key=lambda item: isinstance(item, ast.FunctionDef) and item.name != "__init__")
    return ast.fix_missing_locations(node)


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == _SUPER


def _constructed(own: ast.FunctionDef, theirs: ast.FunctionDef) -> bool:
    """Writes what the base's constructor does instead of its call; whether that could be done."""
    for place, node in enumerate(own.body):
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not _is_super(call.func.value):
            continue
        order = [name for name in named(signature(theirs)) if name != "self"]
        if any(isinstance(one, ast.Starred) for one in call.args) or len(call.args) > len(order):
            return False
        given = dict(zip(order, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
        rest = next((one.value for one in call.keywords if one.arg is None), None)
        if {*given} - {*order}:
            return False
        lines = []
        for name in order:
            value = given.get(name)
            if value is None:
                value = defaults(signature(theirs)).get(name)
                if value is None:
                    return False
                if rest is not None:
                    value = ast.parse(f"{ast.unparse(rest)}.get({name!r}, {ast.unparse(value)})", mode="eval").body
            if not (isinstance(value, ast.Name) and value.id == name):
                lines.append(ast.Assign([ast.Name(name, ast.Store())], value))
        own.body[place : place + 1] = [*lines, *theirs.body[_after_docstring(theirs.body) :]]
        return True
    return False


def _after_docstring(body: list[ast.stmt]) -> int:
    return int(bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))
