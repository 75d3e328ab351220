"""Recognises one pipeline: a plugin package, stages inside SGLang's own package, or a pipeline that SGLang has.

The last has no directory of its own: FILE::NAME names it, by its file and its pipeline_name.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.pysource.source import parse_file

STAGES = "runtime/pipelines_core/stages/model_specific_stages"
PIPELINES = "runtime/pipelines"
OUTSIDE = "authors"
"""The module of a plugin with its pipeline, where that is outside diffusers."""
_PACKAGE = "multimodal_gen"
_MARK = "::"
_ENTRY = "EntryClass"  # how a module of SGLang says which of its classes are pipelines
_HINT = "pass a package with a pipeline: a class with pipeline_name that EntryClass names"


@dataclass(frozen=True)
class PipelineDir:
    """One pipeline's directory.

    Attributes:
        path: the directory, absolute; FILE::NAME for one of SGLang's own.
        in_tree: it lies inside SGLang's own package.
        module: the file that defines the pipeline.
        class_name: the pipeline's class.
        pipeline_name: what it is registered as.
        line: of that name in `module`.
    """

    path: Path
    in_tree: bool
    module: Path
    class_name: str
    pipeline_name: str
    line: int


def find_pipeline_dir(path: Path) -> PipelineDir:
    """Read which pipeline `path` has, without importing anything.

    Raises:
        BadInput: the path is missing, is no package, cannot be parsed or has no pipeline.
    """
    path = path.resolve()
    file, mark, wanted = path.name.partition(_MARK)
    if mark:
        for class_name, name, line in pipelines_in(path.with_name(file)):
            if name == wanted:
                return PipelineDir(path, True, path.with_name(file), class_name, name, line)
        raise BadInput(f"{path.with_name(file)} has no pipeline {wanted}", _HINT)
    if not (path / "__init__.py").is_file():
        why = "does not exist"
        if path.exists():
            why = "is not a Python package" if path.is_dir() else "is not a directory"
        raise BadInput(f"{path} {why}", _HINT)
    own = package_of_sglang(path)
    if own is None and _PACKAGE in path.parts:
        raise BadInput(f"{path} is SGLang's own folder", _HINT)
    modules = [own / PIPELINES / f"{path.name}.py"] if own is not None else files_matching(path, "*.py")
    for module in modules:
        for class_name, name, line in pipelines_in(module) if module.is_file() else ():
            return PipelineDir(path, own is not None, module, class_name, name, line)
    raise BadInput(f"{path} has no pipeline of SGLang", _HINT)


def named_in(file: Path, pipeline_name: str) -> Path:
    """Return the path of a pipeline that SGLang has itself: FILE::NAME."""
    return file.with_name(f"{file.name}{_MARK}{pipeline_name}")


def package_of_sglang(path: Path) -> Path | None:
    """Return SGLang's own package of diffusion, where `path` is a folder of stages inside it."""
    for parent in path.parents:
        if parent.name == _PACKAGE and (parent / STAGES) == path.parent:
            return parent
    return None


def pipelines_in(module: Path) -> Iterator[tuple[str, str, int]]:
    """Class, pipeline_name and line of the pipelines that a file's EntryClass names.

    None if the file cannot be read or parsed: it may be somebody else's.
    """
    try:
        if _ENTRY.encode() not in module.read_bytes():
            return  # most files, which need not be parsed
        _, tree = parse_file(module)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return
    entries = {name for node in tree.body if isinstance(node, ast.Assign) for name in _entries(node)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in entries:
            for statement in node.body:
                if _assigns(statement, "pipeline_name") and isinstance(statement.value, ast.Constant):  # type: ignore[attr-defined]
                    yield node.name, str(statement.value.value), statement.lineno  # type: ignore[attr-defined]


def _entries(node: ast.Assign) -> Iterator[str]:
    if _assigns(node, _ENTRY):
        yield from (name.id for name in ast.walk(node.value) if isinstance(name, ast.Name))


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
