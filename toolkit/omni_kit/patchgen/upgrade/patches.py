"""One patch between two versions: its target's new place, and the three-way merge of its text."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.compare import body_text
from omni_kit.patchgen.fragment import Fragment
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.merge import merge as merge_lines
from omni_kit.patchgen.name_map import mapped
from omni_kit.patchgen.rename import rename
from omni_kit.patchgen.source import Definition, SourceModule, read_module
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.spec import PatchType
from omni_kit.patchgen.upgrade.code import Code, FunctionNode, dump, dumps, meaning, stored
from omni_kit.patchgen.upgrade.contracts import Upstream, dead_code, misfits, moved_meaning, read_too_early
from omni_kit.patchgen.upgrade.merging import merge_annotations, merge_definition
from omni_kit.patchgen.upgrade.neighbours import follow_members
from omni_kit.patchgen.upgrade.order import without_unread
from omni_kit.patchgen.upgrade.outcome import Clash
from omni_kit.patchgen.upgrade.renames import Renames, keep_apart, module_renames, rename_locals, split_locals
from omni_kit.patchgen.upgrade.repeated_changes import follow_everywhere
from omni_kit.patchgen.upgrade.results import ResultClass, annotated, replaced_results, result_class
from omni_kit.patchgen.upgrade.unchanged_bodies import is_private, leaves_out, makes_already, refuses
from omni_kit.patchgen.upgrade.values import follow_values
from omni_kit.patchgen.write import compiles
from omni_kit.plurals import counted
from omni_kit.pysource.nodes import without_docstring
from omni_kit.pysource.signatures import signature
from omni_kit.pysource.source import dotted


@dataclass
class Versions:
    """Both versions of one upstream module; `after` is None if the newer library has no such module."""

    before: Upstream
    after: Upstream | None
    renames: Renames

    @classmethod
    def of(cls, old: SourceModule, new: SourceModule | None, libraries: tuple[Libraries, Libraries]) -> "Versions":
        """Read the renames between two versions."""
        renames = module_renames(old, new) if new is not None else Renames()
        return cls(Upstream(old, libraries[0]), Upstream(new, libraries[1]) if new is not None else None, renames)

    @property
    def number(self) -> str:
        """The newer version of the library."""
        return self.after.libraries.version_of(self.after.module.name.partition(".")[0]) if self.after else "unknown"

    def vocabulary(self, text: str) -> str:
        """Return code of the newer version with the older one's aliases of modules, where the newer spells the module
        out.
        """
        if not self._aliases:
            return text
        code = Code(text)
        spelled = [node for node in ast.walk(code.node) if isinstance(node, ast.Attribute)]
        return splice(
            code.text,
            [
                Edit(code.start_of(node), code.end_of(node), alias)
                for node in spelled
                if (alias := self._aliases.get(dotted(node) or ""))
            ],
        )

    @cached_property
    def results(self) -> dict[str, str]:
        """Classes of results that the newer module dropped, each with the one that it returns instead."""
        return replaced_results(self.before.module, self.after.module) if self.after is not None else {}

    @cached_property
    def _aliases(self) -> dict[str, str]:
        if self.after is None:
            return {}
        was, now = self.before.modules, self.after.modules
        gone = {alias: module for alias, module in was.items() if alias not in self.after.bound}
        return {
            f"{name}.{module[len(other) + 1 :]}": alias
            for alias, module in gone.items()
            for name, other in now.items()
            if module.startswith(f"{other}.")
        }


@dataclass(frozen=True)
class Place:
    """The place of a target in the newer upstream.

    Attributes:
        inherited: from which class of another module it comes now; a patch has to be injected.
        imported: from which module a function comes now; a patch has to become a helper.
        dropped: whether upstream has no such method now, and other patches call it; the patch has to be injected.
    """

    target: str
    module: SourceModule | None = None
    definition: Definition | None = None
    inherited: str = ""
    imported: str = ""
    dropped: bool = False


@dataclass
class Proposal:
    """The proposed text of one use of a patch.

    Attributes:
        text: the new text, which is the old one where nothing has to change or something clashes.
        unneeded: why upstream no longer needs the patch.
        how: what was taken over, in a few words.
        decorators: what upstream put over the definition, and took away.
        imports: module and name of what the text needs in addition, from outside of upstream.
        names: names of the text that mean others in this use; its name_map gets them.
    """

    place: Place
    text: str
    clashes: list[Clash] = field(default_factory=list)
    unneeded: str = ""
    how: str = ""
    decorators: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    imports: tuple[str, str] | None = None
    names: dict[str, str] = field(default_factory=dict)


def locate(target: str, versions: Versions) -> Place:
    """Find a patch target in the new version: unchanged, renamed, inherited, or imported from another module."""
    new, now = versions.after, versions.renames.path(target)
    if new is None:
        return Place(now)
    definition = new.module.get(now)
    if definition is not None:
        part, before = _delegated(now, definition, new), versions.before.module.get(target)
        if part is not None and before is not None and _delegated(target, before, versions.before) is None:
            return Place(part.path, new.module, part)
        return Place(now, new.module, definition)
    owner, _, name = now.rpartition(".")
    if owner:
        found = _inherited(owner, name, new)
        return Place(now, found[0], found[1], inherited=found[2]) if found else Place(now)
    home = new.home(now)
    path = new.libraries.file_of(home[0]) if home else None
    if home and path:
        module = read_module(home[0], path)
        return Place(now, module, module.get(home[1]), imported=home[0])
    return Place(now)


def _delegated(path: str, definition: Definition, side: Upstream) -> Definition | None:
    """The method of the same name of a part to which a method passes its own arguments, and does nothing else."""
    owner, _, name = path.rpartition(".")
    match without_docstring(definition.node.body):
        case [
            ast.Return(
                value=ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=part))) as call
            )
        ]:
            passed = [*call.args, *(one.value for one in call.keywords)]
            made = (
                side.made(owner, part)
                if owner and isinstance(call.func, ast.Attribute) and call.func.attr == name
                else None
            )
            known = isinstance(definition.node, ast.FunctionDef) and signature(definition.node).parameters.keys()
            own = all(isinstance(one, ast.Name) and known and one.id in known for one in passed)
            return side.module.get(f"{made}.{name}") if made and own else None
    return None


def _inherited(owner: str, name: str, new: Upstream) -> tuple[SourceModule, Definition, str] | None:
    """Return the method that a class inherits, also from classes of other modules of the library."""
    definition = new.module.get(owner)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return None
    for base in (one.id for one in definition.node.bases if isinstance(one, ast.Name)):
        own = new.module.get(f"{base}.{name}")
        if own is not None:
            return new.module, own, base
        home = new.home(base)
        path = new.libraries.file_of(home[0]) if home else None
        if home and path:
            module = read_module(home[0], path)
            found = module.get(f"{home[1]}.{name}")
            if found is not None:
                return module, found, f"{home[1]} of {home[0]}"
            above = _inherited(home[1], name, Upstream(module, new.libraries))
            if above is not None:
                return above
        elif (above := _inherited(base, name, new)) is not None:
            return above
    return None


def propose(applied: Applied, original: Fragment | None, versions: Versions, patched: set[str]) -> Proposal:
    """Return the merge of one patch; `original` is its text in the config file, before any name_map."""
    place = locate(applied.patch.target, versions)
    text = original.text if original is not None else ""
    if versions.after is None:
        return Proposal(place, text, [Clash(f"{versions.before.module.name} is gone")])
    if applied.definition is None:
        return _injected(applied, original, place, versions, patched)
    was = body_text(versions.before.module, applied.definition)
    if place.definition is None or place.module is None:
        why = f"upstream no longer has {place.target}, or anything similar"
        return Proposal(place, text, [Clash(why, was, "", text)])
    now = body_text(place.module, place.definition)
    if original is None:
        same = meaning(was) == meaning(now)
        why = f"{applied.patch.replacement_source} replaces it from outside, and upstream changed it"
        return Proposal(place, "", [] if same else [Clash(why, was, now, applied.patch.replacement_source or "")])
    if applied.patch.patch_type is PatchType.INIT_MODIFICATION:
        return _init(original, place, versions, applied, now)
    return _merged(applied, original, place, versions, patched, was, now)


def _injected(
    applied: Applied, original: Fragment | None, place: Place, versions: Versions, patched: set[str]
) -> Proposal:
    """Return a method that upstream did not have."""
    assert versions.after is not None
    text = versions.renames.apply(original.text) if original is not None else ""
    assert applied.owner is not None
    owner = versions.after.module.get(versions.renames.path(applied.owner.path))
    if owner is None:
        return Proposal(
            place, original.text if original else "", [Clash(f"class {applied.owner.path} is gone", "", "", text)]
        )
    if place.definition is not None and place.module is not None and not place.inherited:
        now = body_text(place.module, place.definition)
        if original is not None and meaning(text) == meaning(now):
            return Proposal(place, text, unneeded="upstream has this method now, and it is the same")
        why = "the patch adds this method, and upstream has one of that name now"
        return Proposal(place, original.text if original else "", [Clash(why, "", now, text)])
    clashes = []
    node = Code(text).node if original is not None else None
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        clashes = misfits(node, None, place.target, versions.before, versions.after, patched)
    return Proposal(place, original.text if clashes and original else text, clashes)


def adopt(
    applied: Applied, original: Fragment, versions: Versions, patched: set[str], others: Sequence[str]
) -> Proposal | None:
    """Return the proposal for a method that upstream dropped, if other patches of its class call it; None for any
    other.

    Args:
        others: the texts of the other patches of the class.
    """
    place = Place(versions.renames.path(applied.patch.target), dropped=True)
    called = any(
        isinstance(one, ast.Attribute) and one.attr == applied.name and ast.unparse(one.value) == "self"
        for text in others
        for one in ast.walk(Code(text).node)
    )
    if applied.owner is None or applied.kept_decorators or not called:
        return None
    found = _injected(applied, original, place, versions, patched)
    found.how = "upstream dropped it, and other patches call it; the patch is injected"
    return found


def _init(original: Fragment, place: Place, versions: Versions, applied: Applied, now: str) -> Proposal:
    """Return a wrapped `__init__`: upstream's own is copied by itself; the wrapper has to fit."""
    assert versions.after is not None
    text = versions.renames.apply(original.text)
    node = Code(text).node
    clashes = []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        clashes = misfits(node, None, f"{place.target}.__init__", versions.before, versions.after, set())
    return Proposal(place, original.text if clashes else text, clashes)


def _merged(
    applied: Applied, original: Fragment, place: Place, versions: Versions, patched: set[str], was: str, now: str
) -> Proposal:
    assert versions.after is not None
    assert place.definition is not None
    assert applied.definition is not None
    name_map = applied.patch.name_map
    ours, base, theirs = original.text, _unmapped(was, name_map), _unmapped(now, name_map)
    if base is None or theirs is None:
        if was == now:
            return Proposal(place, ours)
        return Proposal(
            place, ours, [Clash("upstream changed it, and its name_map cannot be inverted", was, now, ours)]
        )
    theirs = versions.vocabulary(theirs)
    returned = _returned(base, ours, theirs, original, versions) if not name_map else None
    if returned is not None:
        base, ours = returned.before(base, ours)
    base, mine = (versions.renames.apply(one) if not name_map else one for one in (base, ours))
    owners = applied.owner_path, place.target.rpartition(".")[0]
    base, mine = (follow_members(one, owners, versions.before, versions.after) for one in (base, mine))
    base, theirs = split_locals(base, mine, theirs)
    base, mine = rename_locals(base, mine, theirs)
    decorators = _decorators(applied, place, versions)
    merged = merge_definition(base, mine, theirs, lambda one: _moved(one, versions, place.target))
    text, clashes = merged.text, merged.clashes
    if clashes and all(clash.textual for clash in clashes):
        lines = merge_lines(base.splitlines(), mine.splitlines(), theirs.splitlines())
        by_line = "\n".join(lines.lines) + "\n"
        if lines.clean and compiles(by_line, place.target) is None:
            text, clashes = by_line, []
    for follow in (follow_values, follow_everywhere, keep_apart):
        if clashes and (same := follow(base, mine, theirs)) is not None:
            followed = merge_definition(*same, lambda one: _moved(one, versions, place.target))
            if len(followed.clashes) < len(clashes):
                text, clashes = followed.text, followed.clashes
                base, mine, theirs = same
    sides = versions.before, versions.after
    newer = versions.after.module.get(owners[1])
    if clashes and (
        refuses(mine)
        or (leaves_out(base, mine, theirs) and is_private(place.target, *sides, patched))
        or makes_already(base, mine, theirs, newer.node if newer is not None else None)
    ):
        merged = merge_definition(base, mine, theirs, heads=True)
        text, clashes = merged.text, merged.clashes
    if not clashes:
        text = returned.after(text) if returned is not None else text
        dropped = stored(Code(base).node) - stored(Code(theirs).node)
        text = without_unread(text, dropped) if text != mine else text
        text = annotated(text, lambda name: versions.results.get(mapped(name, name_map or {})))
        clashes = _unfit(text, mine, base, theirs, place, versions, patched, name_map)
    ours = original.text
    if clashes:
        return Proposal(place, merge_annotations(base, ours, theirs, _bound_names(versions, name_map)), clashes)
    unneeded = ""
    if meaning(text) == meaning(theirs) and meaning(mine) != meaning(base) and not _own_decorators(applied):
        unneeded = f"upstream does the same since {versions.number}"
    needed = (returned.module, returned.other) if returned is not None else None
    return Proposal(place, text, [], unneeded, _how(ours, text, place, applied), decorators, needed)


def _returned(base: str, ours: str, theirs: str, original: Fragment, versions: Versions) -> ResultClass | None:
    config = read_module(original.path.stem, original.path)
    return result_class(base, ours, theirs, config, versions.before.libraries)


def _unfit(
    text: str, mine: str, base: str, theirs: str, place: Place, versions: Versions, patched: set[str],
    name_map: dict[str, str] | None,
) -> list[Clash]:  # fmt: skip
    """Return where the merged text does not fit; classes are compared method by method."""
    assert versions.after is not None
    merged, *sides = (Code(one).node for one in (text, mine, base, theirs))
    local = {name for one in sides for name in stored(one)}
    methods = _functions(merged) if isinstance(merged, ast.ClassDef) else [merged]
    found: list[Clash] = []
    for function in methods:
        inside = function is not merged
        target = f"{place.target}.{function.name}" if inside else place.target
        own, was, now = (_method(one, function.name) if inside else _function(one) for one in sides)
        found += misfits(function, now, target, versions.before, versions.after, patched, local)
        found += read_too_early(function, filter(None, (own, was, now)))
        if own is not None and now is not None:
            found += dead_code(function, own, now)
            found += moved_meaning(function, own, now)
    return found


def _functions(node: ast.ClassDef) -> list[FunctionNode]:
    return [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _function(node: ast.AST) -> FunctionNode | None:
    return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _method(node: ast.AST, name: str) -> FunctionNode | None:
    return next((one for one in _functions(node) if one.name == name), None) if isinstance(node, ast.ClassDef) else None


def _bound_names(versions: Versions, name_map: dict[str, str] | None) -> Callable[[str], bool]:
    """Return whether the newer module has a name, or the older one did not either."""
    assert versions.after is not None
    new, old = _names_of(versions.after.module), _names_of(versions.before.module)

    def bound(name: str) -> bool:
        meant = mapped(name, name_map or {})
        return meant in new or meant not in old

    return bound


@lru_cache(maxsize=64)
def _names_of(module: SourceModule) -> frozenset[str]:
    from omni_kit.patchgen.scopes import scopes_of

    return frozenset(scopes_of(module.text).bound)


def _unmapped(text: str, name_map: dict[str, str] | None) -> str | None:
    """Return upstream's code in the names of the patch's own file; None if turning the map around loses something."""
    if not name_map:
        return text
    back = {new: old for old, new in name_map.items()}
    if len(back) < len(name_map):
        return None
    node = Code(text).node
    fragment = Fragment(node.name, "", (), text, "", _NOWHERE, 0)
    turned = rename(fragment, back).fragment
    again = rename(turned, name_map).fragment
    return turned.text if dumps([again.node]) == dumps([node]) else None


_NOWHERE = Path()


def _decorators(applied: Applied, place: Place, versions: Versions) -> tuple[list[str], list[str]]:
    """Decorators that upstream added to, and removed from, a definition that a patch replaces with its decorators."""
    if applied.patch.patch_type is PatchType.METHOD_OVERRIDE and not place.inherited:
        return [], []  # upstream's own stay over an overridden method
    assert applied.definition is not None
    assert place.definition is not None
    was = [ast.unparse(one) for one in applied.definition.node.decorator_list]
    now = [ast.unparse(one) for one in place.definition.node.decorator_list]
    if applied.patch.patch_type is PatchType.METHOD_OVERRIDE:
        return now, []
    own = {one.removeprefix("@") for one in (applied.fragment.decorators if applied.fragment else ())}
    if any(one not in own for one in was):  # the patch leaves upstream's decorators out
        return [], [one for one in was if one not in now and one in own]
    return [one for one in now if one not in was and one not in own], [
        one for one in was if one not in now and one in own
    ]


def _own_decorators(applied: Applied) -> bool:
    return bool(applied.fragment and applied.fragment.decorators)


def _how(ours: str, text: str, place: Place, applied: Applied) -> str:
    parts = []
    if place.target != applied.patch.target:
        parts.append(f"upstream calls it {place.target}")
    if place.inherited:
        parts.append(f"upstream inherits it from {place.inherited}; the patch is injected")
    if place.imported:
        parts.append(f"upstream imports it from {place.imported}; the patch is a helper")
    if text != ours:
        was, now = ours.splitlines(), text.splitlines()
        came, went = (sum(one not in other for one in side) for side, other in ((now, was), (was, now)))
        parts.append(f"{counted(came, 'upstream line')} added, {went} removed")
    return "; ".join(parts)


def _moved(top: ast.stmt, versions: Versions, target: str) -> list[ast.stmt] | None:
    """Return the inlined body of a statement that calls a new helper of upstream's."""
    call = getattr(top, "value", None)
    if versions.after is None or not isinstance(call, ast.Call) or any(one.arg is None for one in call.keywords):
        return None
    found = versions.after.resolve(call.func, target)
    if found is None or versions.before.module.get(found[0]) is not None:
        return None
    part = found[2] and isinstance(call.func, ast.Attribute) and call.func.attr != found[1].name
    return _inlined(top, call, found[1], bound=found[2], receiver=call.func if part else None)


def _inlined(
    top: ast.stmt, call: ast.Call, helper: FunctionNode, *, bound: bool, receiver: ast.expr | None = None
) -> list[ast.stmt] | None:
    """Return the statements of a helper with the arguments of one call; None if that cannot be written down.

    Args:
        receiver: what the helper calls `self`, if it is the forward of a part.
    """
    try:
        given = signature(helper, bound=bound).bind(
            *call.args, **{one.arg: one.value for one in call.keywords if one.arg}
        )
    except TypeError:
        return None
    given.apply_defaults()
    body = without_docstring(helper.body)
    returned = body[-1] if body and isinstance(body[-1], ast.Return) else None
    if any(isinstance(one, ast.Return) and one is not returned for part in body for one in ast.walk(part)):
        return None

    class Writer(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            value = receiver if receiver is not None and node.id == "self" else given.arguments.get(node.id)
            return (
                value if isinstance(value, ast.expr) and not isinstance(node.ctx, ast.Store) else _stored(node, value)
            )

    found = [Writer().visit(ast.parse(ast.unparse(one)).body[0]) for one in (body[:-1] if returned else body)]
    value = (
        Writer().visit(ast.parse(ast.unparse(returned.value), mode="eval").body)
        if returned and returned.value
        else None
    )
    match top, value:
        case ast.Assign(targets=[target]), ast.expr():
            if dump(target).replace("Store()", "Load()") != dump(value):
                found.append(ast.Assign([target], value, lineno=1))
        case ast.Return(), ast.expr():
            found.append(ast.Return(value))
        case ast.Expr(), None:
            pass
        case _:
            return None
    return [ast.parse(ast.unparse(ast.fix_missing_locations(one))).body[0] for one in found]


def _stored(node: ast.Name, value: object) -> ast.Name:
    """Return a parameter that the helper sets again: the caller's name, where it passed one."""
    return ast.Name(value.id, node.ctx) if isinstance(value, ast.Name) else node
