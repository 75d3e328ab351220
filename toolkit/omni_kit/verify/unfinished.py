"""To-dos of an integration, and the findings of its rules apart from them."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.diagnostics.finding import Finding
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.record import ANSWERS, load_answers, root_of
from omni_kit.scaffold.render import COMMENTED, left_open
from omni_kit.targets.protocol import Todo
from omni_kit.verify.thresholds import SEVERITIES


@dataclass(frozen=True)
class Found:
    """A finding in a written file.

    Attributes:
        path, line: as those of a to-do.
        marked: a to-do stands there that says the same.
    """

    rule: str
    severity: str
    path: str
    line: int
    message: str
    marked: bool


@dataclass(frozen=True)
class Unfinished:
    """The to-dos and findings of an integration.

    Attributes:
        todo: of the files that were written.
        findings: errors and warnings of the rules, those that repeat a to-do among them.
    """

    todo: Sequence[Todo]
    findings: Sequence[Found]

    @property
    def unmarked(self) -> list[Found]:
        """The findings that no to-do says: with a to-do an integration is unfinished, with one of these it is wrong."""
        return [one for one in self.findings if not one.marked]


def left_to_do(directory: Path) -> list[Todo]:
    """Return every to-do of an integration's files, in its own directory and where else its record says."""
    return left_open(_texts(directory))


def told_apart(findings: Sequence[Finding], directory: Path) -> Unfinished:
    """Return the to-dos of an integration, and which findings repeat one."""
    texts = _texts(directory)
    todo = left_open(texts)
    named = {(directory / path).resolve(): path for path in texts}
    found = []
    for one in (each for each in findings if each.severity in SEVERITIES):
        path = named.get(one.path.resolve(), one.path.as_posix())
        own = [each for each in todo if each.path == path]
        marked = bool(own) and any(_repeats(one.rule, one.line, each, texts[path]) for each in own)
        found.append(Found(one.rule, str(one.severity), path, one.line, one.message, marked))
    return Unfinished(todo, found)


def _texts(directory: Path) -> Mapping[str, str]:
    """Return the texts of the files that may hold to-dos, by their paths from the directory."""
    files = [file for suffix in sorted(COMMENTED) for file in files_matching(directory, f"**/*{suffix}")]
    record = load_answers(directory / ANSWERS)
    try:
        root = root_of(directory.resolve(), record) if record.files else directory
    except BadInput:  # it was moved
        root = directory
    recorded = [root / path for path in record.files if Path(path).suffix in COMMENTED]
    own = directory.resolve()
    outside = [file for file in recorded if file.is_file() and not file.resolve().is_relative_to(own)]
    named = {file: file.relative_to(directory).as_posix() for file in files} | {file: str(file) for file in outside}
    return {path: file.read_text(encoding="utf-8", errors="replace") for file, path in named.items()}


def _repeats(rule: str, line: int, todo: Todo, text: str) -> bool:
    """Return whether a finding is about the statement that a to-do marks.

    Of a class or another statement with a body, whose parts may have other faults, the to-do names the rule.
    """
    if line == todo.line:
        return True
    try:
        marked = next(_statements_after(ast.parse(text), todo.line), None)
    except SyntaxError:
        return False
    if marked is None or not marked.lineno <= line <= (marked.end_lineno or marked.lineno):
        return False
    return not hasattr(marked, "body") or rule in todo.what


def _statements_after(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    """Yield the statements that begin after a line, the first and outermost one first."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    starts = {node: min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) for node in nodes}
    after = [node for node in nodes if starts[node] > line]
    yield from sorted(after, key=lambda node: (starts[node], -(node.end_lineno or 0)))
