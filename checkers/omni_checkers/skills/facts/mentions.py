"""Programs and paths that a skill mentions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omni_checkers.engine.facts import fact
from omni_checkers.skills.subject import SHELL, Subject
from omni_kit.skillpack.commands import Call, calls

_PLACEHOLDER = re.compile(r"[<>{}*$|…]|\.\.\.|\b(?:XX+|YY+)\b")
_PATH = re.compile(r"(?:\.{1,2}/)*[\w.@+-]+(?:/[\w.@+-]+)*/?")
_LONGEST = 1000  # characters of a path; systems refuse to look for one of some thousands
_VARIABLE = re.compile(r"^(?:\$\{?\w+\}?|\{\w+\}|<[\w -]+>)/")
FILE = re.compile(r"\.(?:py|md|mdx|rst|txt|toml|ya?ml|json|sh|cfg|ini|jinja2?|ipynb|lock|c|cc|cpp|cu|cuh|h|rs|js|ts)$")


@dataclass(frozen=True)
class MentionedPath:
    """Something that a skill mentions, and where.

    Attributes:
        kind: link, code or shell.
    """

    text: str
    path: Path
    line: int
    kind: str
    around: str = ""


@dataclass(frozen=True)
class ProgramCall:
    """A call of a program, and where it stands.

    Attributes:
        section: the page and the number of the heading that it stands under.
        inline: within the text, or in a block that names no language.
    """

    call: Call
    path: Path
    line: int
    section: tuple[Path, int]
    inline: bool


@fact
def program_calls(skill: Subject) -> list[ProgramCall]:
    """Return the programs that are called, in shell blocks, in indented ones and within the text."""
    return list(_program_calls(skill))


def _program_calls(skill: Subject) -> Iterator[ProgramCall]:
    for page in skill.pages:
        for block in page.blocks:
            if block.language in SHELL or not block.fenced or (block.language == "" and _is_session(block.text)):
                for call in calls(block.text):
                    line = block.line + call.line - 1
                    yield ProgramCall(call, page.path, line, (page.path, page.section_of(line)), not block.fenced)
        for span in page.code:
            text = re.sub(r"(?<=\w)\|(?=[\w-])", "¦", span.text)
            for call in calls(text):
                if call.arguments:
                    yield ProgramCall(call, page.path, span.line, (page.path, span.section), True)


def _is_session(text: str) -> bool:
    return text.lstrip().startswith("$ ")


def mentioned_paths(skill: Subject) -> list[MentionedPath]:
    """Relative paths, without placeholders: of links, of code within the text, and of words of commands."""
    return list(dict.fromkeys(said for said in _paths(skill) if len(said.text) < _LONGEST))


def _paths(skill: Subject) -> Iterator[MentionedPath]:
    for page in skill.pages:
        for span in page.links:
            target = span.text.partition("#")[0].partition("?")[0]
            if target and not re.match(r"[a-z][a-z0-9+.-]*:|//", target):
                yield MentionedPath(target, page.path, span.line, "link", span.around)
        for span in page.code:
            text = _VARIABLE.sub("", span.text.strip().partition("::")[0])
            if "/" in text and _PATH.fullmatch(text) and not _PLACEHOLDER.search(text):
                yield MentionedPath(text, page.path, span.line, "code", span.around)
    for one in program_calls(skill):
        for word in (one.call.path, *one.call.arguments):
            text = _VARIABLE.sub("", word.rpartition("=")[2].partition("::")[0])
            if "/" in text and _PATH.fullmatch(text) and not _PLACEHOLDER.search(text):
                yield MentionedPath(text, one.path, one.line, "shell")
