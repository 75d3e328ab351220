"""The commands and flags of a program, and the commands in shell code."""

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_ENDS = frozenset("|&;()<>\n")
_ASSIGNMENT = re.compile(r"\w+=.*")
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_PLACEHOLDER = re.compile(r"<(?=[^\s<>&|;(])[^<>\n]*(?<=\S)>")
_KEYWORDS = {"if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "$", ">", "time", "exec", "command"}
# Whatever comes after these words is a command of its own.
_WRAPPERS = (
    ("sudo",), ("nohup",), ("env",), ("xargs",), ("srun",), ("uv", "run"), ("uvx",), ("pipx", "run"), ("poetry", "run"),
    ("pdm", "run"), ("hatch", "run"), ("conda", "run"), ("npx",), ("timeout",), ("nice",),
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """The flags and subcommands of a program or of one of its commands.

    Attributes:
        options: flags, with their hyphens.
        commands: its own commands by name; None if they are not known.
        about: what it does, in one sentence; empty if that is not known.
    """

    name: str
    options: frozenset[str] = frozenset()
    commands: "Mapping[str, Command] | None" = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True)
class Call:
    """A program with its arguments, as a skill says it.

    Attributes:
        program: the name alone; `path` is what stands there.
        line: counted from the beginning of the text, from 1.
    """

    program: str
    arguments: tuple[str, ...]
    path: str
    line: int

    @property
    def where(self) -> str:
        """The program and its first argument, for messages."""
        return " ".join((self.program, *self.arguments[:1]))


def without_placeholders(text: str) -> str:
    """Shell code with a word instead of each `<placeholder>`."""
    return _PLACEHOLDER.sub("PLACEHOLDER", text)


def calls(text: str) -> Iterator[Call]:
    """Yield the simple commands of shell code; of what cannot be read, nothing."""
    text = _without_heredocs(without_placeholders(text))
    line = 1
    for logical in re.split(r"(?<!\\)\n", text):
        for words in _simple(logical.replace("\\\n", " ")):
            if (call := _call(words, line)) is not None:
                yield call
        line += logical.count("\n") + 1


def _without_heredocs(text: str) -> str:
    """Shell code with empty lines instead of documents; one without an end is none."""
    lines = text.split("\n")
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.strip(), []).append(number)
    kept: list[str] = []
    while len(kept) < len(lines):
        number = len(kept)
        for match in _HEREDOC.finditer(lines[number]):
            places = ends.get(match[2], [])
            if (after := bisect_right(places, number)) < len(places):
                kept += [lines[number][: match.start()], *[""] * (places[after] - number)]
                break
        else:
            kept.append(lines[number])
    return "\n".join(kept)


def _simple(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a line."""
    lexer = shlex.shlex(re.sub(r"^\s*[$%>] ", "", line), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    redirected = False
    try:
        for word in lexer:
            if word.startswith("#"):
                break
            if word and set(word) <= _ENDS:
                redirected = "<" in word or ">" in word
                if not redirected:
                    yield words
                    words = []
            elif redirected:
                redirected = False
            else:
                words.append(word)
    except ValueError:  # a quotation that goes on
        pass
    yield words


def _call(words: Sequence[str], line: int) -> Call | None:
    """Return the program that some words run, behind keywords, assignments and wrappers."""
    at = 0
    while at < len(words):
        if words[at] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[at]):
            at += 1
        elif inner := _behind_wrapper(words, at):
            at = inner
        else:
            break
    if at >= len(words) or not re.fullmatch(r"[\w./~${}+-]+", words[at]):
        return None
    return Call(words[at].rpartition("/")[2], tuple(words[at + 1 :]), words[at], line)


def _behind_wrapper(words: Sequence[str], at: int) -> int:
    """Return the index of the command that the words from `at` on wrap; 0 if they wrap nothing."""
    for wrapper in _WRAPPERS:
        inner = at + len(wrapper)
        if tuple(words[at:inner]) == wrapper and inner < len(words):
            while inner < len(words) and (
                words[inner].startswith("-") or _ASSIGNMENT.fullmatch(words[inner]) or words[inner][:1].isdigit()
            ):
                inner += 1
            return inner
    return 0
