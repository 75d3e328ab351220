"""Names of Python that a skill imports, uses or mentions, and versions that it pins."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.skills.examples import HEAD
from omni_checkers.skills.facts.installed import Absent, Dead, Installed, normalised
from omni_checkers.skills.facts.mentions import FILE, ProgramCall
from omni_checkers.skills.subject import PYTHON, Subject
from omni_kit.pysource.source import dotted

_PLACEHOLDER = re.compile(r"(?:my|your|new|some|example|foo|bar)_?\w*", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?=\(.*\)$|$)")
_PIN = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]*?)(?:\[[\w, -]+\])?\s*==\s*v?(\d[\w.*+]*)")
_PROSE = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]*?)[` ]+`?v?(\d+\.\d+\.\d+(?:\.?\w+)*)`?(?!\s*(?:or|and) (?:later|newer)|\+)"
)
_SINCE = re.compile(r"(?:since|before|after|until|from|than|least|[<>]=?|≥|≤)\s+[`\w.-]*$", re.IGNORECASE)

Use = tuple[str, Path, int]
"""A dotted name, and where it stands."""


class DeadImport(Rule):
    """Import only modules and names that the installed package has.

    The rule reads packages and never imports them. It skips modules that the skill instructs to write, such as `my_...`
    or a name in a block's first line, and imports inside a `try`. A package that is not installed appears in the notes
    as not tested.

    Why: the agent's file fails on import, or the agent writes the missing module itself.

    Fine when: the text names the version that has the import.
    """

    id = "SKL501"
    name = "dead-import"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```python\nfrom omni_kit.parity import assert_paritee\n```\n"},
        {"SKILL.md": f"{HEAD}```python\nimport omni_kit.no_such_module\n```\n"},
        {"SKILL.md": f'{HEAD}```bash\npython -c "from json import dumpss"\n```\n'},
    )
    GOOD = ({"SKILL.md": f"{HEAD}```python\nfrom omni_kit.parity import assert_parity\nimport json\n```\n"},)

    def check(
        self, skill: Subject, program_calls: list[ProgramCall], installed: Installed, untested: set[str]
    ) -> Findings:
        trees = _trees(skill, program_calls)
        if not trees:
            raise NotApplicable("it shows no Python")
        written = _written(skill)
        for tree, path, first in trees:
            for name, line in _imports(tree):
                if not _is_placeholder(name, written):
                    yield from _judged((name, path, first + line - 1), installed, untested)


class DeadAttribute(Rule):
    """Use only attributes that the module or class has, in code and in dotted names.

    The rule reads packages and never imports them. An attribute that is set at run time counts as present if its name
    occurs in the package.

    Why: the code fails at run time, often deep in a long job.

    Fine when: the text names the version that has it.
    """

    id = "SKL502"
    name = "dead-attribute"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```python\nimport json\n\njson.dumpss([1])\n```\n"},
        {"SKILL.md": f"{HEAD}```python\nfrom pathlib import Path\n\nPath.read_txt\n```\n"},
        {"SKILL.md": f"{HEAD}Call `omni_kit.parity.assert_paritee`.\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}```python\nimport json\n\njson.dumps([1])\n```\n\n`omni_kit.parity` compares.\n"},)

    def check(
        self, skill: Subject, program_calls: list[ProgramCall], installed: Installed, untested: set[str]
    ) -> Findings:
        written = _written(skill)
        for tree, path, first in _trees(skill, program_calls):
            for name, line in dict.fromkeys(_attributes(tree)):
                if not _is_placeholder(name, written):
                    yield from _judged((name, path, first + line - 1), installed, untested)
        for use in _mentioned(skill, installed):
            if not _is_placeholder(use[0], written):
                yield from _judged(use, installed, untested)


class StalePin(Rule):
    """Pin the installed version.

    `name==1.2.3`, and a version in the front matter, are errors if they differ from the installed version. "name 1.2.3"
    in the text is a warning, unless it states since or until when.

    Why: the skill was written for that version; commands and names have changed since.

    Fine when: the text is about that very version.
    """

    id = "SKL503"
    name = "stale-version"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```bash\npip install pyyaml==3.0\n```\n"},
        {"SKILL.md": HEAD.replace("sum.\n", "sum.\ncompatibility: Needs jinja2 2.0.1.\n")},
        {"SKILL.md": f"{HEAD}Written for Jinja2 2.0.1.\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}PyYAML has had it since PyYAML 5.1.0.\n"},)

    def check(self, skill: Subject, installed: Installed) -> Findings:
        for page in skill.pages:
            head = (page.front_matter or "").count("\n") + 1 if page.front_matter is not None else 0
            for number, line in enumerate(page.text.splitlines(), 1):
                for name, version, certain in _pins(line, number <= head):
                    have = installed.versions.get(normalised(name))
                    if have is not None and not _same(version, have):
                        severity = Severity.error if certain else Severity.warning
                        message = f"{name} {version} is named; {have} is installed"
                        yield Finding(message, page.path, number, severity=severity)


def _pins(line: str, in_head: bool) -> Iterator[tuple[str, str, bool]]:
    for match in _PIN.finditer(line):
        yield match[1], match[2], True
    for match in _PROSE.finditer(line):
        if in_head or not _SINCE.search(line[: match.start(2)].rstrip("` v")):
            yield match[1], match[2], in_head
    if in_head and (field := re.match(r"\s+[\"']?([\w.-]+?)(?:[-_]version)?[\"']?:\s*[\"']?[=v]*(\d[\w.]*)", line)):
        yield field[1], field[2], True


def _same(named: str, have: str) -> bool:
    try:
        return SpecifierSet(f"=={named}").contains(Version(have), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _judged(use: Use, installed: Installed, untested: set[str]) -> Iterator[Finding]:
    name, path, line = use
    try:
        installed.check(name)
    except Dead as why:
        yield Finding(f"{name} does not exist: {why}", path, line)
    except Absent as package:
        untested.add(f"'{package}' is not installed: its names were not tested")


def _trees(skill: Subject, program_calls: list[ProgramCall]) -> list[tuple[ast.Module, Path, int]]:
    """Return the code of Python that parses: blocks, scripts, and what `python -c` is given."""
    found = [(s.tree, s.path, s.line) for s in skill.snippets if s.language in PYTHON and s.tree is not None]
    for one in program_calls:
        words = one.call.arguments
        if one.call.program.startswith("python") and words[:1] == ("-c",) and len(words) > 1:
            try:
                found.append((ast.parse(words[1]), one.path, one.line))
            except (SyntaxError, ValueError):
                continue
    return found


def _imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the dotted names that are imported, with their lines; without those that may fail."""
    allowed = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in allowed:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                yield (node.module if alias.name == "*" else f"{node.module}.{alias.name}"), alias.lineno


def _attributes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield attributes of what is imported, by their full names; what an import itself names is left to DeadImport."""
    meant: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meant |= {
                a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            meant |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner and isinstance(node.ctx, ast.Load):
            root, _, rest = (dotted(node) or "").partition(".")
            if rest and root in meant and root not in stored:
                yield f"{meant[root]}.{rest}", node.lineno


def _mentioned(skill: Subject, installed: Installed) -> Iterator[Use]:
    """Dotted names within the text that begin with an installed package, the standard library's left out."""
    for page in skill.pages:
        for span in page.code:
            match = _DOTTED.match(span.text)
            if match and not FILE.search(span.text) and _is_package(match[0].partition(".")[0], installed):
                yield match[0], page.path, span.line


def _is_package(name: str, installed: Installed) -> bool:
    return normalised(name) in installed.versions and installed.module(name) is not None


@lru_cache(maxsize=64)
def _written(skill: Subject) -> frozenset[str]:
    """Return the names of modules that the skill tells to write: in the comment that begins a block."""
    found = set()
    for snippet in skill.snippets:
        first = snippet.text.lstrip().partition("\n")[0]
        if not snippet.whole and (match := re.match(r"#\s*(?:file:\s*)?(\S+)\.py\s*$", first)):
            found.add(match[1].rpartition("/")[2])
    return frozenset(found)


def _is_placeholder(name: str, written: frozenset[str]) -> bool:
    _, *parts = name.split(".")
    return any(part in written or _PLACEHOLDER.fullmatch(part) for part in parts)
