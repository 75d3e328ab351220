"""Upstream's renames: locals and parameters of a function; attributes, keywords and definitions of a module."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from omni_kit.patchgen.source import Definition, SourceModule
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.alignment import align, assignment
from omni_kit.patchgen.upgrade.code import Code, FunctionNode, dump, likeness, size, stored
from omni_kit.patchgen.upgrade.declarations import parameter_names
from omni_kit.pysource.nodes import without_docstring

_SAME = 0.75  # how like the bodies of a renamed definition are
_MOST = 0.6  # of the places of a name that have another now, in a rename
_TELLING = 15  # nodes of a definition that is recognised under another name


@dataclass
class Renames:
    """Older names to newer ones.

    Attributes:
        paths: definitions ("Class", "Class.method", "function").
        names: module-level names; `attributes` those of instances; `fields` those of configs; `keywords` those of
            calls, by the called name.
    """

    paths: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    keywords: dict[tuple[str, str], str] = field(default_factory=dict)

    def path(self, target: str) -> str:
        """Return the new path of a patch target."""
        if target in self.paths:
            return self.paths[target]
        owner, _, name = target.rpartition(".")
        return f"{self.path(owner)}.{name}" if owner else target

    def apply(self, text: str) -> str:
        """Return code under the newer names."""
        if not (self.names or self.attributes or self.fields or self.keywords):
            return text
        code = Code(text)
        return splice(code.text, _edits(code, code.node, self, stored(code.node)))


def module_renames(old: SourceModule, new: SourceModule) -> Renames:
    """Return a module's renames from removed to new names on which every place agrees."""
    found = Renames(paths=_paths(old, new))
    tops = {path: now for path, now in found.paths.items() if "." not in path}
    votes: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    places = {kind: Counter(one.attr for one in _attributes(old.tree, kind)) for kind in ("attribute", "field")}
    for path, definitions in old.definitions.items():
        definition, other = definitions[-1], new.get(found.path(path))
        if other is None or isinstance(definition.node, ast.ClassDef) or isinstance(other.node, ast.ClassDef):
            continue
        for kind, old_name, new_name in _differences(definition.node, other.node):
            votes[kind, *old_name.split(" ")][new_name] += 1
    methods = {p.rpartition(".")[2]: n.rpartition(".")[2] for p, n in found.paths.items() if "." in p}
    was, now = ({kind: _mentioned(one.tree, kind) for kind in places} for one in (old, new))
    found.names = tops
    for (kind, *which), counted in votes.items():
        name, new_name = which[-1], next(iter(counted))
        if len(counted) != 1:
            continue
        if kind in places:
            gone = name not in now[kind] and new_name not in was[kind] and counted.total() >= _MOST * places[kind][name]
            if gone and kind == "field":
                found.fields[name] = new_name
            elif gone and _defines(old, name) and _defines(new, new_name):
                found.attributes[name] = new_name
        if kind == "keyword" and len(which) == 2:
            found.keywords[which[0], name] = new_name
    for name, new_name in methods.items():
        if name != new_name and name not in now["attribute"] and new_name not in was["attribute"]:
            found.attributes[name] = new_name
    return found


def rename_locals(base: str, ours: str, theirs: str) -> tuple[str, str]:
    """`base` and `ours` with upstream's newer names for parameters and locals that it renamed, in each function."""
    codes = Code(base), Code(ours), Code(theirs)
    edits: tuple[list[Edit], list[Edit]] = [], []
    for b, o, t in _functions(*(code.node for code in codes)):
        used = {one.id for one in ast.walk(o) if isinstance(one, ast.Name)} | stored(o)
        names = {old: new for old, new in local_renames(b, t).items() if new not in used}
        for side, code, node in zip(edits, codes, (b, o), strict=False):
            side += _edits(code, node, Renames(names=names), set())
    return splice(codes[0].text, edits[0]) if edits[0] else base, splice(codes[1].text, edits[1]) if edits[1] else ours


def _functions(b: ast.AST, o: ast.AST, t: ast.AST) -> list[tuple[FunctionNode, FunctionNode, FunctionNode]]:
    """Return three versions of a function, or of each method of a class that all of them have."""
    if isinstance(b, ast.ClassDef) and isinstance(o, ast.ClassDef) and isinstance(t, ast.ClassDef):
        was, mine, now = ({getattr(one, "name", ""): one for one in side.body} for side in (b, o, t))
        found = [_functions(was[name], mine[name], now[name]) for name in was if name in mine and name in now]
        return [one for some in found for one in some]
    functions = [one for one in (b, o, t) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [(functions[0], functions[1], functions[2])] if len(functions) == 3 else []


def split_locals(base: str, ours: str, theirs: str) -> tuple[str, str]:
    """`base` and `theirs` under the patch's name for a value that upstream's old code kept in a local it sets twice.

    Old code may set `scores = f(x)` and `scores = g(scores)`. Where the patch keeps both as `scores` and `weights`,
    the later one is `weights` in all three versions, also if upstream splits it now and calls it otherwise.
    """
    b, o, t = Code(base), Code(ours), Code(theirs)
    if isinstance(b.node, ast.ClassDef) or isinstance(t.node, ast.ClassDef) or isinstance(o.node, ast.ClassDef):
        return base, theirs
    known, new = stored(b.node), stored(t.node)
    for index, one in enumerate(b.node.body):
        name = _updates(one)
        own = _named_for(one, o.node, known | new) if name else None
        behind = b.node.body[index + 1 :]
        if name is None or own is None or any(name in stored(ast.Module([later], [])) for later in behind):
            continue
        assert isinstance(one, ast.Assign)
        base = splice(b.text, [*_reads(b, one.targets, name, own), *_reads(b, behind, name, own)])
        other = _named_for(one, t.node, known)
        return base, theirs if other is None else splice(t.text, _edits(t, t.node, Renames(names={other: own}), set()))
    return base, theirs


def keep_apart(base: str, ours: str, theirs: str) -> tuple[str, str, str] | None:
    """Return three versions in which a local has a name of its own, where upstream has a new parameter of the local's
    name.

    Upstream's newer code sets the local from the parameter: what is read behind that, in the same block, is the local.
    None if there is no such parameter, or the newer code reads it behind.
    """
    codes = b, o, t = Code(base), Code(ours), Code(theirs)
    if any(isinstance(one.node, ast.ClassDef) for one in codes):
        return None
    params = [set(parameter_names(one.node)) for one in codes]
    every = set().union(*(stored(one.node) for one in codes))
    for name in sorted((params[2] - params[0] - params[1]) & stored(b.node) & stored(o.node)):
        sets = [(block, at) for block, at in _blocks(t.node) if _target(block[at]) == name]
        own = f"own_{name}"
        if len(sets) != 1 or own in every:
            continue
        block, at = sets[0]
        assert isinstance(block[at], ast.Assign)
        local = [*block[at].targets, *block[at + 1 :]]  # type: ignore[attr-defined]
        last = block[at].end_lineno or 0
        behind = [one for one in ast.walk(t.node) if _is_named(one, name) and one.lineno > last]
        inside = {id(one) for top in local for one in ast.walk(top)}
        if all(id(one) in inside for one in behind):
            parts: list[Sequence[ast.AST]] = [[b.node], [o.node], local]
            return tuple(  # type: ignore[return-value]
                splice(code.text, _reads(code, nodes, name, own)) for code, nodes in zip(codes, parts, strict=True)
            )
    return None


def _blocks(node: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield every statement below a node, as its block and its place there."""
    for one in ast.walk(node):
        for block in (getattr(one, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list):
                yield from ((block, at) for at in range(len(block)))


def _target(one: ast.stmt) -> str | None:
    match one:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def _is_named(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name


def _updates(one: ast.stmt) -> str | None:
    """Return the local that a statement sets from what it holds."""
    match one:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)) else None
    return None


def _named_for(one: ast.stmt, function: FunctionNode, known: set[str]) -> str | None:
    """Return another name, not known yet and set once, to which a function assigns the value of a statement."""
    for other in function.body:
        match other:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in known:
                times = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
                            for n in ast.walk(function))  # fmt: skip
                if times == 1 and dump(value) == dump(one.value):  # type: ignore[attr-defined]
                    return name
    return None


def _reads(code: Code, nodes: Sequence[ast.AST], name: str, new: str) -> Iterator[Edit]:
    for top in nodes:
        for one in ast.walk(top):
            if isinstance(one, ast.Name) and one.id == name:
                yield Edit(code.start_of(one), code.end_of(one), new)


def local_renames(old: FunctionNode, new: FunctionNode) -> dict[str, str]:
    """Return parameters and locals that are gone, by what every place has instead."""
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for kind, was, now in _differences(old, new):
        if kind == "name":
            votes[was][now] += 1
    seen = Counter(
        one.id for part in without_docstring(old.body) for one in ast.walk(part) if isinstance(one, ast.Name)
    )
    before, after = stored(old), stored(new)
    set_before, set_after = _times_set(old), _times_set(new)
    read_before = {one.id for one in ast.walk(old) if isinstance(one, ast.Name)} | before
    read_after = {one.id for one in ast.walk(new) if isinstance(one, ast.Name)} | after
    sure = {
        was: next(iter(counted))
        for was, counted in votes.items()
        if len(counted) == 1
        and was in before
        and was not in read_after
        and (
            counted.total() > _MOST * seen[was]
            or (counted.total() > 1 and set_before[was] == set_after[next(iter(counted))] == 1)
        )
    }
    fresh = {was: now for was, now in sure.items() if now in after and now not in read_before}
    return {was: now for was, now in fresh.items() if [*fresh.values()].count(now) == 1}


def _times_set(function: FunctionNode) -> Counter[str]:
    return Counter(one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def same_but_for_locals(old: list[ast.stmt], new: list[ast.stmt]) -> bool:
    """Return whether two runs of statements are the same, whatever they call their locals."""
    names = local_renames(_as_function(old), _as_function(new))
    return [dump(_renamed(one, names)) for one in old] == [dump(one) for one in new]


def _as_function(body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef("_", ast.arguments([], [], None, [], [], None, []), body, [], lineno=1)


def _renamed(node: ast.stmt, names: Mapping[str, str]) -> ast.stmt:
    copy = ast.parse(ast.unparse(node)).body[0]
    for one in ast.walk(copy):
        if isinstance(one, ast.Name):
            one.id = names.get(one.id, one.id)
    return copy


def _edits(code: Code, top: ast.AST, renames: Renames, local: set[str]) -> Iterator[Edit]:
    """Yield the edits that rename what stands below a node; `local` are names that mean something else there."""
    names, keywords = renames.names, renames.keywords
    seen: set[int] = set()
    for node in ast.walk(top):
        match node:
            case ast.Name(id=name) if name in names and name not in local:
                yield Edit(code.start_of(node), code.end_of(node), names[name])
            case ast.arg(arg=name) if name in names and name not in local:
                start = code.start_of(node)
                yield Edit(start, start + len(name), names[name])
            case ast.Attribute(attr=name) if new := (renames.fields if _of_config(node) else renames.attributes).get(
                name
            ):
                end = code.end_of(node)
                if end not in seen:
                    seen.add(end)
                    yield Edit(end - len(name), end, new)
            case ast.Call():
                called = _called(node)
                for one in node.keywords:
                    if (called, one.arg or "") in keywords:
                        start = code.start_of(one)
                        yield Edit(start, start + len(one.arg or ""), keywords[called, one.arg or ""])
            case ast.Constant(value=str(text)) if text in names and text[0].isupper():
                start = code.start_of(node)
                at = code.text.find(text, start, code.end_of(node))
                if at >= 0:
                    yield Edit(at, at + len(text), names[text])


def _called(node: ast.Call) -> str:
    return (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )


def _differences(old: FunctionNode, new: FunctionNode) -> Iterator[tuple[str, str, str]]:
    """(kind, old, new) of every name that differs where the code around it is the same."""
    was, now = _args(old), _args(new)
    if len(was) == len(now):
        for one, other in zip(was, now, strict=True):
            if one.arg != other.arg and dump(one.annotation) == dump(other.annotation):
                yield "name", one.arg, other.arg
    yield from _in_blocks(without_docstring(old.body), without_docstring(new.body))


def _args(node: FunctionNode) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _in_blocks(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    for here, there in align(old, new, loosely=True).items():
        one, other = old[here], new[there]
        if dump(one) != dump(other):
            yield from _parallel(one, other)


def _parallel(one: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(one, ast.stmt) and isinstance(other, ast.stmt) and type(one) is not type(other):
        for parts in zip(assignment(one) or (), assignment(other) or (), strict=False):
            yield from _parallel(*parts)  # one of them has an annotation
    if type(one) is not type(other) or dump(one) == dump(other):
        return
    for name in one._fields:
        was, now = getattr(one, name), getattr(other, name)
        if isinstance(was, list) and was and isinstance(was[0], ast.stmt):
            yield from _in_blocks(was, now)
        elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            for pair in zip(was, now, strict=True):
                if isinstance(pair[0], ast.keyword) and isinstance(one, ast.Call) and _called(one) == _called(other):
                    others = {item.arg for item in was} | {None}
                    if pair[0].arg and pair[1].arg not in others and dump(pair[0].value) == dump(pair[1].value):
                        yield "keyword", f"{_called(one)} {pair[0].arg}", str(pair[1].arg)
                if isinstance(pair[0], ast.AST):
                    yield from _parallel(*pair)
        elif isinstance(was, ast.AST):
            yield from _parallel(was, now)
    match one, other:
        case ast.Name(id=was), ast.Name(id=now) if was != now:
            yield "name", was, now
        case ast.Attribute(attr=was), ast.Attribute(attr=now) if was != now and dump(one.value) == dump(other.value):
            yield "field" if _of_config(one) else "attribute", was, now


def _mentioned(tree: ast.AST, kind: str) -> set[str]:
    """Return all attributes of a kind; kind "attribute" includes the names of definitions."""
    named = {one.name for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.ClassDef))}
    return {one.attr for one in _attributes(tree, kind)} | (named if kind == "attribute" else set())


def _attributes(tree: ast.AST, kind: str) -> Iterator[ast.Attribute]:
    """Yield the fields of configs, which have names of their own, or all other attributes."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Attribute) and _of_config(one) is (kind == "field"):
            yield one


def _of_config(node: ast.Attribute) -> bool:
    match node.value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.endswith("config")
    return False


def _defines(module: SourceModule, name: str) -> bool:
    """Return whether instances of a class of the module get an attribute of that name."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(attr=attr, ctx=ast.Store()) if attr == name:
                return True
            case ast.FunctionDef(name=defined) if defined == name:
                return True
            case ast.ClassDef():
                if any(
                    isinstance(one, ast.AnnAssign) and dump(one.target) == f"Name(id='{name}', ctx=Store())"
                    for one in node.body
                ):
                    return True
    return False


def _paths(old: SourceModule, new: SourceModule) -> dict[str, str]:
    """Return definitions that are gone, each with the one new definition that is like it."""
    found: dict[str, str] = {}
    for classes in (True, False):
        gone = [
            d[-1]
            for path, d in old.definitions.items()
            if new.get(_under(path, found)) is None and d[-1].is_class is classes
        ]
        come = [
            d[-1] for path, d in new.definitions.items() if path not in old.definitions and d[-1].is_class is classes
        ]
        for definition in gone:
            path = _under(definition.path, found)
            owner = path.rpartition(".")[0]
            like = {
                other.path: _alike(definition, other)
                for other in come
                if other.path.rpartition(".")[0] == owner and other.path not in found.values()
            }
            best = sorted(like, key=like.__getitem__, reverse=True)
            if best and like[best[0]] >= _SAME and (len(best) == 1 or like[best[0]] - like[best[1]] > 0.1):
                found[definition.path] = best[0]
    return found


def _under(path: str, found: Mapping[str, str]) -> str:
    owner, _, name = path.rpartition(".")
    return f"{_under(owner, found)}.{name}" if owner and owner in found else found.get(path, path)


def _alike(one: Definition, other: Definition) -> float:
    """Return the similarity of two definitions, their names aside."""
    if type(one.node) is not type(other.node):
        return 0.0
    nameless = [_nameless(node.node) for node in (one, other)]
    return likeness(*nameless) if min(map(size, nameless)) >= _TELLING else 0.0


def _nameless(node: Any) -> ast.AST:
    if isinstance(node, ast.ClassDef):
        return ast.Module(list(without_docstring(node.body)), [])
    return ast.Module([*without_docstring(node.body), ast.Expr(ast.Lambda(node.args, ast.Constant(0)))], [])


def renamed(one: str, other: str) -> dict[str, str] | None:
    """Return the names of a module in one definition that another spells otherwise; None if they differ in more."""
    nodes = [Code(text).node for text in (one, other)]
    sides = [[node for node in ast.walk(top) if isinstance(node, ast.Name)] for top in nodes]
    pairs = {(was.id, now.id) for was, now in zip(*sides, strict=False)}
    found = {was: now for was, now in pairs if was != now}
    local = {name for top in nodes for name in stored(top)}
    if len(dict(pairs)) < len(pairs) or local & {*found, *found.values()}:
        return None
    for node in sides[0]:
        node.id = found.get(node.id, node.id)
    return found if ast.dump(nodes[0]) == ast.dump(nodes[1]) else None
