"""Classes of authors that derive from a model of diffusers: the library's class as if it stood in the authors' file."""

import ast

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.classes import find_class, is_model
from omni_kit.upstream.repositories.closure import names_in
from omni_kit.upstream.repositories.constructed import with_lines
from omni_kit.upstream.repositories.names import definitions, resolve

_LIBRARY = "diffusers"


def with_library_bases(cls: ClassRef) -> ClassRef:
    """Return a class whose file ends with the models of diffusers that it derives from, and with their imports.

    Any other class stays as it is, and so does one whose file has names of such a model for something else. The lines
    of its file keep their numbers.
    """
    homes = (one for one in cls.mro if isinstance(one, ClassRef) and one.source is cls.source)
    for name in [name for one in homes for name in map(dotted, one.node.bases) if name]:
        base = _model(cls.source, name)
        written = _written(base, name, cls.source) if base is not None else None
        if written is not None:
            return with_library_bases(with_lines(cls, [*cls.source.lines, *written]))
    return cls


def _model(source: SourceFile, name: str) -> ClassRef | None:
    """Return the model of diffusers that a name in a file means; None for anything else."""
    meant = resolve(source, name)
    if not isinstance(meant, str) or not meant.startswith(f"{_LIBRARY}.") or not name.isidentifier():
        return None
    found = find_class(find_library(_LIBRARY), meant.rpartition(".")[2])
    return found if found is not None and is_model(found) else None


def _written(base: ClassRef, name: str, source: SourceFile) -> list[str] | None:
    """Return the lines of a model under a name, after its imports; None if the file has other things of these names."""
    lines = ast.unparse(_named(base.node, name)).split("\n")
    needed = {one.partition(".")[0] for one in names_in(base.node)}
    for one in sorted(needed - {base.node.name}):
        imported = _import_of(base.source, one)
        known = resolve(source, one)
        if imported and known is None:
            lines.insert(0, imported)
        elif imported and not (isinstance(known, str) and _alike(known, _absolute(base.source, one))):
            return None
    return lines


def _absolute(source: SourceFile, name: str) -> str:
    imported = source.imports.get(name)
    parts = [source.module, name] if imported is None else [imported.module, imported.name or ""]
    return ".".join(filter(None, parts))


def _alike(one: str, other: str) -> bool:
    """Return whether two absolute names are one, or one class of the library that two of its modules offer."""
    return one == other or (_of_library(one) == _of_library(other) != "")


def _of_library(name: str) -> str:
    return name.rpartition(".")[2] if name.startswith(f"{_LIBRARY}.") else ""


def _named(node: ast.ClassDef, name: str) -> ast.ClassDef:
    return ast.ClassDef(name, node.bases, node.keywords, node.body, node.decorator_list, lineno=1, col_offset=0)


def _import_of(source: SourceFile, name: str) -> str:
    """Return the statement that imports a name as a file of the library has it; empty for a built-in."""
    if name in definitions(source):
        return f"from {source.module} import {name}"
    imported = source.imports.get(name)
    if imported is None:
        return ""
    if imported.name is not None:
        return f"from {imported.module} import {_as(imported.name, name)}"
    return f"import {_as(imported.module, name)}"


def _as(whole: str, name: str) -> str:
    return whole if whole.partition(".")[0] == name or whole == name else f"{whole} as {name}"
