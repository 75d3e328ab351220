"""Decisions that differ between two versions of upstream, with the upstream line that caused each."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from omni_kit.coverage.facts import Fact, Facts

_EVIDENCE = re.compile(r"([\w./-]+\.py):(\d+)")
_RECIPE, _RECIPES = re.compile(r"(?:class|model_type):(\w+)"), "transformers/conversion_mapping.py"
_ALIKE, _RENAMED, _UPSTREAM, _UNEXPLAINED = "alike", "renamed upstream", "changed upstream", "not explained"
LEAST_EXPLAINED = 0.99
_LONGEST = 110


@dataclass(frozen=True)
class Change:
    """A fact that is not the same on both versions.

    Attributes:
        before, after: None if one version has no such fact.
        cause: upstream's line; empty if none was found.
    """

    subject: str
    before: Fact | None
    after: Fact | None
    cause: str

    @property
    def fact(self) -> Fact:
        """Return the fact on either version."""
        found = self.after or self.before
        assert found is not None
        return found


@dataclass(frozen=True)
class Comparison:
    """Two versions side by side.

    Attributes:
        counts: (room, outcome) -> how many facts.
        only_here, only_there: subjects that one of the versions lacks.
    """

    base: Facts
    other: Facts
    counts: Counter[tuple[str, str]]
    changes: list[Change]
    only_here: list[str]
    only_there: list[str]

    def share(self, room: str = "") -> float:
        """Return the share of facts that are alike or explained; of one room, or of all."""
        counted = {key: count for key, count in self.counts.items() if room in ("", key[0])}
        unexplained = sum(count for (_, outcome), count in counted.items() if outcome == _UNEXPLAINED)
        return 1 - unexplained / max(1, sum(counted.values()))


def compare(base: Facts, other: Facts) -> Comparison:
    """Compare the facts about every subject that both versions have."""
    counts: Counter[tuple[str, str]] = Counter()
    changes: list[Change] = []
    names = [name for name in base.subjects if name in other.subjects]
    for name in names:
        for before, after, outcome in _paired(base.subjects[name], other.subjects[name]):
            cause = ""
            if outcome == _UNEXPLAINED:
                cause = _cause(base, other, [after, before, *other.subjects[name][:1], *base.subjects[name][:1]])
                changes.append(Change(name, before, after, cause))
            room = (after or before or Fact("", "", "")).room
            counts[room, _UPSTREAM if cause else outcome] += 1
    return Comparison(
        base, other, counts, changes,
        [name for name in base.subjects if name not in other.subjects],
        [name for name in other.subjects if name not in base.subjects],
    )  # fmt: skip


def _paired(before: Sequence[Fact], after: Sequence[Fact]) -> Iterator[tuple[Fact | None, Fact | None, str]]:
    """Facts about the same thing; what is left over is paired where only a name changed."""
    here, there = ({(fact.room, fact.what): fact for fact in facts} for facts in (before, after))
    for key in (key for key in here if key in there):
        yield here[key], there[key], _ALIKE if here[key].choice == there[key].choice else _UNEXPLAINED
    gone = [here[key] for key in here if key not in there]
    new = [there[key] for key in there if key not in here]
    for fact in gone:
        twin = next((one for one in new if _kind(one) == _kind(fact)), None)
        if twin is not None:
            new.remove(twin)
        yield fact, twin, _RENAMED if twin is not None and twin.choice == fact.choice else _UNEXPLAINED
    yield from ((None, fact, _UNEXPLAINED) for fact in new)


def _kind(fact: Fact) -> tuple[str, str]:
    return fact.room, fact.what.partition(" ")[0]


def _cause(base: Facts, other: Facts, facts: Sequence[Fact | None]) -> str:
    """Return the first line that differs in the code that one of these was read from."""
    read = [fact for fact in facts if fact is not None]
    own = [fact.evidence for fact in facts[:2] if fact is not None]
    named = [name for evidence in own for name in _RECIPE.findall(evidence)]
    if cause := next((cause for name in named if (cause := _recipe(base, other, name))), ""):
        return cause
    for fact in read:
        for path, line in _EVIDENCE.findall(fact.evidence):
            for version in (other, base):
                for name in _around(_file(version, path), int(line)):
                    if cause := _difference(base, other, path, name):
                        return cause
    paths = dict.fromkeys(path for fact in read for path, _ in _EVIDENCE.findall(fact.evidence))
    return next((cause for path in paths if (cause := _difference(base, other, path, ""))), "")


def _recipe(base: Facts, other: Facts, name: str) -> str:
    """Return which version alone has a recipe for checkpoints of a class or model_type; empty if both or none do."""
    lines = [
        next((node.lineno for node in ast.walk(_tree(_file(facts, _RECIPES)))
              if isinstance(node, ast.Constant) and node.value == name), None)
        for facts in (base, other)
    ]  # fmt: skip
    match lines:
        case [None, int(line)]:
            return f"a conversion of {name} is new ({_RECIPES}:{line})"
        case [int(line), None]:
            return f"the conversion of {name} is gone ({_RECIPES}:{line} in {_version(base, _RECIPES)})"
    return ""


def _difference(base: Facts, other: Facts, path: str, name: str) -> str:
    """Return the first line in which a definition, or a file, differs between the versions; empty if none does."""
    here, there = _file(base, path), _file(other, path)
    if not name and (changed := _classes_changed(base, here, there, path)):
        return changed
    old, new = _code(here, name), _code(there, name)
    if not old and not new:
        return ""
    if not new:
        return f"{name or path} is gone ({path}:{old[0][0]} in {_version(base, path)})"
    if not old:
        return f"{name or path} is new ({path}:{new[0][0]})"
    matcher = SequenceMatcher(None, [text for _, text in old], [text for _, text in new], autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            left, right = (" ".join(text for _, text in part) for part in (old[first:last], new[start:end]))
            line = new[min(start, len(new) - 1)][0]
            return f"`{_cut(left) or '(nothing)'}` became `{_cut(right) or '(nothing)'}` ({path}:{line})"
    return ""


def _classes_changed(base: Facts, here: Path, there: Path, path: str) -> str:
    """Return the removed and new classes of a file; empty if neither file exists, or none changed."""
    old, new = ([name for name, node in _definitions(file).items() if isinstance(node, ast.ClassDef)]
                for file in (here, there))  # fmt: skip
    told = [f"{name} is gone" for name in old if name not in new]
    told += [f"{name} is new" for name in new if name not in old]
    return f"{_cut(', '.join(told))} ({path})" if old and new and told else ""


def _cut(text: str) -> str:
    text = text.replace("|", "\\|").replace("`", "'")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _version(facts: Facts, path: str) -> str:
    return facts.versions.get(path.partition("/")[0], "")


def _file(facts: Facts, path: str) -> Path:
    """Return a file that is cited relative to the directory that holds its package."""
    root = facts.roots.get(path.partition("/")[0])
    return Path(root).parent / path if root else Path(path)


def _around(file: Path, line: int) -> list[str]:
    """Return the names of the definitions around a line, the innermost first."""
    found = [(node.end_lineno - node.lineno, name) for name, node in _definitions(file).items()
             if node.end_lineno is not None and node.lineno <= line <= node.end_lineno]  # fmt: skip
    return [name for _, name in sorted(found)]


@cache
def _definitions(file: Path) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    """Name -> class, function or method of a file."""
    found: dict[str, ast.ClassDef | ast.FunctionDef] = {}
    for node in _tree(file).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
            found |= {f"{node.name}.{item.name}": item for item in methods}
    return found


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])


@cache
def _code(file: Path, name: str) -> list[tuple[int, str]]:
    """Return the statements of a definition, or of a whole file, one a line: (line, text), without docstrings."""
    node = _definitions(file).get(name) if name else _tree(file)
    return list(_statements(node.body)) if node is not None else []


def _statements(body: Iterable[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in body:
        inner = [part for field in ("body", "orelse", "handlers", "finalbody") for part in getattr(node, field, [])]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.AnnAssign):
            if node.value is None:
                continue
            node = ast.copy_location(ast.Assign([node.target], node.value), node)
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            node = _bare(node)
        yield node.lineno, ast.unparse(node).partition("\n")[0] if inner else ast.unparse(node)
        yield from _statements(inner)


def _bare(node: ast.ClassDef | ast.FunctionDef) -> ast.stmt:
    """Return a definition's head, without decorators and annotations, on which no decision rests."""
    head = copy(node)
    head.body, head.decorator_list = [ast.Pass()], []
    if isinstance(head, ast.FunctionDef):
        head.args, head.returns = deepcopy(head.args), None
        for argument in ast.walk(head.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
    return head


def page(comparisons: Sequence[Comparison]) -> str:
    """Return the page: a table for all versions, then what differs on each."""
    base = comparisons[0].base if comparisons else Facts({}, {}, {})
    lines = [
        "# Versions of transformers and diffusers",
        "",
        f"Made by `make coverage-versions`: every decision on {_named(base)}, and the same decision on other",
        "versions, for the models that both have. A decision that differs is listed with the first upstream line that",
        "changed in the code that it was read from.",
        "",
        "| versions | room | alike | renamed upstream | changed upstream | not explained | alike or explained |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        for room in dict.fromkeys(room for room, _ in sorted(one.counts)):
            counted = [str(one.counts[room, outcome]) for outcome in (_ALIKE, _RENAMED, _UPSTREAM, _UNEXPLAINED)]
            lines.append(f"| {_named(one.other)} | {room} | {' | '.join(counted)} | {one.share(room):.1%} |")
    for one in comparisons:
        lines += ["", f"## {_named(one.other)}", "", *_absent(one)]
        lines += ["| model | what | before | now | upstream |", "|---|---|---|---|---|", *_rows(one.changes)]
    return "\n".join(lines) + "\n"


def _named(facts: Facts) -> str:
    return " and ".join(f"{library} {version}" for library, version in facts.versions.items())


def _absent(one: Comparison) -> list[str]:
    told = [(one.only_there, "New, and not compared"), (one.only_here, "Gone")]
    return [text for names, what in told if names for text in (f"{what}: {', '.join(sorted(names))}.", "")]


def _rows(changes: Sequence[Change]) -> Iterator[str]:
    """Yield one row for all that one line of upstream caused in one room of a model."""
    grouped: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        grouped.setdefault((change.subject, change.fact.room, change.cause), []).append(change)
    for (subject, room, cause), group in grouped.items():
        what = ", ".join(change.fact.what for change in group)
        before, now = (
            ", ".join(fact.choice if fact is not None else "nothing" for fact in facts)
            for facts in ([change.before for change in group], [change.after for change in group])
        )
        cells = (subject, f"{room}: {what}", before, now)
        yield f"| {' | '.join(map(_cut, cells))} | {cause or 'not explained'} |"
