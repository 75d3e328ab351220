"""One skill as it is judged: its pages and scripts, whether or not they keep the format."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.documents import DocumentError, read_yaml
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.skillpack.page import Page

_LANGUAGES = {".py": "python", ".sh": "bash", ".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_SKIPPED = {"__pycache__", "node_modules", ".git"}
SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "shell-session"})
PYTHON = frozenset({"python", "py", "python3", "pycon"})


@dataclass(frozen=True)
class Snippet:
    """Code of a skill: a block of a page, or a script.

    Attributes:
        line: of its first line in the file.
        closed: its fence has an end.
        whole: it is a file of its own.
    """

    path: Path
    line: int
    language: str
    text: str
    closed: bool = True
    whole: bool = False

    @cached_property
    def plain(self) -> str:
        """Return the code without a session's prompts and output."""
        lines = self.text.splitlines()
        if self.language in ("console", "shell-session", "pycon") or any(line.startswith(">>> ") for line in lines):
            marks = (">>> ", "... ", "$ ", "% ")
            lines = [line[4:] if line[:4] in marks[:2] else line[2:] if line[:2] in marks[2:] else "" for line in lines]
        return "\n".join(lines) + "\n"

    @cached_property
    def tree(self) -> ast.Module | None:
        """The code of Python; None if it is none."""
        try:
            return ast.parse(python_of(self.plain))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def python_of(text: str) -> str:
    """Python as a page shows it: no indentation of the whole, and no lines for a notebook's shell."""
    lines = text.splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join("" if line.lstrip().startswith(("!", "%")) else line[margin:] for line in lines) + "\n"


@dataclass(frozen=True)
class Subject:
    """A folder with a SKILL.md."""

    path: Path

    @property
    def file(self) -> Path:
        """Its SKILL.md."""
        return self.path / "SKILL.md"

    @cached_property
    def page(self) -> Page:
        """Its SKILL.md, read."""
        return Page.read(self.file)

    @cached_property
    def files(self) -> list[Path]:
        """Everything in the folder, ordered; skills inside it are skills of their own."""
        found = files_matching(self.path, "**/*")
        inner = {path.parent for path in found if path.name == "SKILL.md" and path.parent != self.path}
        return [
            path
            for path in found
            if not (_SKIPPED & set(path.relative_to(self.path).parts) or inner & set(path.parents))
        ]

    @cached_property
    def pages(self) -> list[Page]:
        """Its SKILL.md and every other page."""
        others = [path for path in self.files if path.suffix == ".md" and path != self.file]
        return [self.page, *map(Page.read, others)]

    @cached_property
    def snippets(self) -> list[Snippet]:
        """The blocks of all pages that name a language, and scripts and data files."""
        return list(self._snippets())

    def _snippets(self) -> Iterator[Snippet]:
        for page in self.pages:
            for block in page.blocks:
                if block.fenced:
                    yield Snippet(page.path, block.line, block.language, block.text, block.closed)
        for path in self.files:
            if path.suffix in _LANGUAGES:
                text = path.read_text(encoding="utf-8", errors="replace")
                yield Snippet(path, 1, _LANGUAGES[path.suffix], text, whole=True)

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The front matter.

        Raises:
            BadInput: there is none, or it is not a mapping of YAML.
        """
        text = self.page.front_matter
        if text is None:
            raise BadInput("no front matter: the file begins with ---, name, description, ---")
        try:
            found = read_yaml(text)
        except DocumentError as error:
            raise BadInput(f"the front matter is not YAML: {error}") from error
        if not isinstance(found, dict):
            raise BadInput("the front matter is not a mapping of fields to values")
        return {str(key): value for key, value in found.items()}

    @cached_property
    def description(self) -> str:
        """Return its description; empty if it cannot be read."""
        try:
            return str(self.meta.get("description") or "")
        except BadInput:
            return ""

    def line_of(self, field: str) -> int:
        """Return the line of a field of the front matter; the first line without that field."""
        lines = self.page.text.splitlines()
        return next((number for number, line in enumerate(lines, 1) if line.startswith(f"{field}:")), 1)


def find_skills(path: Path) -> list[Subject]:
    """Return all skills below a folder, or the one whose SKILL.md or folder it is."""
    if path.is_file() and path.name == "SKILL.md":
        path = path.parent
    if (path / "SKILL.md").is_file():
        return [Subject(path.resolve())]
    found = files_matching(path, "**/SKILL.md")
    return [Subject(file.parent.resolve()) for file in found if not _SKIPPED & set(file.parts)]
