"""What a type checker says of files that upstream's own files do not have: calls and names that have drifted apart.

The checker is `ty`, an optional package. It reads the installed libraries and runs nothing.
"""

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import MissingRequirement

PACKAGE = "ty"
_REINSTALL = f"pip install --force-reinstall {PACKAGE}"
_TIMEOUT = 300
_LINE = re.compile(r"(?P<path>.+?):(?P<line>\d+):\d+: \w+\[(?P<rule>[\w-]+)\] (?P<said>.*)")
# Rules of ty that mean drift; the others are noise in modeling code.
_RULES = (
    "unknown-argument", "missing-argument", "too-many-positional-arguments", "missing-attribute", "import-not-found",
    "unresolved-reference",
)  # fmt: skip
_MODULE = re.compile(r"imported module `\.*(?P<name>\w*)")
# What is set on an object is no drift; nor are attributes of some members of a union, nor methods for a device.
_NOISE = re.compile(r"^Unresolved attribute|in union|possibly|has no attribute `(?:npu|xpu|hpu|mlu|musa)`")
_CONFIGS = re.compile(r"^\s*super\(\)\.__init__\(")


@dataclass(frozen=True)
class Diagnostic:
    """One thing that does not fit.

    Attributes:
        rule: of the type checker.
        said: its own words.
    """

    path: Path
    line: int
    rule: str
    said: str


def available() -> bool:
    """Whether the type checker is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def drifted(files: Sequence[Path], upstream: Sequence[Path]) -> list[Diagnostic]:
    """What the type checker says of `files` and not of upstream's, both read in one run; in the order of lines.

    Raises:
        MissingRequirement: it is installed and cannot run.
    """
    found = list(_run([*files, *upstream]))
    theirs = Counter((one.rule, one.said) for one in found if one.path in set(upstream))
    mine = (one for one in found if one.path in set(files) and not theirs[one.rule, one.said])
    return sorted((one for one in mine if not _is_noise(one)), key=lambda one: (str(one.path), one.line, one.said))


def _run(files: Sequence[Path]) -> Iterator[Diagnostic]:
    if not files:
        return
    command = [sys.executable, "-m", PACKAGE, "check", "--python", sys.prefix, "--output-format", "concise",
               "--exit-zero", "--ignore", "all"]  # fmt: skip
    for rule in _RULES:
        command += ["--error", rule]
    place = _root(files[0])  # paths below it are said relative to it
    try:
        done = subprocess.run(
            [*command, *map(str, files)], capture_output=True, text=True, timeout=_TIMEOUT, check=False, cwd=place
        )
    except subprocess.TimeoutExpired:
        raise MissingRequirement(f"{PACKAGE} did not finish in {_TIMEOUT} s", _REINSTALL) from None
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message").strip()
        raise MissingRequirement(f"{PACKAGE} cannot run: it ended with code {done.returncode}: {last}", _REINSTALL)
    for line in done.stdout.splitlines():
        if match := _LINE.fullmatch(line):
            path = Path(place, match["path"]).resolve()
            yield Diagnostic(path, int(match["line"]), match["rule"], match["said"])


def _root(file: Path) -> Path:
    """Where the outermost package of a file lies: seen from inside of that, `from . import` leads nowhere."""
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
