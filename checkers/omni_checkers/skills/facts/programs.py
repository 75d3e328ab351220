"""Commands and flags of programs: ours from the live app, others from `--help` if they are known to support it.

A program that ignores its arguments does its work when it is asked. So only these are asked: programs that an installed
distribution brings, and those whose man page or completion names `--help`; never one of the repository that is checked.
"""

import gzip
import os
import re
import shutil
import sysconfig
import zlib
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
_SCRIPT = re.compile(r"^(?:\.\./)+bin/([\w.-]+),", re.MULTILINE)
_HELP = re.compile(rb"(?:--|\\-\\-)help\b")


class Programs:
    """The commands and flags of programs.

    Args:
        known: name -> what it understands, of programs that need not be asked.
        apart: folders whose programs are not asked: those of what is checked.
        ask: also ask programs of which it is not known that they answer `--help`.

    Attributes:
        ran: the files that were run with `--help`.
    """

    def __init__(self, known: Mapping[str, Command], apart: Sequence[Path] = (), ask: bool = False) -> None:
        self.known = dict(known)
        self.apart = tuple(apart)
        self.ask = ask
        self.ran: set[str] = set()

    def understands(self, call: Call) -> Command | None:
        """Return the commands of the called program; None if it is not installed or was not run."""
        if call.program in self.known:
            return self.known[call.program]
        file = _file_of(call)
        if file is None or not self._may_ask(call, file):
            return None
        self.ran.add(str(file))
        return _asked((str(file),))

    def is_unasked(self, call: Call) -> bool:
        """Return whether the called program exists and was not run because it may not support `--help`."""
        file = _file_of(call) if call.program not in self.known else None
        return file is not None and call.program not in _NEVER and not self._may_ask(call, file)

    def _may_ask(self, call: Call, file: Path) -> bool:
        if call.program in _NEVER or "sbin" in file.parts:
            return False
        if _is_installed(file) and file.parent == Path(sysconfig.get_path("scripts")):
            return True  # of the environment that runs this, wherever it lies
        inside = any(place.is_relative_to(folder) for place in (file, file.resolve()) for folder in self.apart)
        return not inside and (self.ask or _is_installed(file) or _is_described(file))

    def is_missing(self, call: Call) -> bool:
        """Return whether the program is called by its bare name and is not installed."""
        plain = re.fullmatch(r"[a-z][\w.-]*", call.path) is not None and call.program not in self.known
        return plain and call.program not in _NEVER and shutil.which(call.program) is None

    def may_take(self, call: Call, flag: str) -> bool:
        """Return whether the program of a call, or any of its commands, has a flag; True where that is not known."""
        here = self.understands(call)
        if here is None:
            return call.program not in _BUILTINS
        if call.program in self.known:
            return flag in _every_option(here)
        return here.commands is None or bool(here.commands) or _takes(flag, set(here.options), False)

    def wrong(self, call: Call) -> tuple[str, str] | None:
        """Return ("command" or "flag", the fault of a call); None if there is none, or if that is unknown."""
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


def _file_of(call: Call) -> Path | None:
    """Return the program of a call that is called by its name alone."""
    found = shutil.which(call.program) if re.fullmatch(r"[\w+.-]+", call.path) else None
    return Path(os.path.abspath(found)) if found is not None else None


def _is_installed(file: Path) -> bool:
    """Return whether a distribution of Python that is installed next to it has brought a program."""
    return file.name in _brought(file.parent)


@cache
def _brought(folder: Path) -> frozenset[str]:
    """Return the programs of a folder that installed distributions list among their files."""
    records = folder.parent.glob("lib/python*/*-packages/*.dist-info/RECORD")
    texts = (record.read_text(encoding="utf-8", errors="replace") for record in records if record.is_file())
    return frozenset(name for text in texts for name in _SCRIPT.findall(text))


@cache
def _is_described(file: Path) -> bool:
    """Return whether a program's man page or completion names `--help`; a script must name it itself, too."""
    prefix = file.parent.parent / "share" if file.parent.name == "bin" else Path("/usr/share")
    pages = [*prefix.glob(f"man/man1/{file.name}.1*"), prefix / "bash-completion" / "completions" / file.name]
    if not any(_HELP.search(_content(page)) for page in pages):
        return False
    content = _content(file)
    return not content.startswith(b"#!") or _HELP.search(content) is not None


def _content(file: Path) -> bytes:
    """Return a file's bytes, unpacked; none if it cannot be read."""
    try:
        data = file.read_bytes() if file.is_file() else b""
        return gzip.decompress(data) if file.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error):
        return b""


def _every_option(command: Command) -> set[str]:
    inner = (command.commands or {}).values()
    return {*command.options, "--help"}.union(*map(_every_option, inner))


def _shown(call: Call, reached: Sequence[Command]) -> str:
    return " ".join((call.program, *(command.name for command in reached[1:])))


def _flag(word: str) -> str:
    match = re.match(r"[\[(]*(-{1,2}[A-Za-z][\w-]*)", word)
    return match[1] if match else ""


def _takes(flag: str, options: set[str], ours: bool) -> bool:
    """Return whether a flag is there, as far as that is known; of others' programs long ones are looked up."""
    if flag in options or flag in ("--help", "--version", "-h"):
        return True
    return not ours and (not flag.startswith("--") or not options - {"--help", "--version"})


@cache
def _asked(words: tuple[str, ...]) -> Command | None:
    """Parse the `--help` of a command; None if it lists neither flags nor commands."""
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
        """Return the command, as its own `--help` says it; one without help understands everything."""
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
    """Return the names below headings such as `Commands:`, and in `{a,b}` of a usage line."""
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
