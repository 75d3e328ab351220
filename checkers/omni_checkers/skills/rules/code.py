"""Code that a skill shows or brings: it can at least be parsed."""

import ast
import re
import shutil
import signal
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.skills.examples import HEAD
from omni_checkers.skills.subject import PYTHON, SHELL, Snippet, Subject, python_of
from omni_kit.documents import DocumentError, check_yaml, read_json, read_toml
from omni_kit.isolation.programs import run_program
from omni_kit.skillpack.commands import without_placeholders

_LIMIT = 20  # seconds
_ELLIPSIS = re.compile(r"(?<=[,(])\s*\.\.\.\s*(?=[,)])")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w -]*>")


class CodeBlock(Rule):
    """Write blocks of shell, Python, YAML, JSON or TOML, scripts and data files that parse.

    `bash -n` parses shell and runs nothing. A `<placeholder>` counts as a word, and `...` as further arguments.

    Why: the agent copies the block unchanged and has to fix its error first.

    Fine when: never; use the language `text` for a block that is not code.
    """

    id = "SKL301"
    name = "code-does-not-parse"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```python\nprint((1 + 2)\n```\n"},
        {"SKILL.md": f"{HEAD}```bash\nif true; then echo\n```\n"},
        {"SKILL.md": f'{HEAD}```json\n{{"sum": 3,}}\n```\n'},
        {"SKILL.md": f"{HEAD}```yaml\nsum: [1, 2\n```\n"},
        {"SKILL.md": f"{HEAD}```toml\nsum = \n```\n"},
        {"SKILL.md": f"{HEAD}```text\nnever closed\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}```bash\ncat <file> | sort\n```\n\n```python\nprint(1 + 2)\n```\n"},)

    def check(self, skill: Subject, untested: set[str]) -> Findings:
        if not skill.snippets:
            raise NotApplicable("it has no code")
        for snippet in skill.snippets:
            if not snippet.closed:
                yield Finding("this code block is not closed", snippet.path, max(1, snippet.line - 1))
            elif snippet.language in SHELL and shutil.which("bash") is None:
                untested.add("bash is not installed: blocks of shell were not parsed")
            elif (wrong := _wrong(snippet)) is not None:
                line, message = wrong
                what = "file" if snippet.whole else "block"
                yield Finding(
                    f"this {what} is not {snippet.language}: {message}", snippet.path, snippet.line + line - 1
                )


def _wrong(snippet: Snippet) -> tuple[int, str] | None:
    """Return the line and what is wrong there; None for what parses, and for other languages."""
    reader = _READERS.get(snippet.language)
    return reader(snippet.plain if snippet.language in SHELL | PYTHON else snippet.text) if reader else None


@lru_cache(maxsize=512)
def _shell(text: str) -> tuple[int, str] | None:
    program = ("bash", "--norc", "--noprofile", "-n")
    try:
        done = run_program(program, timeout=_LIMIT, stdin=without_placeholders(text))
    except TimeoutError:
        return 1, f"bash did not parse it within {_LIMIT} s"
    if done.code < 0:
        return 1, f"{signal.Signals(-done.code).name} ended bash while it parsed this"
    said = next((line for line in done.stderr.splitlines() if re.search(r"line \d+: ", line)), "")
    match = re.search(r"line (\d+): (.*)", said)
    return (min(int(match[1]), text.count("\n") or 1), match[2]) if match and done.code else None


def _python(text: str) -> tuple[int, str] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(python_of(text))
        except SyntaxError as error:
            plain = _ELLIPSIS.sub("**_", _PLACEHOLDER.sub("placeholder", text))
            if plain != text:
                return _python(plain)
            return error.lineno or 1, error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            return 1, str(error)
    return None


def _document(read: Callable[[str], object]) -> Callable[[str], tuple[int, str] | None]:
    def wrong(text: str) -> tuple[int, str] | None:
        try:
            read(text)
        except DocumentError as error:
            return error.line, error.reason
        return None

    return wrong


_READERS: Mapping[str, Callable[[str], tuple[int, str] | None]] = {
    **dict.fromkeys(SHELL, _shell), **dict.fromkeys(PYTHON, _python),
    "json": _document(read_json), "toml": _document(read_toml), **dict.fromkeys(("yaml", "yml"), _document(check_yaml)),
}  # fmt: skip
