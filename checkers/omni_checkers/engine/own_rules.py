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
    """Give each ignore comment rule IDs and a reason.

    The form is `# omni-kit: ignore[VEO123] the reason`. Without both it ignores nothing.

    Why: without a reason nobody can tell whether someone judged the finding. A comment without IDs also hides later
    findings.

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
    """Write files that Python can parse and rules can traverse.

    Files are read in the encoding that they declare. Code nested hundreds of levels deep parses but cannot be checked.

    Why: the model cannot be imported, and no other rule can check the file.

    Fine when: never.
    """

    id = "OMK002"
    name = "invalid-python"
    target = "any"
    failure_modes = ("uncompilable-file",)
    BAD = ({"sizes.py": "def sizes(:\n"},)
    GOOD = ({"sizes.py": "def sizes():\n    return None\n"},)


class RuleFailed(Rule):
    """Complete every rule without an exception.

    Why: a rule that raises has checked nothing, so the run does not count as clean.

    Fine when: never; report the defect to the rule's author.
    """

    id = "OMK003"
    name = "rule-failed"
    target = "any"
    BAD = ()
    GOOD = ({},)


class UnreadableDocument(Rule):
    """Write JSON, TOML and YAML files that parse.

    The rule includes files of a framework's checkout that name the model, such as training files under `configs/`.
    Training files, the toy config and the scaffold's record must contain a mapping.

    Why: the trainer, parity or `omni-kit update` fails on the file, often hours after the edit.

    Fine when: the file is deliberately broken test data; then move it out of the model's directory.
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
    """Return the JSON, TOML and YAML files of a model's directory."""
    return [path for path in files_matching(root, "**/*") if path.suffix in _DOCUMENTS]


def unreadable(root: Path, others: Iterable[Path] = ()) -> Iterator[Finding]:
    """Yield a finding for each document that cannot be read: those of a model's directory, and of others that speak of
    it.
    """
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
    """Yield a finding for a file that cannot be parsed."""
    if file.error is not None:
        line, column = file.error.lineno or 1, file.error.offset or 1
        yield Finding(f"not valid Python: {file.error.msg}", file.path, line, column)


def unjudgeable(files: Sequence[File]) -> set[Path]:
    """Return the files that cannot be parsed and those that import them, directly or indirectly."""
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
    """Return each part of every module that a file imports, and each name that it takes from one."""
    found = set[str]()
    for node in file.nodes(ast.ImportFrom):
        found |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    for plain in file.nodes(ast.Import):
        found |= {part for alias in plain.names for part in alias.name.split(".")}
    return found


def too_deep(files: Sequence[File]) -> Iterator[Finding]:
    """Yield a finding for the file that is nested most deeply, when a rule could not get to the bottom of one."""
    deepest = max(files, key=lambda file: file.depth, default=None)
    if deepest is not None and deepest.depth[0] > _DEEP:
        depth, line = deepest.depth
        yield Finding(f"nested too deeply to check: {depth} levels", deepest.path, line)
