"""Functions of other integrations that are clones of this directory's, and how this directory's differ from them."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from omni_checkers.codediff.align import ClonePair, Statement, stands_in
from omni_checkers.codediff.changes import alterations, left_out, rewritten, slips
from omni_checkers.codediff.clones import CloneIndex, Function, functions_of
from omni_checkers.codediff.edits import Edit, TreeDiff
from omni_checkers.codediff.fingerprint import names_known, names_read
from omni_checkers.codediff.valueflow import same_values
from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import File, within
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.veomni.facts.constants import installed_package, package_texts, veomni_package
from omni_checkers.veomni.facts.generated import PatchConfigFile
from omni_kit.files import files_matching
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import parse_file, read_text
from omni_kit.targets.veomni.model_dir import ModelDir

# Of the other's statements: where less is kept, what is missing may belong to what was written anew.
_NEAR = 0.8
# One was copied from the other, and hardly changed.
_SAME = 0.9
_REGISTERS = "MODELING_REGISTRY"
_NOT_BY_HAND = ("generated", "__pycache__")
_CONFIG = re.compile(r"\bconfig\.(\w+)")


@dataclass(frozen=True, eq=False)
class Clones:
    """A function of the directory, and those of other integrations that are like it."""

    function: Function
    others: list[tuple[Function, ClonePair]]

    @property
    def differing(self) -> list[tuple[Function, ClonePair]]:
        """Copies whose statements are not all the same."""
        return [(other, pair) for other, pair in self.others if other.sequence != self.function.sequence]

    def has(self, code: int) -> bool:
        """Return whether one of the others has a statement."""
        return any(code in other.codes for other, _ in self.others)


@dataclass(frozen=True, eq=False)
class CloneEdit:
    """A place where a function of the directory differs from another integration's.

    Attributes:
        kind: that of a Change, "rewritten-statement", "left-out-statement" or "odd-statement".
        what: in words; it follows the function's name.
        line: in the file of the function.
        other, original_line: what it is compared with.
        missing: the statement that is left out; None for what is said differently.
    """

    kind: str
    function: Function
    what: str
    line: int
    other: Function
    original_line: int
    missing: Statement | None = None


@dataclass(frozen=True)
class Siblings:
    """The functions of this directory, and those of other integrations."""

    own: list[Function]
    indexes: Sequence[CloneIndex]


@fact
def siblings(model_dir: ModelDir, files: dict[Path, File]) -> Siblings:
    """Return the functions that somebody wrote, here and in other integrations.

    Raises:
        NotApplicable: there is no other integration.
    """
    if not directories_beside(model_dir):
        raise NotApplicable("there is no other integration to compare with")
    home = model_dir.path.resolve()
    own = [
        function
        for file in files.values()
        if by_hand(file.path, model_dir.path)
        for function in functions_of(file.tree, file.path, home)
    ]
    return Siblings(own, [_index(folders) for folders in _integrations(model_dir) if folders])


@fact
def code_clones(siblings: Siblings) -> list[Clones]:
    """Return every function of the directory that others have, too.

    Raises:
        NotApplicable: no other integration has one that is like it.
    """
    like = {ours: [other for index in siblings.indexes for other in index.clones(ours)] for ours in siblings.own}
    found = [
        Clones(ours, [(one, ClonePair(ours.node, one.node)) for one in others])
        for ours, others in like.items()
        if others
    ]
    if not found:
        raise NotApplicable("no other integration has a function that is like one of this directory")
    return found


@fact
def clone_edits(
    model_dir: ModelDir,
    siblings: Siblings,
    patch_configs: list[PatchConfigFile],
    transformers: Library,
    code_clones: list[Clones] | None = None,
) -> list[CloneEdit]:
    """Return where this directory's code differs from that of all other integrations that share it.

    Of two that differ, the one is wrong that also differs from upstream and from the framework.
    """
    upstream = Upstream(patch_configs, transformers)
    found = [edit for one in code_clones or () for edit in (*_altered(one, upstream), *_left_out(one))]
    told = {(edit.function.file, edit.line) for edit in found}
    elsewhere = [edit for function in siblings.own for edit in _in_place(function, siblings.indexes, upstream)]
    found += [edit for edit in elsewhere if (edit.function.file, edit.line) not in told]
    return [edit for edit in found if not _is_the_others(edit, _references(edit, model_dir, upstream))]


def _is_the_others(edit: CloneEdit, references: Iterator[ast.FunctionDef]) -> bool:
    """Return whether references have what the directory says where the two differ, and none has what the other says."""
    ours = theirs = False
    for reference in references:
        theirs |= stands_in(reference, edit.other.node, edit.original_line)
        if edit.missing is None:
            ours |= stands_in(reference, edit.function.node, edit.line)
        else:
            pair = ClonePair(edit.function.node, reference)
            ours |= pair.likeness >= _NEAR and edit.missing.code not in pair.codes[1]
    return ours and not theirs


def _references(edit: CloneEdit, model_dir: ModelDir, upstream: "Upstream") -> Iterator[ast.FunctionDef]:
    """Yield upstream's functions that are like the one that is judged, and the framework's of these names elsewhere."""
    yield from (one.node for one in upstream.functions.clones(edit.function))
    homes = {edit.function.home, edit.other.home}
    for name in {edit.function.name, edit.other.name}:
        words = [f"{'def' if word.islower() else 'class'} {word}" for word in name.split(".")]
        for package in {veomni_package(model_dir), installed_package()} - {None}:
            for path, text in package_texts(package).items():
                if all(word in text for word in words) and not homes & {*path.parents}:
                    found = functions_of(_tree(path), path, path.parent)
                    yield from (one.node for one in found if one.name == name)


def directories_beside(model_dir: ModelDir) -> list[Path]:
    """Return the directories of other integrations: those of its VeOmni, and for a plugin those next to it."""
    return [one for folders in _integrations(model_dir) for one in folders if _resolved(one) != model_dir.path]


@lru_cache(maxsize=512)
def _resolved(directory: Path) -> Path:
    return directory.resolve()


def _integrations(model_dir: ModelDir) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the directories of VeOmni's integrations, and of plugins next to a plugin."""
    package = veomni_package(model_dir)
    plugins: list[Path] = []
    if model_dir.style == "plugin":
        inits = files_matching(model_dir.path.parent, "*/__init__.py")
        plugins = [one.parent for one in inits if _REGISTERS in read_text(one)]
    return _bundled(package) if package is not None else (), tuple(plugins)


@lru_cache(maxsize=16)
def _bundled(package: Path) -> tuple[Path, ...]:
    return tuple(file.parent for file in sorted(package.glob("models/*/*/__init__.py")))


@lru_cache(maxsize=8)
def _index(directories: tuple[Path, ...]) -> CloneIndex:
    """Return the functions that somebody wrote in integrations."""
    files = [
        (path, one.resolve()) for one in directories for path in files_matching(one, "**/*.py") if by_hand(path, one)
    ]
    return CloneIndex([function for path, home in files for function in functions_of(_tree(path), path, home)])


def _tree(path: Path) -> ast.Module | None:
    try:
        return parse_file(path)[1]
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


def by_hand(path: Path, directory: Path) -> bool:
    """Return whether a file of an integration is written by somebody, and not generated."""
    return not set(path.relative_to(directory).parts) & set(_NOT_BY_HAND)


@dataclass(frozen=True)
class Upstream:
    """The code of upstream's own files of the patched models."""

    configs: list[PatchConfigFile]
    transformers: Library

    def explains(self, here: Statement, there: Statement) -> bool:
        """Return whether upstream has our statement, or ours reads settings where theirs reads those of another
        model.
        """
        codes, settings = self._said
        return here.code in codes or _other_config(here, there, settings)

    @cached_property
    def functions(self) -> CloneIndex:
        """Upstream's functions."""
        return CloneIndex([one for folder in self._folders for one in _functions_in(folder)])

    @cached_property
    def _folders(self) -> list[Path]:
        files = [self.transformers.module_file(one.source_module) for one in self.configs if one.source_module]
        return list(dict.fromkeys(file.parent for file in files if file is not None))

    @cached_property
    def _said(self) -> tuple[frozenset[int], frozenset[str]]:
        """The statements of upstream's functions, and the words of its configs."""
        codes = (one.codes for folder in self._folders for one in _functions_in(folder))
        return frozenset().union(*codes), frozenset().union(*map(_settings_in, self._folders))


@lru_cache(maxsize=512)
def _functions_in(folder: Path) -> tuple[Function, ...]:
    return tuple(one for path in files_matching(folder, "*.py") for one in functions_of(_tree(path), path, folder))


@lru_cache(maxsize=512)
def _settings_in(folder: Path) -> frozenset[str]:
    """Return the words of upstream's configs."""
    trees = (tree for path in files_matching(folder, "configuration_*.py") if (tree := _tree(path)) is not None)
    found = set[str]()
    for node in (node for tree in trees for node in within(tree, ast.AnnAssign, ast.Attribute)):
        match node:
            case ast.AnnAssign(ast.Name(name)) | ast.Attribute(_, name):
                found.add(name)
    return frozenset(found)


def _altered(one: Clones, upstream: Upstream) -> Iterator[CloneEdit]:
    """Yield statements that no clone has, each with the first clone that says something else."""
    found: dict[int, CloneEdit] = {}
    for other, pair in one.differing:
        for kind, here, there, what in _differing(one, pair):
            if here.number not in found and not upstream.explains(here, there):
                found[here.number] = CloneEdit(kind, one.function, what, here.number, other, there.number)
        for change in slips(pair):
            found.setdefault(
                change.line,
                CloneEdit(change.kind, one.function, change.what, change.line, other, change.original_line),
            )
    yield from (found[number] for number in sorted(found))


def _differing(one: Clones, pair: ClonePair) -> Iterator[tuple[str, Statement, Statement, str]]:
    for change in alterations(pair):
        here, there = change.here, change.there
        only = len(change.edits) == 1 and not one.has(here.code)
        if only and _changes_values(here, there, change.edits[0]):
            yield "altered-statement", here, there, change.edits[0].what
    for here, there in rewritten(pair) if pair.likeness >= _SAME else ():
        if not same_values(here.node, there.node):
            yield "rewritten-statement", here, there, f"'{here.text}' instead of '{there.text}'"


def _changes_values(here: Statement, there: Statement, edit: Edit) -> bool:
    """Return whether an edit changes what is computed: no copy more or less, no text, no argument of another callee."""
    return edit.call is None and not edit.about_text and not same_values(here.node, there.node)


def _other_config(here: Statement, there: Statement, settings: frozenset[str]) -> bool:
    """Return whether two statements read settings of other names, and the clone's is not one of this model's."""
    ours, theirs = _CONFIG.findall(here.text), _CONFIG.findall(there.text)
    same = _CONFIG.sub("config", here.text) == _CONFIG.sub("config", there.text)
    return same and any(name not in settings for mine, name in zip(ours, theirs, strict=True) if mine != name)


def _left_out(one: Clones) -> Iterator[CloneEdit]:
    """Yield statements that change a value, and that most of the clones have which are alike almost throughout.

    One that calls a function of the clone's file, which this one has not, is about another matter.
    """
    near = [(other, pair) for other, pair in one.others if pair.likeness >= _NEAR] if one.differing else []
    lost: dict[int, tuple[Function, Statement]] = {}
    for other, pair in near:
        foreign = _helpers(other.file) - _helpers(one.function.file)
        for block in left_out(pair):
            if not foreign & names_read(block[0].node):
                lost.setdefault(block[0].code, (other, block[0]))
    for code, (other, there) in lost.items():
        if 2 * sum(code in clone.codes for clone, _ in near) > len(near):
            what = f"leaves out what similar functions do: {there.text[:100]}"
            yield CloneEdit(
                "left-out-statement", one.function, what, one.function.node.lineno, other, there.number, there
            )


def _helpers(path: Path) -> set[str]:
    tree = _tree(path)
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree is not None else set()


def _in_place(function: Function, indexes: Sequence[CloneIndex], upstream: Upstream) -> Iterator[CloneEdit]:
    """Yield statements that differ by one small edit from what stands in their place everywhere else."""
    for number, line in enumerate(function.statements):
        if any(index.has(line.code, function.home) for index in indexes):
            continue
        for other, there in (found for index in indexes for found in index.in_place_of(function, number)):
            alike = line.kind is there.kind and (line.inside == there.inside or {*line.inside} & {*there.inside})
            edit = _only_edit(line, there, other) if alike else None
            if edit is not None:
                if _changes_values(line, there, edit) and not upstream.explains(line, there):
                    yield CloneEdit("odd-statement", function, edit.what, line.number, other, there.number)
                break


def _only_edit(here: Statement, there: Statement, other: Function) -> Edit | None:
    """Return the one small edit between two statements; None if there are several, or larger ones."""
    diff = TreeDiff(names_known(other.node), {})
    raw = next(diff.edits(here.node, there.node), False)
    found = list(diff.edits(here.normal, there.normal)) if raw is not False else []
    return found[0] if len(found) == 1 else None
