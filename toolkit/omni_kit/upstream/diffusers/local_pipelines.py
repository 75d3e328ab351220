"""Pipelines outside diffusers: a file that defines a class on DiffusionPipeline, read and never run."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.diffusers.pipelines import INDEX, Pipeline
from omni_kit.upstream.places import path_of

BETWEEN = "::"
FILE = "pipeline.py"
"""The file of a directory, or of a repository of the hub, that defines its pipeline."""
_BASE, _CALL = "DiffusionPipeline", "__call__"
_OF_ONES_OWN = (INDEX, "config.json", "__init__.py")  # directories of something else


@dataclass(frozen=True)
class Outside(Library):
    """diffusers, with one more file that imports from it.

    Attributes:
        file: that file.
    """

    file: Path = Path()

    def module_name(self, file: Path) -> str:
        """See `Library.module_name`; the file outside is a module of its own."""
        return file.stem if file == self.file else super().module_name(file)

    def show(self, file: Path) -> str:
        """See `Library.show`."""
        return file.name if file == self.file else super().show(file)


def outside_pipeline(given: str, library: Library, values: Mapping[str, Any] | None = None) -> Pipeline | None:
    """Return the pipeline that a path names; None if it names anything else.

    Args:
        given: FILE, a directory with pipeline.py, or either with `::Class`.
        library: diffusers.
        values: the model_index.json of a checkpoint of that class.

    Raises:
        BadInput: the file has several pipelines, and none is named; or it imports files next to it.
    """
    place, _, name = given.partition(BETWEEN)
    file = _file_of(path_of(place))
    if file is None:
        return None
    source = read_source(Outside(library.name, library.root, file), file)
    found = [one for one in _pipelines(source) if name in ("", one.node.name)]
    if not found:
        return None
    if len(found) > 1:
        names = ", ".join(one.node.name for one in found)
        raise BadInput(f"{file.name} has several pipelines: {names}", f"write {place}{BETWEEN}{found[-1].node.name}")
    if beside := next(_beside(source), None):
        raise BadInput(f"{file.name} imports {beside}, a file next to it", "put the pipeline's code into one file")
    return Pipeline(library, found[0], values or {})


def absolute(given: str) -> str:
    """Return a SOURCE that processes in other directories can read: a file's path is made absolute."""
    place, mark, name = given.partition(BETWEEN)
    file = _file_of(path_of(place))
    return given if file is None else f"{file}{mark}{name}"


def file_outside(pipeline: Pipeline) -> Path | None:
    """Return the file of a pipeline outside diffusers; None for one of diffusers."""
    library = pipeline.cls.source.library
    return library.file if isinstance(library, Outside) else None


def _file_of(path: Path | None) -> Path | None:
    if path is None or (path.is_dir() and any((path / one).exists() for one in _OF_ONES_OWN[1:])):
        return None
    file = path / FILE if path.is_dir() else path
    return file.resolve() if file.suffix == ".py" and file.is_file() else None


def _pipelines(source: SourceFile) -> Iterator[ClassRef]:
    """Yield the classes of a file that are pipelines with a call of their own, or of a base."""
    for node in source.classes.values():
        cls = ClassRef(source, node)
        if cls.derives(_BASE) and cls.method(_CALL) is not None:
            yield cls


def _beside(source: SourceFile) -> Iterator[str]:
    """Yield the modules that a file imports from its own directory."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if node.level or (source.path.parent / f"{module.partition('.')[0]}.py").is_file():
                yield module
