"""Check whether a merged patch still fits the upstream around it: its names, the attributes it reads, the functions
it calls.

Text that merges without a clash can be wrong all the same: a patch's own line continues reading what upstream no longer
sets, or reads one thing for another. Each check here finds such a line and names it.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from inspect import Signature
from typing import Any

from omni_kit.patchgen.callgraph import Call, calls_in
from omni_kit.patchgen.imports import absolute, bound_by
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.patchgen.source import Definition, SourceModule, read_module
from omni_kit.patchgen.upgrade.code import LONG, FunctionNode, dump, read, stored, written, written_out
from omni_kit.patchgen.upgrade.outcome import Clash
from omni_kit.pysource.definite_assignment import unset_reads
from omni_kit.pysource.nodes import without_docstring
from omni_kit.pysource.signatures import misfit, positional, required, signature


class Upstream:
    """One version of an upstream module, with what its functions call."""

    def __init__(self, module: SourceModule, libraries: Libraries) -> None:
        self.module, self.libraries = module, libraries

    @cache  # noqa: B019 - lives as long as one upgrade
    def calls(self, caller: str) -> dict[str, tuple[str, FunctionNode]]:
        """Return the callees of one definition's calls, by the text of the called expression."""
        found = {}
        for call in self._known_calls.get(caller, ()):
            definition = self.module.get(call.target)
            if definition is not None and isinstance(definition.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found[ast.unparse(call.node.func)] = call.target, definition.node
        return found

    @cache  # noqa: B019 - lives as long as one upgrade
    def fields(self, path: str) -> set[str]:
        """Return the fields that the module reads of a definition's results, right from its calls or from locals."""
        found = set()
        for caller, calls in self._known_calls.items():
            results = {dump(one.node) for one in calls if one.target == path}
            within = self.module.get(caller) if results else None
            nodes = list(ast.walk(within.node)) if within is not None else []
            for node in nodes:
                if isinstance(node, ast.Assign) and dump(node.value) in results:
                    results |= {dump(one).replace("Store()", "Load()") for one in node.targets}
            found |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and dump(one.value) in results}
        return found

    @cache  # noqa: B019 - lives as long as one upgrade
    def readers(self, path: str) -> dict[str, list[Call]]:
        """Return the definitions that call another one and do more than return its result, each with its calls."""
        found = {caller: [one for one in calls if one.target == path] for caller, calls in self._known_calls.items()}
        return {caller: calls for caller, calls in found.items() if calls and not self._passes_on(caller)}

    def _passes_on(self, path: str) -> bool:
        definition = self.module.get(path)
        body = without_docstring(definition.node.body) if definition is not None else []
        return len(body) == 1 and isinstance(body[0], ast.Return) and isinstance(body[0].value, ast.Call)

    @cached_property
    def _known_calls(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        for call in calls_in(self.module):
            found.setdefault(call.caller, []).append(call)
        return found

    def resolve(self, func: ast.expr, caller: str) -> tuple[str, FunctionNode, bool] | None:
        """(its path, its node, whether a receiver is bound) of what an expression in `caller` calls."""
        known = self.calls(caller).get(ast.unparse(func))
        owner = caller.rpartition(".")[0]
        if known is not None:
            return known[0], known[1], "." in known[0]
        match func:
            case ast.Name(id=name):
                definition = self.module.get(name)
                if definition is not None:
                    return self._function(name, definition)
                return self.imported(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if owner:
                return self._of_attribute(owner, name)
        return None

    def _function(self, path: str, definition: Definition) -> tuple[str, FunctionNode, bool] | None:
        if isinstance(definition.node, ast.ClassDef):
            made = self.module.get(f"{path}.__init__")
            if made is not None and isinstance(made.node, ast.FunctionDef):
                return made.path, made.node, True
            return None
        return path, definition.node, False

    def _of_attribute(self, owner: str, name: str) -> tuple[str, FunctionNode, bool] | None:
        """`self.name(...)`: a method, or the forward of the module that `__init__` puts there."""
        for path in (f"{owner}.{name}", *(f"{base}.{name}" for base in self._bases(owner))):
            definition = self.module.get(path)
            if definition is not None and not isinstance(definition.node, ast.ClassDef):
                return path, definition.node, True
        made = self.made(owner, name)
        definition = self.module.get(f"{made}.forward") if made else None
        if definition is not None and not isinstance(definition.node, ast.ClassDef):
            return definition.path, definition.node, True
        return None

    @cache  # noqa: B019 - lives as long as one upgrade
    def made(self, owner: str, name: str) -> str | None:
        """Return the class of the module that `__init__` puts into an attribute."""
        definition = self.module.get(owner)
        for node in ast.walk(definition.node) if definition is not None else ():
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)],
                    value=ast.Call(func=ast.Name(id=made)),
                ) if attr == name:
                    return made
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)],
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id=made), attr="_from_config")),
                ) if attr == name:
                    return made
        return None

    def _bases(self, owner: str) -> list[str]:
        definition = self.module.get(owner)
        if definition is None or not isinstance(definition.node, ast.ClassDef):
            return []
        own = [base.id for base in definition.node.bases if isinstance(base, ast.Name) and base.id != owner]
        return [*own, *(above for base in own for above in self._bases(base))]

    def imported(self, name: str) -> tuple[str, FunctionNode, bool] | None:
        """Return a function that the module imports from its own library."""
        home = self.home(name)
        if home is None:
            return None
        module, original = home
        path = self.libraries.file_of(module)
        if path is None:
            return None
        definition = read_module(module, path).get(original)
        if definition is None or isinstance(definition.node, ast.ClassDef):
            return None
        return f"{module}.{original}", definition.node, False

    def home(self, name: str) -> tuple[str, str] | None:
        """(module, name there) of a name that the module imports from its own library."""
        return self.homes.get(name)

    @cached_property
    def homes(self) -> dict[str, tuple[str, str]]:
        """(module, name there) of each name that the module imports from its own library."""
        found: dict[str, tuple[str, str]] = {}
        for _, node in self.module.nodes[ast.ImportFrom]:
            module = absolute(node, self.module.name, self.module.path.name == "__init__.py")
            if module.partition(".")[0] == self.module.name.partition(".")[0]:
                for alias in node.names:
                    found.setdefault(bound_by(alias, node), (module, alias.name))
        return found

    @cached_property
    def modules(self) -> dict[str, str]:
        """The modules that the module imports at its top level, by the names that it gives them."""
        found: dict[str, str] = {}
        for node in self.module.tree.body:
            if isinstance(node, ast.Import):
                for one in node.names:
                    found[bound_by(one, node)] = one.name if one.asname else one.name.partition(".")[0]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.update({bound_by(one, node): f"{node.module}.{one.name}" for one in node.names})
        return found

    @cached_property
    def bound(self) -> set[str]:
        """The names that the module binds."""
        return scopes_of(self.module.text).bound


def misfits(
    merged: FunctionNode, now: FunctionNode | None, target: str, old: Upstream, new: Upstream, patched: Iterable[str],
    local: Iterable[str] = (),
) -> list[Clash]:  # fmt: skip
    """Return where a merged patch of `target` does not fit the newer upstream.

    Args:
        now: upstream's newer version of the target; None for a method that only the patch has.
        patched: targets that the config replaces, whose upstream form does not count.
        local: names that are locals in one of the three versions.
    """
    known = {dump(one) for one in ast.walk(now) if isinstance(one, (ast.Call, ast.stmt))} if now is not None else set()
    found = [*_lost_locals(merged, set(local), new), *_gone_attributes(merged, old, new)]
    found += _unfit_calls(merged, known, target, old, new, set(patched))
    return [*found, *_passed_on(merged, old, new, set(patched))]


def moved_meaning(merged: FunctionNode, ours: FunctionNode, theirs: FunctionNode) -> Iterator[Clash]:
    """A line of the patch works on a value that upstream computes otherwise now, and reads otherwise behind it."""
    mine, now = ({dump(one) for one in simple(side)} for side in (ours, theirs))
    run = list(simple(merged))
    for index, one in enumerate(run):
        if dump(one) in now or not isinstance(one, ast.Assign):
            continue  # not the patch's own
        for name in written([one]) & read([one]):
            before = next((o for o in reversed(run[:index]) if name in written([o])), None)
            behind = [o for o in run[index + 1 :] if name in read([o]) and dump(o) not in mine and dump(o) in now]
            if before is not None and dump(before) not in mine and not _set_alike(before, name, ours) and behind:
                text = " ".join(ast.unparse(one).split())[:100]
                reason = (
                    f"upstream changed what {name} is, and how it is read; the patch's `{text}` works on it in between"
                )
                yield Clash(reason, "", f"{ast.unparse(before)}\n...\n{ast.unparse(behind[0])}", text)
                break


def _set_alike(one: ast.stmt, name: str, ours: FunctionNode) -> bool:
    """Return whether the patch unpacks the same part of the same value to a name, whatever it calls the other parts."""

    def part(node: ast.stmt) -> tuple[str, list[bool]] | None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=value):
                return dump(value), [isinstance(place, ast.Name) and place.id == name for place in elements]
        return None

    return part(one) is not None and any(part(one) == part(other) for other in simple(ours))


def dead_code(merged: FunctionNode, ours: FunctionNode, theirs: FunctionNode) -> list[Clash]:
    """New statements of upstream whose results nothing reads in the patch, though upstream reads them."""
    mine = {dump(one) for one in ast.walk(ours) if isinstance(one, ast.stmt)}
    read = {one.id for one in ast.walk(merged) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    wanted = {one.id for one in ast.walk(theirs) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    found = []
    for node in ast.walk(merged):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if dump(node) not in mine and name in wanted - read:
                text = ast.unparse(node)
                found.append(Clash(f"upstream's new `{text[:80]}` has no effect in the patch", "", text, ""))
    return found


def read_too_early(merged: FunctionNode, versions: Iterable[FunctionNode]) -> Iterator[Clash]:
    """Locals that the merged code reads before it sets them, though none of the versions that it comes from does."""
    known = [one for version in versions for one in unset_reads(version)]
    excused = {(one.name, one.never, dump(one.statement)) for one in known}
    names = {(one.name, one.never) for one in known}
    statements = {place for _, _, place in excused}
    seen: set[str] = set()
    for one in unset_reads(merged):
        place = dump(one.statement)
        merely_merged = place not in statements and (one.name, one.never) in names
        if one.name in seen or merely_merged or (one.name, one.never, place) in excused:
            continue
        seen.add(one.name)
        text = " ".join(ast.unparse(one.statement).split())[:100]
        when = "before anything sets it" if one.never else "on a path that has not set it"
        yield Clash(f"the patch reads {one.name} {when}, after upstream's change", "", "", text)


def _lost_locals(merged: FunctionNode, local: set[str], new: Upstream) -> Iterator[Clash]:
    """Names that are read, are bound nowhere in the merged code, and that a version of it had as locals."""
    bound = stored(merged)
    seen: set[str] = set()
    for node in ast.walk(merged):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in bound | seen | new.bound:
            continue
        if node.id in local:
            seen.add(node.id)
            yield Clash(f"the patch reads {node.id}, which upstream no longer sets or passes", "", "", node.id)


def _gone_attributes(merged: FunctionNode, old: Upstream, new: Upstream) -> Iterator[Clash]:
    """Yield attributes and methods that the older module defines and the newer one does not mention any more."""
    gone = defined(old.module) - mentioned(new.module)
    seen: set[str] = set()
    for node in ast.walk(merged):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or node.attr not in gone - seen:
            continue
        if not _inherited(node.attr, new) and not _is_field(node.attr, new):
            seen.add(node.attr)
            text = ast.unparse(node)
            yield Clash(f"the patch uses {text}, which upstream no longer has", text, "", text)


def _inherited(name: str, new: Upstream) -> bool:
    """Return whether a class that the newer module imports from its own library defines the attribute."""
    for definition in [d[-1] for d in new.module.definitions.values() if d[-1].is_class]:
        assert isinstance(definition.node, ast.ClassDef)
        for base in definition.node.bases:
            home = new.home(base.id) if isinstance(base, ast.Name) else None
            path = new.libraries.file_of(home[0]) if home else None
            if home and path and name in defined(read_module(home[0], path)):
                return True
    return False


def _is_field(name: str, new: Upstream) -> bool:
    """Return whether a class of results that the newer module imports declares the field."""
    for module, original in new.homes.values():
        path = new.libraries.file_of(module)
        definition = read_module(module, path).get(original) if path else None
        if definition is not None and any(
            isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == name
            for one in definition.node.body
        ):
            return True
    return False


@lru_cache(maxsize=256)
def defined(module: SourceModule) -> set[str]:
    """Return the names of methods, and of attributes that are assigned through `self` or in a class body."""
    found = {path.rpartition(".")[2] for path in module.definitions if "." in path}
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.ClassDef():
                found |= {
                    one.target.id
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
                found |= {
                    t.id
                    for one in node.body
                    if isinstance(one, ast.Assign)
                    for t in one.targets
                    if isinstance(t, ast.Name)
                }
    return found


@lru_cache(maxsize=64)
def mentioned(module: SourceModule) -> set[str]:
    """Return every attribute that a module reads or sets, and every name that it defines."""
    return {one.attr for one in ast.walk(module.tree) if isinstance(one, ast.Attribute)} | defined(module)


def _passed_on(merged: FunctionNode, old: Upstream, new: Upstream, patched: set[str]) -> Iterator[Clash]:
    """`Class.method` as a value: whoever gets it calls it as the older version was called, on whatever `self`."""
    called = {id(one.func) for one in ast.walk(merged) if isinstance(one, ast.Call)}
    for node in ast.walk(merged):
        if not isinstance(node, ast.Attribute) or id(node) in called:
            continue
        path = ast.unparse(node)
        was, now = old.module.get(path), new.module.get(path)
        if was is None or now is None or path in patched:
            continue
        if isinstance(was.node, ast.ClassDef) or isinstance(now.node, ast.ClassDef):
            continue
        more = [name for name in required(signature(now.node)) if name not in required(signature(was.node))]
        reads = sorted(_of_self(now.node) - _of_self(was.node))
        if more:
            yield Clash(f"the patch passes {path} on, which needs {', '.join(more)} now", "", "", path)
        elif reads:
            yield Clash(f"the patch passes {path} on, which reads self.{', self.'.join(reads)} now", "", "", path)


def _of_self(node: FunctionNode) -> set[str]:
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }


def _unfit_calls(
    merged: FunctionNode, known: set[str], target: str, old: Upstream, new: Upstream, patched: set[str]
) -> Iterator[Clash]:
    """Calls of the patch's own that the newer function refuses, or that mean something else to it."""
    for top in simple(merged):
        same = dump(top) in known
        for call in (one for one in ast.walk(top) if isinstance(one, ast.Call)):
            after = new.resolve(call.func, target)
            if after is None:
                continue
            before = old.resolve(call.func, target)
            if before is not None and not same:
                yield from _read_otherwise(top, call, old.fields(before[0]) - new.fields(after[0]))
            if after[0] in patched:
                continue
            if not same:
                yield from _unfit(call, before, after, target, fresh=dump(call) not in known)
            if before is not None and dump(before[1]) != dump(after[1]):
                sides = _Side(before[1], old), _Side(after[1], new)
                earlier = _unpacked(call, old.module.get(target)) if same else []
                yield from _changed_result(top, call, sides[0], sides[1], merged, known, earlier)


def _unfit(call: ast.Call, before: Any, after: Any, target: str, *, fresh: bool) -> Iterator[Clash]:
    path, node, bound = after
    text = " ".join(ast.unparse(call).split())
    shown = text if len(text) < 100 else f"{text[:97]}..."
    takes = signature(node, bound=bound)
    then = signature(before[1], bound=before[2]) if before is not None else None
    why = _refusal(call, takes)
    if why and (then is None or not _refusal(call, then)):
        yield Clash(f"the patch calls {path.rpartition('.')[2] if '.' not in path else path}: {why}", "", "", shown)
    elif then is not None and fresh:
        was, now = positional(then), positional(takes)
        placed = sum(not isinstance(one, ast.Starred) for one in call.args)
        other = [f"{a} is {b}" for a, b in zip(was[:placed], now[:placed], strict=False) if a != b]
        if other:
            reason = f"the patch passes {path} its arguments by position, whose meaning changed ({', '.join(other)})"
            yield Clash(reason, "", "", shown)


def _read_otherwise(top: ast.stmt, call: ast.Call, gone: set[str]) -> Iterator[Clash]:
    """Yield the fields of a call's result that upstream has stopped reading wherever it calls the function."""
    for one in ast.walk(top):
        if isinstance(one, ast.Attribute) and one.value is call and one.attr in gone:
            text = " ".join(ast.unparse(top).split())[:100]
            yield Clash(f"upstream no longer reads {one.attr} of what {ast.unparse(call.func)} returns", "", "", text)


def _refusal(call: ast.Call, takes: Signature) -> str:
    """Return why a call does not fit a signature; empty if it does, or if `*` and `**` leave it open."""
    if any(isinstance(one, ast.Starred) for one in call.args):
        return ""
    spread = any(one.arg is None for one in call.keywords)
    return misfit(takes, len(call.args), [one.arg for one in call.keywords if one.arg], spread)


@dataclass(frozen=True)
class _Side:
    """A called function in one version of its module."""

    node: FunctionNode
    upstream: Upstream


def _unpacked(call: ast.Call, caller: Definition | None) -> list[str]:
    """Return the names to which the older caller unpacked the results of a call; none if it had no such call."""
    for one in ast.walk(caller.node) if caller is not None else ():
        match one:
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=value) if dump(value) == dump(call):
                return [element.id if isinstance(element, ast.Name) else "" for element in elements]
    return []


def _changed_result(
    top: ast.stmt, call: ast.Call, was: _Side, now: _Side, merged: FunctionNode, known: set[str], earlier: list[str]
) -> Iterator[Clash]:
    """Yield changed results: a function returns another kind of thing, or one of several results changed meaning.

    Args:
        earlier: the names that upstream's older caller gave the results, where it may order them differently.
    """
    before, after = results_of(was.node), results_of(now.node)
    if not before or not after:
        return
    text = " ".join(ast.unparse(top).split())[:100]
    if {len(one) for one in before} != {len(one) for one in after} or _makers(before) != _makers(after):
        if dump(top) not in known:
            reason = f"upstream's {was.node.name} returns something else now: {_shown(now.node)}"
            yield Clash(reason, _shown(was.node), _shown(now.node), text)
        return
    match top:
        case ast.Assign(targets=[ast.Tuple(elts=elements)], value=value) if value is call and len(before[0]) == len(
            elements
        ):
            for index, element in enumerate(elements):
                if not isinstance(element, ast.Name):
                    continue
                place = earlier.index(element.id) if element.id in earlier else index
                if not _flows_differ(_flow(was, place), _flow(now, index)):
                    continue
                own = [
                    one
                    for one in simple(merged)
                    if one is not top
                    and dump(one) not in known
                    and any(
                        isinstance(n, ast.Name) and n.id == element.id and isinstance(n.ctx, ast.Load)
                        for n in ast.walk(one)
                    )
                ]
                if own:
                    line = " ".join(ast.unparse(own[0]).split())[:100]
                    reason = (
                        f"upstream computes {element.id} differently, which {was.node.name} returns and the patch reads"
                    )
                    yield Clash(reason, _flow(was, place), _flow(now, index), line)


def results_of(node: FunctionNode) -> list[list[ast.expr]]:
    """Return the values of each return of a function, as a list."""
    returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
    return [list(one.elts) if isinstance(one, ast.Tuple) else [one] for one in returned]


def _makers(results: list[list[ast.expr]]) -> set[str]:
    """Return the classes that results are made of, which begin with a capital: by their fields, where all are named."""
    return {
        " ".join(sorted(str(field.arg) for field in one.keywords)) if _all_named(one) else one.func.id
        for values in results
        for one in values
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id[:1].isupper()
    }


def _all_named(call: ast.Call) -> bool:
    return bool(call.keywords) and not call.args and all(one.arg for one in call.keywords)


def _shown(node: FunctionNode) -> str:
    returns = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
    return " ".join(ast.unparse(returns[-1]).split())[:100] if returns else "nothing"


def _flows_differ(one: str, other: str) -> bool:
    return bool(one and other) and one != other


def _flow(side: _Side, index: int) -> str:
    """Return the computation of one result of a straight function, its locals written out; empty if branches decide."""
    values: dict[str, ast.expr] = {
        name: ast.parse(module, mode="eval").body for name, module in side.upstream.modules.items() if name != module
    }
    for one in without_docstring(side.node.body):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = written_out(value, values)
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=value):
                whole = written_out(value, values)
                for place, element in enumerate(elements):
                    if isinstance(element, ast.Name):
                        values[element.id] = ast.Subscript(whole, ast.Constant(place), ast.Load())
            case ast.Return(value=ast.Tuple(elts=elements)) if index < len(elements):
                text = ast.unparse(_with_defaults(written_out(elements[index], values), side.upstream))
                return text if len(text) < LONG else ""
            case _:
                for name in stored(ast.Module([one], [])):
                    values[name] = ast.Name(f"{name}'", ast.Load())
    return ""


def _with_defaults(value: ast.expr, upstream: Upstream) -> ast.expr:
    """An expression with every argument of the calls of the module's own functions by name, defaults included."""

    class Writer(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            definition = upstream.module.get(node.func.id) if isinstance(node.func, ast.Name) else None
            if definition is None or isinstance(definition.node, ast.ClassDef):
                return node
            try:
                named = {str(one.arg): one.value for one in node.keywords}
                given = signature(definition.node).bind(*node.args, **named)
            except TypeError:
                return node
            given.apply_defaults()
            whole = all(
                isinstance(one, ast.expr) and not isinstance(one, ast.Starred) for one in given.arguments.values()
            )
            return ast.Call(node.func, [], [ast.keyword(*one) for one in given.arguments.items()]) if whole else node

    written: ast.expr = Writer().visit(value)
    return written


def simple(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements without blocks below a node, and the heads of those with blocks as expressions."""
    for one in ast.walk(node):
        if not isinstance(one, ast.stmt) or one is node:
            continue
        if not hasattr(one, "body"):
            yield one
        elif isinstance(one, (ast.If, ast.While)):
            yield ast.copy_location(ast.Expr(one.test), one)
        elif isinstance(one, ast.For):
            yield ast.copy_location(ast.Expr(one.iter), one)
