"""The rule about code that was derived from diffusers and edited since: SGD602."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from typing import TypeGuard

from omni_checkers.codediff.align import ClonePair
from omni_checkers.codediff.changes import alterations, changes, left_out
from omni_checkers.codediff.clones import CloneIndex, Function, functions_of
from omni_checkers.codediff.fingerprint import fingerprint, unparse_cached
from omni_checkers.codediff.loops import collected
from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.sglang_diffusion.examples import DIT, QWEN, changed, with_record
from omni_checkers.sglang_diffusion.facts.originals import Original
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_kit.targets.protocol import TODO_MARK
from omni_kit.upstream.diffusers.classes import find_class

_LONGEST = 90
_UNSEEN = ("ctx", "type_comment", "annotation", "returns")
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SKIPPED = (*_DEFINES, ast.Import, ast.ImportFrom)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_MOSTLY = 0.6  # of the methods and fields of a class
_EVIDENCE = 3  # long functions that only a scaffold has


class DerivedCodeIsUnchanged(Rule):
    """Keep the code that new-model derived from diffusers unchanged.

    The rule compares every file with the scaffold's record, function by function: changed expressions, deleted
    statements and methods, and statements added to a function. It ignores your own definitions and imports, functions
    that the scaffold left to you, other names for its functions and classes, and loops instead of comprehensions.

    Without a record it derives the files again from the installed diffusers. In an integration that has several of
    their functions it finds their classes by methods and fields, under any name and in any file, and other definitions
    by their names. Of other functions that copy most of a function that is derived, or of diffusers' pipeline and
    denoiser, it reports statements that use the same names differently.

    Why: steps, guidance, scales and conditions in these files equal diffusers' call. A changed sign, factor or argument
    gives other images without an error.

    Fine when: the change is deliberate and parity still passes; suppress the finding with that reason.
    """

    id = "SGD602"
    name = "derived-code-is-unchanged"
    target = "sglang-diffusion"
    severity = Severity.warning
    obligations = ("SGL-51",)
    BAD = (
        with_record(changed(DIT, ("(timestep / 1000)", "(timestep / 100)"))),
        with_record(changed(DIT, ("x = x + timestep", "x = x - timestep"))),
        with_record(changed(DIT, ("        cos, sin = freqs_cis\n", "        sin, cos = freqs_cis\n"))),
    )
    GOOD = (with_record({DIT: f"{QWEN[DIT]}\n\ndef mine():\n    return 1\n"}),)

    def check(self, originals: list[Original], files: dict[Path, File], serving: Serving | None = None) -> Findings:
        derived = [(one, collected(ast.parse(one.text))) for one in originals]
        trees: dict[Path, ast.Module] = {}
        for path, file in files.items():
            with suppress(SyntaxError):  # another rule says so
                trees[path] = collected(ast.parse(file.text))
        recorded = any(one.recorded for one in originals)
        if recorded:
            found = ((one, was, one.file.path) for one, was in derived if one.file is not None)
            pairs = [(one, was, trees[path], path) for one, was, path in found if path in trees]
        else:
            pairs = _found_again(derived, trees)
        names = {new: old for _, was, now, _ in pairs for new, old in _renamed(was, now)}
        for one, was, now, path in pairs:
            former = _Former(names).visit(now) if names else now
            for node, message in _differences(was, former, one.text.splitlines(), "module"):
                yield Finding(message, path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
        if not recorded:
            known = {id(node) for _, _, now, _ in pairs for node in now.body}
            references = [*_derived_functions(originals), *_upstream_functions(serving)]
            for path, tree in sorted(trees.items()):
                left = ast.Module([node for node in tree.body if id(node) not in known], [])
                yield from _changed_copies(left, path, references)


_Pair = tuple[Original, ast.Module, ast.Module, Path]


def _found_again(derived: Sequence[tuple[Original, ast.Module]], trees: Mapping[Path, ast.Module]) -> list[_Pair]:
    """Return each derived definition next to the integration's own of it, as modules of one statement.

    Classes are found by what is in them, functions and constants by their names. There are none if the integration
    has few of the long functions as they are derived: then a person wrote it.
    """
    if len(_long_functions(tree for _, tree in derived) & _long_functions(trees.values())) < _EVIDENCE:
        return []
    known = [(one, node) for one, tree in derived for node in tree.body if _called(node)]
    named = Counter(_called(was) for _, was in known)
    alone = {_called(was): (one, was) for one, was in known if named[_called(was)] == 1}
    units = [({*_units(was)}, one, was) for one, was in known if isinstance(was, ast.ClassDef)]
    pairs: list[_Pair] = []
    for path, node in [(file, node) for file in sorted(trees) for node in trees[file].body]:
        found = alone.get(_called(node))
        if isinstance(node, ast.ClassDef) and units:
            mine = {*_units(node)}
            theirs, one, was = max(units, key=lambda each: len(each[0] & mine) / max(1, len(each[0])))
            if len(theirs & mine) >= _MOSTLY * len(theirs) > 0:
                found = one, was
            elif found is None or not isinstance(found[1], ast.ClassDef) or mine.isdisjoint(_units(found[1])):
                continue  # another class of that name
        if found is not None:
            pairs.append((found[0], ast.Module([found[1]], []), ast.Module([node], []), path))
    return pairs


def _long_functions(trees: Iterable[ast.Module]) -> set[int]:
    """Return the fingerprints of the functions that are long enough to be compared."""
    return {fingerprint(one.node) for tree in trees for one in functions_of(tree, Path(), Path())}


def _called(node: ast.stmt) -> str:
    """Return the name that a definition or an assignment gives; empty for other statements."""
    match node:
        case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Assign([ast.Name(name)]):
            return name
    return ""


def _units(tree: ast.ClassDef) -> Iterator[int]:
    """Yield the fingerprints of a class's methods and fields."""
    return (fingerprint(one) for one in tree.body if not _is_text(one))


def _derived_functions(originals: Sequence[Original]) -> Iterator[Function]:
    """Yield the functions that new-model derives."""
    for one in originals:
        yield from functions_of(ast.parse(one.text), Path(one.name), Path("new-model"))


def _upstream_functions(serving: Serving | None) -> Iterator[Function]:
    """Yield the functions of the files that define the pipeline and its denoiser."""
    if serving is None or serving.upstream is None:
        return
    classes = [serving.upstream.cls, find_class(serving.upstream.library, serving.upstream_denoiser)]
    for source in dict.fromkeys(one.source for one in classes if one is not None):
        yield from functions_of(source.tree, source.path, Path("diffusers"))


def _changed_copies(tree: ast.Module, path: Path, references: Sequence[Function]) -> Findings:
    """Yield the changes that nobody makes on purpose of functions that were copied from one of the references."""
    own = [*functions_of(tree, path, path.parent)]
    index = CloneIndex(references)
    for function in own:
        pairs = [(one, ClonePair(function.node, one.node)) for one in index.clones(function)]
        if not pairs or any(pair.likeness == 1 for _, pair in pairs):
            continue
        reference, pair = max(pairs, key=lambda one: one[1].likeness)
        where = f"{reference.name} of {reference.home}"
        for alteration in alterations(pair):
            for edit in alteration.edits:
                yield Finding(f"{function.name} differs from {where}: {edit.what}", path, alteration.here.number)
        for change in changes(pair):
            yield Finding(f"{function.name} differs from {where}: {change.what}", path, change.line)
        for block in left_out(pair):
            yield Finding(f"{function.name} lacks `{block[0].text}` of {where}", path, function.node.lineno)


def _renamed(was: ast.Module, now: ast.Module) -> Iterator[tuple[str, str]]:
    """New and former name of a file's own definitions: those that only one side has, in order, where they are as many.

    A wrong pair does no harm: its bodies then differ, and every use of the name does.
    """
    old, new = ([one for one in tree.body if isinstance(one, _DEFINES)] for tree in (was, now))
    lost, added = _only(old, new), _only(new, old)
    if [type(one) for one in lost] == [type(one) for one in added]:
        yield from ((one.name, former.name) for one, former in zip(added, lost, strict=True))


def _only(some: Sequence[_Definition], others: Sequence[_Definition]) -> list[_Definition]:
    known = {one.name for one in others}
    return [one for one in some if one.name not in known]


class _Former(ast.NodeTransformer):
    """Gives definitions their former names, wherever one is mentioned."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and value in self.names:
                setattr(node, field, self.names[value])
        return super().generic_visit(node)


def _differences(was: ast.AST, now: ast.AST, lines: list[str], name: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the differences of two bodies, and those of the definitions in both."""
    yield from _statements(_plain(was), _plain(now), now, name)
    before = {one.name: one for one in _body(was) if isinstance(one, _DEFINES)}
    for one in (one for one in _body(now) if isinstance(one, _DEFINES) and one.name in before):
        old = before[one.name]
        if any(TODO_MARK in line for line in lines[old.lineno - 1 : old.end_lineno]):
            continue  # it was left to a person
        called = one.name if name == "module" else f"{name}.{one.name}"
        if isinstance(one, _DEFINES[:2]) and isinstance(old, _DEFINES[:2]):
            yield from _pair(old.args, one.args, one, called)
        yield from _differences(old, one, lines, called)
    if isinstance(now, ast.ClassDef):
        kept = {one.name for one in _body(now) if isinstance(one, _DEFINES)}
        for lost in before.keys() - kept:
            yield now, f"{name} lacks {lost}, which new-model derived"


def _body(node: ast.AST) -> list[ast.stmt]:
    return list(getattr(node, "body", []))


def _plain(node: ast.AST) -> list[ast.stmt]:
    """Return the statements of a body that define and import nothing, without texts."""
    return [one for one in _body(node) if not isinstance(one, _SKIPPED) and not _is_text(one)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _statements(
    was: Sequence[ast.stmt], now: Sequence[ast.stmt], holder: ast.AST, name: str
) -> Iterator[tuple[ast.AST, str]]:
    old, new = [ast.dump(one) for one in was], [ast.dump(one) for one in now]
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        pairs = min(last - first, end - begin)
        for number in range(pairs):
            yield from _pair(was[first + number], now[begin + number], now[begin + number], name)
        for one in was[first + pairs : last]:
            place = now[begin - 1] if begin else holder
            yield place, f"{name} lacks {_shown(one)}, which new-model derived"
        if name == "module" and not isinstance(holder, _DEFINES):
            continue  # what a person adds to a file is their own
        for one in now[begin + pairs : end]:
            yield one, f"{name} has {_shown(one)}, which new-model did not derive"


def _pair(was: ast.AST, now: ast.AST, place: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the smallest parts in which two nodes differ."""
    if ast.dump(was) == ast.dump(now):
        return
    place = now if hasattr(now, "lineno") else place
    if type(was) is type(now):
        fields = [(getattr(was, one, None), getattr(now, one, None)) for one in was._fields if one not in _UNSEEN]
        different = [(a, b) for a, b in fields if _dumped(a) != _dumped(b)]
        if len(different) == 1:
            old, new = different[0]
            if _tells_enough(old) and _tells_enough(new):
                yield from _pair(old, new, place, name)
                return
            if isinstance(old, list) and isinstance(new, list) and all(isinstance(one, ast.stmt) for one in old + new):
                yield from _statements(old, new, now, name)
                return
            if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
                apart = [(a, b) for a, b in zip(old, new, strict=True) if _dumped(a) != _dumped(b)]
                if len(apart) == 1 and all(map(_tells_enough, apart[0])):
                    yield from _pair(*apart[0], place, name)
                    return
        elif not different:
            return
    yield place, f"{name} has {_shown(now)} where new-model derived {_shown(was)}"


def _tells_enough(node: object) -> TypeGuard[ast.AST]:
    """Return whether a part can be read alone: a number or a name needs what stands around it."""
    return isinstance(node, ast.AST) and not isinstance(node, ast.Constant | ast.Name | ast.operator | ast.cmpop)


def _dumped(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_dumped, value))
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def _shown(node: ast.AST) -> str:
    """Return the code in one line."""
    text = " ".join(unparse_cached(node).split())
    return f"`{text}`" if len(text) <= _LONGEST else f"`{text[:_LONGEST]}...`"
