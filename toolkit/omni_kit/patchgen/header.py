"""The header of a generated file, with its records, and the banners over changed code."""

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from omni_kit.patchgen.spec import PatchConfig

_RULE = "# " + "=" * 78
_BANNER_RULE = "# " + "=" * 70
_COMMAND = "omni-kit patchgen run"
_RECORD = re.compile(r"^#    - (?P<kind>\w+): (?P<target>[\w.]+)$")
_HASHES = re.compile(r"^#      upstream=(?P<upstream>\w+) patch=(?P<patch>\w+)$")


@dataclass(frozen=True)
class Record:
    """One patch as the header keeps it: hashes of the upstream code that it was written against and of itself."""

    kind: str
    target: str
    description: str
    upstream_hash: str
    patch_hash: str


def code_hash(text: str) -> str:
    """Twelve hex digits of a piece of code; indentation as a whole and trailing blanks do not count."""
    lines = [line.rstrip() for line in dedent(text).strip("\n").splitlines()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def header(config: PatchConfig, version: str, records: Sequence[Record]) -> str:
    """Return the comment that a generated file begins with: source, version, command, and a record of each patch."""
    library = config.source_module.partition(".")[0]
    lines = [
        _RULE,
        "#  AUTO-GENERATED FILE - DO NOT EDIT DIRECTLY",
        _RULE,
        "#",
        f"#  Source: {config.source_module}",
        f"#  Based on: {library}=={version}",
        "#",
        f"#  Written by `{_COMMAND}`: change the patch config and run it again.",
        "#  Each hash names the upstream code that a patch was written against, and the patch itself.",
        "#",
        "#  Patches applied:",
    ]
    for record in records:
        lines.append(f"#    - {record.kind}: {record.target}")
        if record.description:
            lines.append(f"#      {' '.join(record.description.split())}")
        lines.append(f"#      upstream={record.upstream_hash} patch={record.patch_hash}")
    return "\n".join([*lines, "#", _RULE, ""]) + "\n"


def read_header(text: str) -> dict[str, tuple[str, str]]:
    """Of a generated file: for each "kind target" the hashes of upstream and patch; empty when it keeps none."""
    records: dict[str, tuple[str, str]] = {}
    current = ""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            break
        if match := _RECORD.match(line):
            current = f"{match['kind']} {match['target']}"
        elif (match := _HASHES.match(line)) and current:
            records[current] = (match["upstream"], match["patch"])
    return records


def patch_at(file: Path, line: int) -> str:
    """Return which patch of a generated file the code at a line is of, as "kind: target"; empty if it is of none."""
    try:
        text = file.read_text(encoding="utf-8")
        scopes = [*_scopes(ast.parse(text).body, "")]
    except (OSError, ValueError, SyntaxError, RecursionError):
        return ""
    around = [name for name, first, last in scopes if first <= line <= last]
    head = text.partition("\nimport ")[0].partition("\nfrom ")[0]
    patches = {match["target"]: match["kind"] for each in head.splitlines() if (match := _RECORD.match(each))}
    return next((f"{patches[name]}: {name}" for name in reversed(around) if name in patches), "")


def _scopes(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, int, int]]:
    """Yield classes and functions, decorators included, with their first and last lines; outer ones first."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield f"{prefix}{node.name}", first, node.end_lineno or node.lineno
            yield from _scopes(node.body, f"{prefix}{node.name}.")


def banner(title: str, *lines: str) -> str:
    """Return a comment block that marks a change; `lines` that are empty are left out."""
    return "\n".join([_BANNER_RULE, f"# {title}", *(f"# {line}" for line in lines if line), _BANNER_RULE]) + "\n"


def written_by_omni_kit(text: str) -> bool:
    """Return whether the header of a generated file names omni-kit's generator.

    Otherwise the framework's own wrote it.
    """
    return _COMMAND in text[:20_000]


def is_generated(text: str) -> bool:
    """Return whether a file says that a patch generator wrote it."""
    return "AUTO-GENERATED FILE - DO NOT EDIT DIRECTLY" in text[:400] and "#  Source: " in text[:800]
