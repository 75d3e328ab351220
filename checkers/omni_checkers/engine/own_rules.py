"""The engine's own rules: about ignore comments, about files that cannot be read, and about rules that fail."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Finding, Rule
from omni_kit.documents import DocumentError, check_yaml, mapping_of, read_json, read_toml
from omni_kit.files import files_matching

_DEEP = 100
"""Levels of the syntax tree that no code written by people has."""


class SuppressionNeedsReason(Rule):
    """An ignore comment names the rules that it silences, and says why.

    The form is `# omni-kit: ignore[VEO123] the reason`. Without both it silences nothing.

    Why: nobody can tell later whether the finding was judged or merely silenced, and a comment without ids also hides
    findings that come after it.

    Fine when: never; a reason of three words is enough.
    """

    id = "OMK001"
    name = "suppression-without-id-or-reason"
    target = "any"
    BAD = (
        {"sizes.py": "x = 1  # omni-kit: ignore\n"},
        {"sizes.py": "x = 1  # omni-kit: ignore[VEO301]\n"},
    )
    GOOD = ({"sizes.py": "x = 1  # omni-kit: ignore[VEO301] the experts are not sharded on purpose\n"},)


class InvalidPython(Rule):
    """Every file of a model is valid Python that can be gone through.

    Files are read in the encoding that they name. Code that is nested hundreds of levels deep is parsed, and cannot be
    judged.

    Why: the model cannot be imported, and no other rule can look at the file.

    Fine when: never.
    """

    id = "OMK002"
    name = "invalid-python"
    target = "any"
    failure_modes = ("uncompilable-file",)
    BAD = ({"sizes.py": "def sizes(:\n"},)
    GOOD = ({"sizes.py": "def sizes():\n    return None\n"},)


class RuleFailed(Rule):
    """Every rule comes to a verdict.

    Why: a rule that ends in an exception has judged nothing, so the run must not read as clean.

    Fine when: never; it is a defect of the rule, to be reported to whoever wrote it.
    """

    id = "OMK003"
    name = "rule-failed"
    target = "any"
    BAD = ()
    GOOD = ({},)


class UnreadableDocument(Rule):
    """Every JSON, TOML and YAML file of a model can be read.

    Files of a framework's checkout that name the model count, such as its training files below `configs/`. Training
    files, the toy's config and the record of answers also hold a mapping.

    Why: whoever reads the file ends with an error: the trainer, parity, or `omni-kit update`, hours after the edit.

    Fine when: the file is broken on purpose, as data of a test; then keep it outside the model's directory.
    """

    id = "OMK004"
    name = "unreadable-document"
    target = "any"
    BAD = (
        {"train.yaml": "model:\n  - a\n b: 1\n"},
        {"toy_config.json": '{"hidden_size": 8,}\n'},
        {".omni-kit.toml": "answers\n"},
    )
    GOOD = ({"train.yaml": "model:\n  a: 1\n"},)


ENGINE_RULES: tuple[type[Rule], ...] = (SuppressionNeedsReason, InvalidPython, RuleFailed, UnreadableDocument)
_DOCUMENTS: Mapping[str, Callable[[str], object]] = {
    ".json": read_json,
    ".toml": read_toml,
    ".yaml": check_yaml,
    ".yml": check_yaml,
}
_MAPPINGS = re.compile(r"train\w*\.yaml|toy_config\.json|\.omni-kit\.toml")


def documents(root: Path) -> list[Path]:
    """The JSON, TOML and YAML files of a model's directory."""
    return [path for path in files_matching(root, "**/*") if path.suffix in _DOCUMENTS]


def unreadable(root: Path, others: Iterable[Path] = ()) -> Iterator[Finding]:
    """A finding for each document that cannot be read: those of a model's directory, and of others that speak of it."""
    outside = (path for path in others if path.suffix in _DOCUMENTS and path.is_file())
    for path in dict.fromkeys([*documents(root), *outside]):
        try:
            if _MAPPINGS.fullmatch(path.name) and path.parent == root:
                mapping_of(path)
            else:
                _DOCUMENTS[path.suffix](path.read_text(encoding="utf-8"))
        except DocumentError as error:
            yield Finding(f"cannot be read: {error.reason}", path, error.line)
        except (OSError, UnicodeDecodeError) as error:
            yield Finding(f"cannot be read: {' '.join(str(error).split())}", path)


def invalid(file: File) -> Iterator[Finding]:
    """A finding for a file that cannot be parsed."""
    if file.error is not None:
        line, column = file.error.lineno or 1, file.error.offset or 1
        yield Finding(f"not valid Python: {file.error.msg}", file.path, line, column)


def unjudgeable(files: Sequence[File]) -> set[Path]:
    """The files that cannot be parsed, and those that import them, directly or not: what they lack may be there."""
    found = {file.path for file in files if file.tree is None}
    left = [file for file in files if file.tree is not None] if found else []
    names = {file.path: _imported_names(file) for file in left}
    while more := {file.path for file in left if file.path not in found and _needs(names[file.path], file.path, found)}:
        found |= more
    return found


def _needs(names: set[str], path: Path, broken: Iterable[Path]) -> bool:
    for one in broken:
        package = one.name == "__init__.py"
        if (one.parent.name if package else one.stem) in names or (package and one.parent in path.parents):
            return True
    return False


def _imported_names(file: File) -> set[str]:
    """Each part of every module that a file imports, and each name that it takes from one."""
    found = set[str]()
    for node in file.nodes(ast.ImportFrom):
        found |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    for plain in file.nodes(ast.Import):
        found |= {part for alias in plain.names for part in alias.name.split(".")}
    return found


def too_deep(files: Sequence[File]) -> Iterator[Finding]:
    """A finding for the file that is nested most deeply, when a rule could not get to the bottom of one."""
    deepest = max(files, key=lambda file: file.depth, default=None)
    if deepest is not None and deepest.depth[0] > _DEEP:
        depth, line = deepest.depth
        yield Finding(f"nested too deeply to be judged: {depth} levels", deepest.path, line)
