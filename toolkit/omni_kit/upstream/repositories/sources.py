"""The files of the authors' repository in which code that samples is looked for."""

from collections.abc import Iterator
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.repositories.reference import Reference

_MOST_FILES = 400


def sources_of(reference: Reference) -> Iterator[SourceFile]:
    """Yield the file of the class, then the others that can be parsed: those in the nearest folders first."""
    yield reference.cls.source
    files = [one for one in reference.repository.files if one != reference.cls.source.path]
    for file in sorted(files, key=lambda one: distance(reference, one))[:_MOST_FILES]:
        try:
            yield read_source(reference.repository, file)
        except BadInput:  # another Python's, or a template
            continue


def source_at(reference: Reference, where: str) -> SourceFile | None:
    """Return the file of a place, `file:line`; None if it is not one of the authors' that can be parsed."""
    file = where.rpartition(":")[0]
    return next((one for one in sources_of(reference) if reference.repository.show(one.path) == file), None)


def distance(reference: Reference, file: Path) -> int:
    """Return how many folders separate the class's file from another one."""
    own, other = reference.cls.source.path.parent.parts, file.parent.parts
    shared = next((at for at, (one, two) in enumerate(zip(own, other, strict=False)) if one != two), None)
    return len(own) + len(other) - 2 * (min(len(own), len(other)) if shared is None else shared)
