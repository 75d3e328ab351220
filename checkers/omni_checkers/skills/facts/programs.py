"""What programs understand: told for our own, asked by `--help` of others, which are never run otherwise."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from omni_kit.isolation.programs import run_program
from omni_kit.skillpack.commands import Call, Command

_LIMIT = 30  # seconds
_FLAG = re.compile(r"(?<![\w-])--(?:\[(no-)\])?([A-Za-z][\w-]*)")
_BRACES = re.compile(r"(?<!\w )\{([a-z][\w-]*(?:,\s*[a-z][\w-]*)+)\}")
_HEADING = re.compile(r"^(?:\W*)([\w ]*(?:commands|subcommands|sub-commands))\b[^\n]*$", re.IGNORECASE)
_ROW = re.compile(r"^[\s│|]{1,8}([a-z][\w-]*)\*?(?:,\s*[a-z]+)?(?=\s{2,}|\s*$|\s+│)")
_MORE = re.compile(r"--help[ =]\w+|help all|help -a|--list\b|--help-all|^\s*\.\.\.", re.MULTILINE)
# They run what follows, or read no --help: nothing is asked of them.
_NEVER = frozenset(
    {"bash", "sh", "zsh", "fish", "python", "python2", "python3", "node", "perl", "ruby", "ssh", "scp", "su", "sudo"}
    | {"cd", "export", "source", "set", "unset", "echo", "printf", "test", "true", "false", "eval", "read", "exit"}
    | {"return", "alias", "yes", "init", "reboot", "shutdown", "halt", "poweroff", "kill", "killall", "pkill", "dd"}
)
_BUILTINS = frozenset({"cd", "export", "source", "set", "unset", "echo", "printf", "exit", "alias"})
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Programs:
    """What programs understand.

    Args:
        known: name -> what it understands, of programs that need not be asked.
        apart: folders whose programs are not asked: those of what is checked.
    """

    def __init__(self, known: Mapping[str, Command], apart: Sequence[Path] = ()) -> None:
        self.known = dict(known)
        self.apart = tuple(apart)

    def understands(self, call: Call) -> Command | None:
        """What the program of a call understands; None where it is not installed, or not asked."""
        if call.program in self.known:
            return self.known[call.program]
        file = shutil.which(call.program) if re.fullmatch(r"[\w+.-]+", call.path) else None
        if file is None or call.program in _NEVER or "sbin" in Path(file).parts or self._is_apart(Path(file)):
            return None
        return _asked((file,))

    def _is_apart(self, file: Path) -> bool:
        return any(file.resolve().is_relative_to(folder) for folder in self.apart)

    def is_missing(self, call: Call) -> bool:
        """Whether the program is called by its name alone, and is not there."""
        plain = re.fullmatch(r"[a-z][\w.-]*", call.path) is not None and call.program not in self.known
        return plain and call.program not in _NEVER and shutil.which(call.program) is None

    def may_take(self, call: Call, flag: str) -> bool:
        """Whether the program of a call, or any of its commands, has a flag; True where that is not known."""
        here = self.understands(call)
        if here is None:
            return call.program not in _BUILTINS
        if call.program in self.known:
            return flag in _every_option(here)
        return here.commands is None or bool(here.commands) or _takes(flag, set(here.options), False)

    def wrong(self, call: Call) -> tuple[str, str] | None:
        """("command" or "flag", what is wrong with a call); None where nothing is, or nothing can be told."""
        here = self.understands(call)
        if here is None:
            return None
        ours = call.program in self.known
        reached, options, value = [here], set(here.options), False
        for word in call.arguments:
            if word in ("--", "...", "…"):
                return None
            if flag := _flag(word):
                if not _takes(flag, options, ours):
                    return "flag", f"'{_shown(call, reached)}' has no {flag}"
                if flag in ("-m", "-c"):  # what follows belongs to a module, or is code
                    return None
                value = "=" not in word
                continue
            if reached[-1].commands and not value:
                inner = [reached[-1].commands.get(name) for name in word.split("¦")]
                wrong = next((name for name, one in zip(word.split("¦"), inner, strict=True) if one is None), None)
                if wrong is not None and _NAME.fullmatch(wrong):
                    return "command", f"'{_shown(call, reached)}' has no command '{wrong}'"
                if wrong is not None or inner[0] is None:
                    return None
                reached.append(inner[0])
                options = set(inner[0].options) | (set() if ours else options)
            elif not value and word.endswith((".py", ".sh")):
                return None  # what follows belongs to the script
            value = False
        return None


def _every_option(command: Command) -> set[str]:
    inner = (command.commands or {}).values()
    return {*command.options, "--help"}.union(*map(_every_option, inner))


def _shown(call: Call, reached: Sequence[Command]) -> str:
    return " ".join((call.program, *(command.name for command in reached[1:])))


def _flag(word: str) -> str:
    match = re.match(r"[\[(]*(-{1,2}[A-Za-z][\w-]*)", word)
    return match[1] if match else ""


def _takes(flag: str, options: set[str], ours: bool) -> bool:
    """Whether a flag is there, as far as that is known; of others' programs long ones are looked up."""
    if flag in options or flag in ("--help", "--version", "-h"):
        return True
    return not ours and (not flag.startswith("--") or not options - {"--help", "--version"})


@cache
def _asked(words: tuple[str, ...]) -> Command | None:
    """What `--help` says; None where it says nothing that lists flags or commands."""
    said = _help(words)
    if said is None:
        return None
    options = {f"--{name}" for _, name in _FLAG.findall(said)}
    options |= {f"--no-{name}" for no, name in _FLAG.findall(said) if no}
    names = _commands(said)
    if not options and not names:
        return None
    if _MORE.search(said):
        options, names = set(), []
    lazy = _Lazily(words, names)
    return Command(words[-1], frozenset(options), lazy if names else None)


class _Lazily(dict[str, Command]):
    """Commands of a program, each asked when it is looked up."""

    def __init__(self, words: tuple[str, ...], names: Sequence[str]) -> None:
        super().__init__(dict.fromkeys(names, Command("")))
        self._words = words

    def get(self, key: str, default: object = None) -> Command | None:  # type: ignore[override]
        """The command, as its own `--help` says it; one without help understands everything."""
        if key not in self:
            return None
        return _asked((*self._words, key)) or Command(key, frozenset(), None)


def _help(words: tuple[str, ...]) -> str | None:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat"}
    try:
        done = run_program([*words, "--help"], timeout=_LIMIT, environment=environment)
    except OSError:
        return None
    return f"{done.stdout}\n{done.stderr}" if done.code == 0 else None


def _commands(said: str) -> list[str]:
    """The names below headings such as `Commands:`, and in `{a,b}` of a usage line."""
    found: list[str] = []
    inside = False
    for line in said.splitlines():
        if not line.startswith((" ", "│", "|")):
            inside = bool(_HEADING.match(line)) or (inside and not line.strip())
        elif inside and (row := _ROW.match(line)):
            found.append(row[1])
    if not found and (braces := _BRACES.search(said.partition("\n\n")[0])):
        found = [name.strip() for name in braces[1].split(",")]
    return found
