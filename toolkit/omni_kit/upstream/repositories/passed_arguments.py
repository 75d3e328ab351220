"""Follows a constructor's arguments into the constructors of classes that it passes them to."""

import ast
from collections.abc import Iterator, Mapping

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.names import Defined, resolve

_INIT = "__init__"
_SIZED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_MOST = 200  # constructors that are read
_DEEPEST = 3  # functions that call each other
Arrival = tuple[ClassRef, ast.FunctionDef, Mapping[str, str]]
"""A class, its constructor, and the names there of the first constructor's arguments -> their names in that one."""


def arrivals(cls: ClassRef) -> Iterator[Arrival]:
    """Yield the constructor of a class, then those that it passes arguments to as they are."""
    found = cls.method(_INIT)
    if found is None:
        return
    given = found[1].args
    waiting: list[Arrival] = [(found[0], found[1], {name: name for name in _names(given)})]
    seen: list[Arrival] = []
    while waiting and len(seen) < _MOST:
        one = waiting.pop(0)
        if one not in seen:
            seen.append(one)
            yield one
            waiting += _passed_on(one)


def _passed_on(one: Arrival) -> Iterator[Arrival]:
    home, init, names = one
    for call in (node for node in ast.walk(init) if isinstance(node, ast.Call)):
        found = _constructor(home, call)
        if found is None:
            continue
        listed = [part.arg for part in (*found[1].args.posonlyargs, *found[1].args.args)][1:]
        starred = any(isinstance(arg, ast.Starred) for arg in call.args)
        pairs = [] if starred else [*zip(listed, call.args, strict=False)]
        pairs += [(word.arg, word.value) for word in call.keywords if word.arg]
        passed = {name: names[said] for name, value in pairs if (said := dotted(value) or "") in names}
        if passed:
            yield *found, passed


def required_keys(cls: ClassRef, mapping: str) -> dict[str, bool]:
    """Return the keys that constructors read of the `**` mapping of the first -> whether none of them first looks if
    it is there. What a call names itself does not come from the mapping.
    """
    found = cls.method(_INIT)
    waiting = [(*found, mapping, frozenset[str]())] if found is not None else []
    seen: set[tuple[int, frozenset[str]]] = set()
    keys: dict[str, bool] = {}
    while waiting and len(seen) < _MOST:
        home, init, held, named = waiting.pop(0)
        if (id(init), named) in seen:
            continue
        seen.add((id(init), named))
        read, guarded = _read_keys(init, held)
        for key in (one for one in read if one not in named):
            keys[key] = keys.get(key, False) or key not in guarded
        for call in (node for node in ast.walk(init) if isinstance(node, ast.Call)):
            spread = any(word.arg is None and dotted(word.value) == held for word in call.keywords)
            inner = _constructor(home, call) if spread else None
            if inner is not None and inner[1].args.kwarg is not None:
                own = {word.arg for word in call.keywords if word.arg} | {*_names(inner[1].args)}
                waiting.append((*inner, inner[1].args.kwarg.arg, named | own))
    return keys


def named_classes(cls: ClassRef) -> list[str]:
    """Return the arguments that name a class: a function that the constructor passes them to imports what they say."""
    found = cls.method(_INIT)
    if found is None:
        return []
    home, init = found
    own = {*_names(init.args)}
    calls = ((node, resolve(home.source, dotted(node.func) or "")) for node in ast.walk(init)
             if isinstance(node, ast.Call) and node.args and dotted(node.args[0]) in own)  # fmt: skip
    named = (dotted(call.args[0]) for call, meant in calls if isinstance(meant, Defined) and _imports(meant))
    return [*dict.fromkeys(filter(None, named))]


def _imports(function: Defined, deep: int = _DEEPEST) -> bool:
    """Return whether a function of the authors imports a module by a name that it works out, itself or by another."""
    names = [dotted(one.func) or "" for one in ast.walk(function.node) if isinstance(one, ast.Call)]
    if any(name.rpartition(".")[2] == "import_module" for name in names):
        return True
    inner = (resolve(function.source, name) for name in names if deep)
    return any(isinstance(one, Defined) and isinstance(one.node, ast.FunctionDef) and _imports(one, deep - 1)
               for one in inner)  # fmt: skip


def _read_keys(init: ast.FunctionDef, mapping: str) -> tuple[list[str], set[str]]:
    """Return the keys by which a function reads a mapping, and those that it looks for in it."""
    read: list[str] = []
    guarded: set[str] = set()
    for node in ast.walk(init):
        if isinstance(node, ast.Subscript) and dotted(node.value) == mapping:
            read += [key] if isinstance(key := literal(node.slice), str) else []
        elif isinstance(node, ast.Compare) and isinstance(key := literal(node.left), str):
            guarded |= {key} if ast.unparse(node.comparators[0]) in (mapping, f"{mapping}.keys()") else set()
    return read, guarded


def _constructor(home: ClassRef, call: ast.Call) -> tuple[ClassRef, ast.FunctionDef] | None:
    """Return the constructor that a call runs, of a class of the authors."""
    meant = resolve(home.source, dotted(call.func) or "")
    known = isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef)
    return ClassRef(meant.source, meant.node).method(_INIT) if known else None  # type: ignore[union-attr, arg-type]


def counted_with(cls: ClassRef) -> frozenset[str]:
    """Return the arguments that constructors compare in size, or compute with."""
    found: set[str] = set()
    for _, init, names in arrivals(cls):
        for node in ast.walk(init):
            sides: list[ast.expr] = []
            if isinstance(node, ast.Compare) and any(isinstance(op, _SIZED) for op in node.ops):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.BinOp):
                sides = [node.left, node.right]
            found |= {names[name] for side in sides if (name := dotted(side) or "") in names}
    return frozenset(found)


def allowed_values(cls: ClassRef) -> dict[str, list[str]]:
    """Return the texts that constructors allow for arguments: `assert x in [...]`, `if x not in [...]: raise`, and
    branches by `x == "..."` of which the last raises.
    """
    found: dict[str, list[str]] = {}
    for _, init, names in arrivals(cls):
        for node in ast.walk(init):
            tests = (
                _asserted(node) if isinstance(node, ast.Assert) else _raised(node) if isinstance(node, ast.If) else []
            )
            for name, values in tests:
                texts = [value for value in values if isinstance(value, str)]
                if name in names and texts and None not in values:
                    found.setdefault(names[name], texts)
    return found


def _asserted(node: ast.Assert) -> list[tuple[str, list[object]]]:
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return [read for test in tests if (read := _compared(test, ast.In, ast.Eq)) is not None]


def _raised(node: ast.If) -> list[tuple[str, list[object]]]:
    """Return the values that pass an `if` that raises for all others."""
    if _raises(node.body) and (read := _compared(node.test, ast.NotIn, ast.NotEq)) is not None:
        return [read]
    names, values = set(), []
    while (read := _compared(node.test, ast.In, ast.Eq)) is not None:
        names.add(read[0])
        values += read[1] if not _raises(node.body) else []
        if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
            break
        node = node.orelse[0]
    return [(names.pop(), values)] if read is not None and len(names) == 1 and _raises(node.orelse) else []


def _raises(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _compared(test: ast.expr, listed: type[ast.cmpop], equal: type[ast.cmpop]) -> tuple[str, list[object]] | None:
    """Return the name, and the values, of `name in [...]` or `name == value`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        return None
    value = literal(test.comparators[0])
    if value is UNKNOWN or not isinstance(test.ops[0], (listed, equal)):
        return None
    several = isinstance(test.ops[0], listed)
    if several and not isinstance(value, list | tuple | set | frozenset | dict):
        return None
    return test.left.id, [*value] if several else [value]


def _names(given: ast.arguments) -> list[str]:
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)][1:]
