"""Classes that inherit from another one of the authors': both as one class.

The model's own class, which inherits from diffusers' mixins alone, and attention whose base nobody else uses.
"""

import ast
import copy
from collections.abc import Iterator, Mapping

from omni_kit.pysource.signatures import defaults, named, passed, signature
from omni_kit.targets.diffusers.porting.alternatives import reached
from omni_kit.targets.diffusers.porting.replaced_functions import rewritten_class
from omni_kit.upstream.repositories.attention import attending_in
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined

_SUPER = "super"
_BASES = "base_"  # what a name or a method of a base begins with where the class has one of the same name
_INIT = "__init__"


def with_bases(closure: Closure) -> Closure:
    """Return the closure with what such a base has written into the one class that inherits from it."""
    while (joined := _with_base_of_model(closure)) is not None:
        closure = joined
    helpers = {one.definition for one in attending_in(closure)}
    helpers |= {one for one in closure.definitions
                if any(isinstance(other.node, ast.FunctionDef) and other in helpers
                       for other in closure.uses[one].values())}  # fmt: skip
    changed, more = dict[Defined, Defined](), dict[Defined, Defined]()
    for one in closure.definitions[:-1]:
        base = _base(one, closure)
        if base is None or (one not in helpers and base not in helpers):
            continue
        users = [other for other in closure.definitions if base in closure.uses[other].values()]
        same = one.source.path == base.source.path or _alike(one, base, closure)
        if users == [one] and same and (node := _joined(one, base)) is not None:
            changed[one], more[one] = rewritten_class(one, node), base
    return _rewritten(closure, changed, more) if changed else closure


def _with_base_of_model(closure: Closure) -> Closure | None:
    """Return the closure with one base less above the model's class; None if it has none that can be written
    into it.
    """
    model = closure.definitions[-1]
    base = _base(model, closure)
    if base is None:
        return None
    away = {name: f"{_BASES}{name}" for name in _unlike(model, base, closure)}
    node = _joined(model, base, away)
    if node is None:
        return None
    foreign = {name: meant for name, meant in closure.foreign[base].items() if name not in away}
    imported = {away[name] for name in closure.foreign[base] if name in away}
    if any(isinstance(one, ast.Name) and one.id in imported for one in ast.walk(node)):
        return None
    known = {away.get(name, name): meant for name, meant in closure.uses[base].items()}
    uses = {**closure.uses, base: known}
    return _rewritten(Closure(closure.definitions, uses, {**closure.foreign, base: foreign}),
                      {model: rewritten_class(model, node)}, {model: base})  # fmt: skip


def _rewritten(closure: Closure, changed: dict[Defined, Defined], more: Mapping[Defined, Defined]) -> Closure:
    """Return the closure with other classes, which name what their bases name."""
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
    """Return whether names that both files use mean the same in both."""
    return not _unlike(one, base, closure)


def _unlike(one: Defined, base: Defined, closure: Closure) -> list[str]:
    """Return names that mean something else in each of two files."""
    own, theirs = ({**closure.uses[each], **closure.foreign[each]} for each in (one, base))
    return [name for name in own if name in theirs and own[name] != theirs[name]]


def _joined(one: Defined, base: Defined, away: Mapping[str, str] = {}) -> ast.ClassDef | None:
    """Return the class with the methods of its base; None if it calls them in a way that cannot be written out.

    Args:
        away: names in the base that mean something else in the class, and what they are called here.
    """
    assert isinstance(one.node, ast.ClassDef)
    assert isinstance(base.node, ast.ClassDef)
    node, inner = copy.deepcopy(one.node), _Renamed(away).visit(copy.deepcopy(base.node))
    for call in (each for each in ast.walk(inner) if isinstance(each, ast.Call) and _is_super(each)):
        call.args = [] if call.args and ast.unparse(call.args[0]) == base.node.name else call.args
    own = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    theirs = {item.name: item for item in inner.body if isinstance(item, ast.FunctionDef)}
    if _INIT in own and _INIT in theirs and not _constructed(own[_INIT], theirs[_INIT], node.name):
        return None
    called = _Called(theirs)
    for name, method in own.items():
        called.within = name
        method.body = [called.visit(line) for line in method.body] if name != _INIT else method.body
        if name != _INIT and any(_is_super(node) for node in ast.walk(method)):
            return None
    for name in called.names:
        theirs[name].name = f"{_BASES}{name}"
    said = {target for item in node.body for target in _targets(item)}
    node.bases = inner.bases
    kept = [item for item in inner.body if not isinstance(item, ast.FunctionDef) and _targets(item)
            and said.isdisjoint(_targets(item))]  # fmt: skip
    kept += [item for item in inner.body if isinstance(item, ast.FunctionDef) and item.name not in own]
    node.body = [*kept, *node.body]
    node.body.sort(key=lambda item: isinstance(item, ast.FunctionDef) and item.name != _INIT)
    return ast.fix_missing_locations(node)


def _targets(item: ast.stmt) -> list[str]:
    """Return the class attributes that a statement binds."""
    targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == _SUPER


class _Called(ast.NodeTransformer):
    """Calls of a base's methods through `super()` as calls of a method of the class.

    Attributes:
        within: the method that is being read.
        names: the methods that are called so.
    """

    def __init__(self, theirs: Mapping[str, ast.FunctionDef]) -> None:
        self._theirs = theirs
        self.within = ""
        self.names: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`super().forward` within `forward`."""
        if not _is_super(node.value) or node.attr not in self._theirs or node.attr == _INIT:
            return self.generic_visit(node)
        if node.attr != self.within:
            return node
        self.names.add(node.attr)
        return ast.Attribute(ast.Name("self", ast.Load()), f"{_BASES}{node.attr}", node.ctx)


class _Renamed(ast.NodeTransformer):
    """Names under others."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Return one of them."""
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _constructed(own: ast.FunctionDef, theirs: ast.FunctionDef, name: str) -> bool:
    """Write what the base's constructor does instead of its call; whether that could be done.

    Args:
        name: of the class: `super(Base, self).__init__()` calls what is above the base, and runs nothing of it.
    """
    for place, node in enumerate(own.body):
        call = node.value if isinstance(node, ast.Expr | ast.Return) else None  # `return super().__init__()` is None
        if isinstance(node, ast.Return) and node is not own.body[-1]:
            continue
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not _is_super(call.func.value):
            continue
        above = call.func.value.args  # type: ignore[attr-defined]
        if above and ast.unparse(above[0]) != name:
            call.func.value.args = []  # type: ignore[attr-defined]
            return True
        given = _given(_without_rest(call, own), theirs)
        if given is None:
            return False
        inner = theirs.body[_after_docstring(theirs.body) :]
        stored = {one.id for line in inner for one in ast.walk(line)
                  if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}  # fmt: skip
        bound = {one.id for one in ast.walk(own) if isinstance(one, ast.Name)} | {*named(signature(own))}
        apart = {name: f"{_BASES}{name}" for name in stored | given.keys()
                 if name in bound and (name in stored or ast.unparse(given[name]) != name)}  # fmt: skip
        passed = {apart.get(name, name): value for name, value in given.items()}
        lines: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], value)
                                 for name, value in passed.items() if ast.unparse(value) != name]  # fmt: skip
        inner = [_Renamed(apart).visit(line) for line in inner]
        own.body[place : place + 1] = [*lines, *inner]
        own.body = [*_without_what_is_replaced(own.body)]
        return True
    return False


def _without_rest(call: ast.Call, own: ast.FunctionDef) -> ast.Call:
    """Return a call without the `*args` of a constructor that nothing else reads: a config's values have names."""
    rest = own.args.vararg.arg if own.args.vararg is not None else ""
    spread = [one for one in call.args if isinstance(one, ast.Starred) and getattr(one.value, "id", "") == rest]
    if sum(isinstance(one, ast.Name) and one.id == rest for one in ast.walk(own)) != len(spread):
        return call
    return ast.Call(call.func, [one for one in call.args if one not in spread], call.keywords)


def _given(call: ast.Call, theirs: ast.FunctionDef) -> dict[str, ast.expr] | None:
    """Return the argument of a base's constructor that each of its parameters gets; None if that cannot be
    determined.
    """
    order = [name for name in named(signature(theirs)) if name != "self"]
    if any(isinstance(one, ast.Starred) for one in call.args) or len(call.args) > len(order):
        return None
    given = passed(call, order)
    rest = next((one.value for one in call.keywords if one.arg is None), None)
    more = theirs.args.kwarg.arg if theirs.args.kwarg is not None else ""
    if {*given} - {*order} and (not more or any(getattr(one, "id", "") == more for one in ast.walk(theirs))):
        return None
    found = dict[str, ast.expr]()
    for name in order:
        value = given.get(name)
        if value is None:
            value = defaults(signature(theirs)).get(name)
            if rest is not None:
                read = f"[{name!r}]" if value is None else f".get({name!r}, {ast.unparse(value)})"
                value = ast.parse(ast.unparse(rest) + read, mode="eval").body
        if value is None:
            return None
        found[name] = value
    return found


def _without_what_is_replaced(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements but those that set an attribute which a later one sets again before it is read."""
    for place, line in enumerate(body):
        name = _attribute(line)
        rest = iter(body[place + 1 :]) if name else iter(())
        for later in rest:
            if _attribute(later) == name and not _reads(getattr(later, "value", later), name):
                break
            if _reads(later, name):
                yield line
                break
        else:
            yield line


def _attribute(line: ast.stmt) -> str:
    """Return the attribute of `self` that a statement sets, alone."""
    target = line.targets[0] if isinstance(line, ast.Assign) and len(line.targets) == 1 else None
    return ast.unparse(target) if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" else ""


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Attribute) and ast.unparse(one) == name for one in ast.walk(node))


def _after_docstring(body: list[ast.stmt]) -> int:
    return int(bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))
