"""Hand-written code instead of a library's: methods of subclasses, functions that are set, and renamed copies."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from omni_checkers.codediff.align import ClonePair, rename_locals
from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import File, within
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Program
from omni_checkers.veomni.facts.diffusion.pipelines import pipelines_with
from omni_checkers.veomni.facts.diffusion.sides import Diffusion
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.overrides import Override
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.diffusers.classes import find_class

# Its own file says which module a class comes from in tables alone.
_LAZY = "diffusers"
# A function with so much of another is a copy of it; with less, it was written anew, as those of base classes are.
_COPIED = 0.6


@fact
def copies(
    program: Program,
    files: dict[Path, File],
    overrides: list[Override] | None = None,
    diffusion: Diffusion | None = None,
) -> list[Override]:
    """Return every function instead of one of a library, in generated files and in hand-written ones, and those inside;
    with the library's names for locals that are the same.

    Raises:
        NotApplicable: there is none.
    """
    found = [*(overrides or ()), *_handwritten(program, files), *(_of_pipelines(diffusion) if diffusion else ())]
    if not found:
        raise NotApplicable("no function replaces a library's")
    found += [inner for one in found for inner in _inside(one)]
    return [replace(one, copy=rename_locals(one.copy)) for one in found]


def _inside(one: Override) -> Iterator[Override]:
    """Yield the functions inside of a function, next to those of the same name inside of the original."""
    ours, theirs = (
        {node.name: node for node in within(side, ast.FunctionDef) if node is not side}
        for side in (one.copy.ours, one.copy.theirs)
    )
    yield from (Override(one.item, one.name, ClonePair(ours[name], theirs[name])) for name in ours if name in theirs)


def _handwritten(program: Program, files: dict[Path, File]) -> Iterator[Override]:
    for name in ("transformers", _LAZY):
        try:
            library = find_library(name)
        except MissingRequirement:
            continue
        for path, file in files.items():
            place = path.relative_to(program.root).with_suffix("").parts
            if file.tree is not None and name in file.text and "generated" not in place:
                module = ".".join([program.name, *place])
                yield from _of(file, SourceFile(library, module, path, file.text, file.tree))


def _of(file: File, source: SourceFile) -> Iterator[Override]:
    """Yield the overrides of a library's definitions in one file."""
    assigned = list(_set(file, source))
    if not source.classes and not assigned:
        return
    named = {name for name in source.imports if name.lstrip("_")[:1].isupper()}  # as classes are
    if all(node.bases for node in source.classes.values()):
        bases = {base for node in source.classes.values() for base in source.bases(node)}
        named &= bases | {target.rpartition(".")[0] for target, _ in assigned}
    taken = {name: found for name in sorted(named) if (found := _class(source, name)) is not None}
    items = {home.module: Generated(file, source, home.module, None, False) for home, _ in taken.values()}
    for node in source.classes.values():
        above = [taken[base] for base in source.bases(node) if base in taken]
        others = [(home, name) for home, _ in taken.values() for name in home.classes] if not node.bases else []
        for function in (item for item in node.body if isinstance(item, ast.FunctionDef)):
            if (copied := _copied(function, function.name, above or others)) is not None:
                yield Override(items[copied[0]], node.name, copied[1])
    for target, function in assigned:
        owner, _, method = target.rpartition(".")
        if owner in taken and (copied := _copied(function, method, [taken[owner]])) is not None:
            yield Override(items[copied[0]], "", copied[1])


def _of_pipelines(diffusion: Diffusion) -> Iterator[Override]:
    """Yield functions and methods that pipelines with the same transformer have, too, under the same name."""
    library, upstream = diffusion.library, diffusion.upstream
    if library is None or upstream is None:
        return
    homes = [read_source(library, file) for file in pipelines_with(library.root, upstream.node.name)]
    classes = [(home, name) for home in homes for name in home.classes]
    for path, file in diffusion.files.items():
        if file.tree is None:
            continue
        source = SourceFile(library, path.stem, path, file.text, file.tree)
        owners = {function: node.name for node in source.classes.values() for function in node.body}
        for function in file.nodes(ast.FunctionDef):
            if (copied := _copied(function, function.name, classes)) is not None:
                yield Override(Generated(file, source, copied[0], None, False), owners.get(function, ""), copied[1])


def _class(source: SourceFile, name: str) -> tuple[SourceFile, str] | None:
    """Return the file of the library that an imported class is defined in, and its name there."""
    imported = source.imports[name]
    if imported.name is None or imported.module.partition(".")[0] != source.library.name:
        return None
    try:
        found = source.resolve_class(name)
        if found is None and source.library.name == _LAZY and (exported := find_class(source.library, imported.name)):
            found = exported.source, exported.node
    except BadInput:
        return None
    return (found[0], found[1].name) if found is not None else None


def _copied(
    function: ast.FunctionDef, method: str, classes: list[tuple[SourceFile, str]]
) -> tuple[str, ClonePair] | None:
    """Return the method, of these classes, that most of a function is copied from, and the module that it stands in."""
    methods = {theirs: home for home, name in classes if (theirs := home.method(name, method)) is not None}
    pairs = [(home.module, ClonePair(function, theirs)) for theirs, home in methods.items()]
    found = [one for one in pairs if one[1].may_be_like(_COPIED)]
    most = max(found, key=lambda one: one[1].likeness, default=None)
    return most if most is not None and most[1].likeness >= _COPIED else None


def _set(file: File, source: SourceFile) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(Class.method, function) of every function of this file that is assigned to an attribute."""
    for node in file.nodes(ast.Assign):
        function = source.functions.get(dotted(node.value) or "")
        if function is not None:
            yield from ((name, function) for target in node.targets if "." in (name := dotted(target) or ""))
