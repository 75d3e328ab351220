"""The files of the authors' repository in which code that samples is looked for."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.repositories.names import Defined, meanings, resolve, searching
from omni_kit.upstream.repositories.reference import Reference

_MOST_FILES, _DEEPEST = 400, 3


def sources_of(reference: Reference) -> Iterator[SourceFile]:
    """Yield the file of the class, then the others that can be parsed: those in the nearest folders first.

    Files that import another class of this name, or inherit from what does, are about that one.
    """
    yield reference.cls.source
    files = [one for one in reference.repository.files if one != reference.cls.source.path]
    for file in sorted(files, key=lambda one: distance(reference, one))[:_MOST_FILES]:
        try:
            source = read_source(reference.repository, file)
        except BadInput:  # another Python's, or a template
            continue
        with searching():
            of_another = _is_of_another(source, reference)
        if not of_another:
            yield source


def _is_of_another(source: SourceFile, reference: Reference, deep: int = _DEEPEST) -> bool:
    """Return whether a file imports classes of the class's name, none of which is the class or a base of it; or has a
    class that inherits from one in such a file, and does not import the class.
    """
    own = {one.node for one in reference.cls.mro if isinstance(one, ClassRef)}
    named = _imported(source, reference.class_name)
    if named or not deep or source is reference.cls.source:
        return bool(named) and not own & {*named}
    bases = (dotted(base) or "" for cls in source.classes.values() for base in cls.bases)
    meant = [resolve(source, name) for name in bases if name.partition(".")[0] in source.imports]
    return any(isinstance(one, Defined) and one.node not in own and _is_of_another(one.source, reference, deep - 1)
               for one in meant)  # fmt: skip


def _imported(source: SourceFile, name: str) -> list[ast.ClassDef]:
    """Return the authors' classes of a name that a file imports, also inside functions."""
    if name not in source.text:
        return []
    bound = [one for one, ways in source.every_import.items() if any(way.name == name for way in ways)]
    meant = [one.node for each in bound for one in meanings(source, each)]
    return [one for one in meant if isinstance(one, ast.ClassDef) and one.name == name]


def source_at(reference: Reference, where: str) -> SourceFile | None:
    """Return the file of a place, `file:line`; None if it is not one of the authors' that can be parsed."""
    file = where.rpartition(":")[0]
    return next((one for one in sources_of(reference) if reference.repository.show(one.path) == file), None)


def distance(reference: Reference, file: Path) -> int:
    """Return how many folders separate the class's file from another one."""
    own, other = reference.cls.source.path.parent.parts, file.parent.parts
    shared = next((at for at, (one, two) in enumerate(zip(own, other, strict=False)) if one != two), None)
    return len(own) + len(other) - 2 * (min(len(own), len(other)) if shared is None else shared)
