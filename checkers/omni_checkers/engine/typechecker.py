"""Diagnostics of a type checker that upstream's own files do not have: calls and names that drifted apart.

The checker is `ty`, an optional package. It reads the installed libraries and runs nothing.
"""

import importlib.util
import io
import os
import re
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import MissingRequirement
from omni_kit.isolation.programs import program_beside, run_program

PACKAGE = "ty"
_REINSTALL = f"pip install --force-reinstall {PACKAGE}"
_TIMEOUT = 300.0
# No file of what is checked configures its check, and neither does the user's: all of it is here.
_SETTINGS = "[analysis]\nrespect-type-ignore-comments = false\n"
_LINE = re.compile(r"(?P<path>.+?):(?P<line>\d+):\d+: \w+\[(?P<rule>[\w-]+)\] (?P<said>.*)")
# Rules of ty that mean drift; the others are noise in modeling code.
_RULES = (
    "unknown-argument", "missing-argument", "too-many-positional-arguments", "missing-attribute", "import-not-found",
    "unresolved-reference",
)  # fmt: skip
_MODULE = re.compile(r"imported module `\.*(?P<name>\w*)")
# Only this comment cannot be switched off. It silences the rules in its brackets; without them, all.
_IGNORE = re.compile(r"#\s*ty:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?")
# What is set on an object is no drift; nor are attributes of some members of a union, nor methods for a device.
_NOISE = re.compile(r"^Unresolved attribute|in union|possibly|has no attribute `(?:npu|xpu|hpu|mlu|musa)`")
_CONFIGS = re.compile(r"^\s*super\(\)\.__init__\(")


@dataclass(frozen=True)
class Diagnostic:
    """One thing that does not fit.

    Attributes:
        rule: of the type checker; "ignored" for a comment that silences it.
        said: its own words.
    """

    path: Path
    line: int
    rule: str
    said: str


def available() -> bool:
    """Return whether the type checker is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def drifted(files: Sequence[Path], upstream: Sequence[Path]) -> list[Diagnostic]:
    """Return the diagnostics of `files` that upstream's files do not have, from one run, sorted by line.

    Raises:
        MissingRequirement: it is installed and cannot run.
    """
    found = list(_run([*files, *upstream], _roots(files))) if files else []
    theirs = Counter((one.rule, one.said) for one in found if one.path in set(upstream))
    mine = [one for one in found if one.path in set(files) and not theirs[one.rule, one.said]]
    mine += [one for file in files for one in _ignored(file)]
    return sorted((one for one in mine if not _is_noise(one)), key=lambda one: (str(one.path), one.line, one.said))


def _run(files: Sequence[Path], roots: Sequence[Path]) -> Iterator[Diagnostic]:
    program = program_beside(PACKAGE)
    if program is None:
        raise MissingRequirement(f"{PACKAGE} is installed and its program is missing", _REINSTALL)
    rules = [word for rule in _RULES for word in ("--error", rule)]
    paths = [word for root in roots for word in ("--extra-search-path", str(root))]
    with tempfile.TemporaryDirectory(prefix="omni-kit-types-") as neutral:
        settings = Path(neutral, "ty.toml")
        settings.write_text(_SETTINGS, encoding="utf-8")
        command = [program, "check", "--project", neutral, "--config-file", str(settings), "--python", sys.prefix,
                   *paths, "--output-format", "concise", "--exit-zero",
                   "--no-progress", "--color", "never", "--ignore", "all", *rules]  # fmt: skip
        try:
            done = run_program(
                [*command, *map(str, files)], timeout=_TIMEOUT, directory=Path(neutral),
                environment={**os.environ, "XDG_CONFIG_HOME": neutral},
            )  # fmt: skip
        except OSError as error:
            raise MissingRequirement(f"{PACKAGE} cannot run: {error}", _REINSTALL) from None
    if done.code:
        why = f"it ended with code {done.code}: {done.last_words}"
        raise MissingRequirement(f"{PACKAGE} cannot run: {why}", _REINSTALL)
    for line in done.stdout.splitlines():
        if match := _LINE.fullmatch(line):
            path = Path(neutral, match["path"]).resolve()
            yield Diagnostic(path, int(match["line"]), match["rule"], match["said"])


def _ignored(file: Path) -> Iterator[Diagnostic]:
    """Yield the comments that keep the type checker from reporting one of the rules."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):  # what does not parse is another rule's
        return
    for token in tokens:
        match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
        if match and (match["rules"] is None or _silences(match["rules"])):
            said = f"`{match[0]}` hides what {PACKAGE} reports here: remove the comment"
            yield Diagnostic(file, token.start[0], "ignored", said)


def _silences(rules: str) -> bool:
    return any(name.strip() in _RULES for name in rules.split(","))


def _roots(files: Sequence[Path]) -> list[Path]:
    """Return where packages are imported from; of several packages of one name, the first one's place."""
    found: dict[str, Path] = {}
    for file in files:
        root = _root(file)
        found.setdefault(file.resolve().relative_to(root).parts[0], root)
    return list(dict.fromkeys(found.values()))


def _root(file: Path) -> Path:
    """Return the directory above a file's outermost package: inside it, `from . import` leads nowhere."""
    place = file.resolve().parent
    while (place / "__init__.py").is_file() and place != place.parent:
        place = place.parent
    return place


def _is_noise(one: Diagnostic) -> bool:
    if _NOISE.search(one.said):
        return True
    if one.rule == "import-not-found":  # an optional package; what an installed one does not have is drift
        match = _MODULE.search(one.said)
        return match is not None and bool(match["name"]) and importlib.util.find_spec(match["name"]) is None
    if one.rule == "unknown-argument":  # configs of transformers take any keyword
        text = one.path.read_text(encoding="utf-8").splitlines()
        return "configuration" in one.path.name and bool(_CONFIGS.match(text[one.line - 1]))
    return False
