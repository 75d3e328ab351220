"""Checks of merged patches against their classes and against the other patches of their config."""

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from omni_kit.patchgen.source import SourceModule, read_module
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.code import Code, FunctionNode, dump
from omni_kit.patchgen.upgrade.contracts import Upstream, defined, results_of, simple
from omni_kit.patchgen.upgrade.outcome import Clash

Functions = Mapping[str, FunctionNode]


def functions_of(target: str, text: str) -> dict[str, FunctionNode]:
    """Return the functions of a patch's text by their paths: one, or the methods of a class."""
    node = Code(text).node
    if not isinstance(node, ast.ClassDef):
        return {target: node}
    inner = (one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {f"{target}.{one.name}": one for one in inner}


def changed_results(path: str, merged: FunctionNode, before: Functions, after: Functions, new: Upstream) -> list[Clash]:
    """Return the patch's own calls of functions whose patches return another number of results after the merge.

    Args:
        path: where upstream has the function.
        before, after: the functions of all patches, as they were and as merged.
    """
    own = new.module.get(path)
    known = {dump(one) for one in ast.walk(own.node) if isinstance(one, ast.stmt)} if own is not None else set()
    found = []
    for top in simple(merged):
        for call in (one for one in ast.walk(top) if isinstance(one, ast.Call) and dump(top) not in known):
            callee = new.resolve(call.func, path)
            name = callee[0] if callee is not None else ""
            if name in before and name in after:
                was, now = ({len(one) for one in results_of(side[name])} for side in (before, after))
                if was and now and was != now:
                    text = " ".join(ast.unparse(top).split())[:100]
                    found.append(Clash(f"upstream's {name} returns another number of results now", "", "", text))
    return found


def lost_members(
    places: tuple[str, str], merged: FunctionNode, before: Upstream, after: Upstream, patched: Functions
) -> list[Clash]:
    """Return the attributes that a method reads of `self`, and its class no longer has, though another class may.

    Args:
        places: the paths of the method in the older and in the newer version.
        patched: the functions of all patches as merged, which may set attributes, too.
    """
    was, owner = (path.rpartition(".")[0] for path in places)
    had = set(_members(before, was))
    has = {name for path, node in patched.items() if path.startswith(f"{owner}.") for name in _set_by(path, node)}
    has |= {*_members(after, owner), *_set_by("", merged)}
    reads = [one for one in ast.walk(merged) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)]
    lost = dict.fromkeys(one.attr for one in reads if _of_self(one) and one.attr in had - has)
    return [
        Clash(f"the patch uses self.{name}, which {owner} no longer has", f"self.{name}", "", f"self.{name}")
        for name in lost
    ]


def follow_members(text: str, owners: tuple[str, str], before: Upstream, after: Upstream) -> str:
    """Return a method's code that reads attributes where the newer class has them: in a new part that took them over.

    Args:
        owners: the class in the older and in the newer version.
    """
    homes = _moved_members(owners, before, after)
    code = Code(text)
    if not homes or isinstance(code.node, ast.ClassDef):
        return text
    read = [one for one in ast.walk(code.node) if isinstance(one, ast.Attribute) and _of_self(one)]
    edits = [Edit(code.start_of(one), code.end_of(one), homes[one.attr]) for one in read if one.attr in homes]
    return splice(code.text, edits) if edits else text


@lru_cache(maxsize=1024)
def _moved_members(owners: tuple[str, str], before: Upstream, after: Upstream) -> dict[str, str]:
    had, has = ({*_members(side, owner)} for side, owner in zip((before, after), owners, strict=True))
    found: dict[str, list[str]] = {}
    for part in has - had:
        made = after.made(owners[1], part)
        for name in (had - has) & {*_members(after, made or "")}:
            found.setdefault(name, []).append(f"self.{part}.{name}")
    return {name: homes[0] for name, homes in found.items() if len(homes) == 1}


def new_readers(
    places: tuple[str, str], merged: FunctionNode, before: Upstream, after: Upstream, patched: Functions
) -> list[Clash]:
    """Return the code that calls a function only in the newer version, if its patch returns a part of the result.

    Args:
        places: the paths of the function in the older and in the newer version.
        patched: the functions of all patches, whose calls of it are theirs to keep.
    """
    own = after.module.get(places[1])
    if own is None or isinstance(own.node, ast.ClassDef) or not _parts(results_of(merged), results_of(own.node)):
        return []
    readers = after.readers(places[1]).keys() - before.readers(places[0]).keys() - patched.keys()
    why = f"calls {places[1]} now, and the patch returns only a part of the result"
    return [Clash(f"upstream's {reader} {why}") for reader in sorted(readers)]


def _parts(ours: list[list[ast.expr]], theirs: list[list[ast.expr]]) -> bool:
    """Return whether one of some results is an attribute or an element of another side's result."""
    whole = {dump(one) for values in theirs for one in values}
    mine = [one for values in ours for one in values if isinstance(one, (ast.Attribute, ast.Subscript))]
    return any(dump(one) not in whole and dump(one.value) in whole for one in mine)


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _set_by(path: str, node: ast.AST) -> Iterator[str]:
    yield path.rpartition(".")[2]
    own = (one for one in ast.walk(node) if isinstance(one, ast.Attribute) and _of_self(one))
    yield from (one.attr for one in own if isinstance(one.ctx, ast.Store))


def _members(upstream: Upstream, owner: str) -> Iterator[str]:
    """Yield names of methods and attributes of a class and its bases; those of bases elsewhere with all of their
    module.
    """
    definition = upstream.module.get(owner)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return
    yield from _own(upstream.module, owner)
    for base in (one.id for one in definition.node.bases if isinstance(one, ast.Name) and one.id != owner):
        yield from _members(upstream, base)
        home = upstream.home(base)
        path = upstream.libraries.file_of(home[0]) if home else None
        if home and path:
            yield from defined(read_module(home[0], path))


@lru_cache(maxsize=256)
def _own(module: SourceModule, owner: str) -> frozenset[str]:
    definition = module.get(owner)
    assert definition is not None
    found = set()
    for node in ast.walk(definition.node):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="register_buffer" | "register_parameter")):
                found |= {str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant)}
    return frozenset(found)
