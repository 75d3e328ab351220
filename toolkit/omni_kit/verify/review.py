"""Differences between an integration and a fresh scaffold of the same source, with the rules and levels that cover
each."""

import ast
import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.pysource.nodes import constant, within
from omni_kit.record import ANSWERS, BASE
from omni_kit.scaffold.new_model import draft
from omni_kit.scaffold.update import read_record
from omni_kit.targets.sides import REFERENCES, Candidate

_NAMED = re.compile(r"([^\s():,'\"]+\.py):(\d+)")  # how reasons name a place
_CLASS_KEYS = {"transformers": "model_type", "diffusers": "_class_name"}
_SAID = 300  # characters of a reason
_AROUND = 3  # lines of a hunk that did not change


@dataclass(frozen=True)
class Remark:
    """The message of a rule or a level about one place.

    Attributes:
        by: the ID of the rule, or the name of the stage.
        said: in words.
        file, line: where; a file without a line is meant as a whole.
        function: the qualified name of the function, where only that is known.
    """

    by: str
    said: str
    file: Path | None = None
    line: int = 0
    function: str = ""


@dataclass(frozen=True)
class Hunk:
    """Lines that differ from the scaffold's.

    Attributes:
        path: the file, from the integration's directory.
        line: the first line that differs, in the integration's file; of removed lines, the one before.
        functions: the functions that the lines are in.
        diff: from the scaffold to the integration, in unified form.
        remarks: what speaks of it; nothing if it is unexplained.
    """

    path: str
    line: int
    last: int
    functions: tuple[str, ...]
    diff: str
    remarks: tuple[Remark, ...] = ()

    @property
    def place(self) -> str:
        """File, line and function."""
        return f"{self.path}:{self.line}{f' in {self.functions[0]}' if self.functions else ''}"

    @property
    def by(self) -> str:
        """Return the rule or level that made the remark."""
        return ", ".join(dict.fromkeys(one.by for one in self.remarks)) or "unexplained"


@dataclass(frozen=True)
class Review:
    """An integration next to a fresh scaffold.

    Attributes:
        source: what the scaffold is made from.
        missing: files that only the scaffold has.
        own: Python files that only the integration has.
    """

    source: str
    hunks: Sequence[Hunk] = ()
    missing: Sequence[str] = ()
    own: Sequence[str] = ()
    elsewhere: Sequence[Remark] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the review, JSON-ready."""
        hunks = [
            {
                "path": hunk.path, "line": hunk.line, "functions": list(hunk.functions), "diff": hunk.diff,
                "spoken": [{"by": one.by, "said": one.said} for one in hunk.remarks],
            }
            for hunk in self.hunks
        ]  # fmt: skip
        elsewhere = [{"by": one.by, "said": one.said} for one in self.elsewhere]
        files = {"missing": list(self.missing), "own": list(self.own)}
        return {"source": self.source, "hunks": hunks, **files, "elsewhere": elsewhere}


def review(candidate: Candidate, owner: str, source: str | None) -> Review:
    """Compare an integration with a scaffold that is made now, in memory.

    Args:
        owner: the target's name.
        source: SOURCE of the scaffold; None for the recorded one or, without a record, what the toy is made from.

    Raises:
        BadInput: no source is known, or none can be scaffolded from it.
    """
    root = candidate.path.resolve()
    taken, fresh = _fresh(root, owner, source or "", candidate.source)
    own = {file.relative_to(root).as_posix() for file in _files(root)}
    generated = {path: text for path, text in fresh.items() if path not in (ANSWERS, BASE)}
    hunks = [hunk for path, text in sorted(generated.items()) if path in own for hunk in _hunks(root, path, text)]
    return Review(
        taken,
        hunks,
        sorted(path for path in generated if path not in own),
        sorted(path for path in own - generated.keys() if path.endswith(".py") and not _is_generated(root / path)),
    )


def explained(found: Review, candidate: Candidate, remarks: Sequence[Remark]) -> Review:
    """Return the review with what rules and levels said about each difference, and about none."""
    root = candidate.path.resolve()
    written = _targets(root)
    spoken = [_spoken(hunk, root, remarks, written) for hunk in found.hunks]
    heard = {id(one) for hunk in spoken for one in hunk.remarks}
    return replace(found, hunks=spoken, elsewhere=[one for one in remarks if id(one) not in heard])


def _fresh(root: Path, owner: str, source: str, toy: str) -> tuple[str, dict[str, str]]:
    """Return the source, and the scaffold's files by their path in the integration."""
    if (root / ANSWERS).is_file():
        recorded = read_record(root)
        library = next((name for name in REFERENCES if name in recorded.answers.answers), "")
        taken = source or _meant(recorded.source, library, root)
        plan, files, _ = draft(
            recorded.name, taken, target=recorded.target, style=recorded.style, into=recorded.root,
            kind=recorded.kind, kernels=recorded.kernels,
        )  # fmt: skip
    else:
        taken = source or _named_in(root, toy)
        try:
            plan, files, _ = draft(root.name, taken, target=owner, style="plugin", into=root.parent)
        except BadInput as error:
            raise BadInput(error.message, error.hint or "pass the model with --from SOURCE") from error
    base = PurePosixPath(plan.base)
    inside = {path: text for path, text in files.items() if PurePosixPath(path).is_relative_to(base)}
    return taken, {PurePosixPath(path).relative_to(base).as_posix(): text for path, text in inside.items()}


def _named_in(root: Path, toy: str) -> str:
    """Return the name of the model, where the toy's config says it: a scaffold of a name is of the published sizes."""
    for file in (Path(toy), root / "toy_config.json"):
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for library, key in _CLASS_KEYS.items():
            if isinstance(values, dict) and isinstance(values.get(key), str):
                return f"{library}:{values[key]}"
    return toy


def _meant(source: str, library: str, root: Path) -> str:
    """Return a recorded name, which is not a directory even where one has that name: the integration's own, for
    example.
    """
    return f"{library}:{source}" if library and Path(source).resolve() == root else source


def _files(root: Path) -> Iterator[Path]:
    """Return the files of an integration, without bytecode."""
    return (file for file in sorted(root.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)


def _is_generated(file: Path) -> bool:
    """Return whether patchgen wrote a file: its patch config is what people change."""
    return file.parent.name == "generated"


def _hunks(root: Path, path: str, fresh: str) -> Iterator[Hunk]:
    """Yield the places in which a file differs from the scaffold's."""
    try:
        text = (root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    old, new = fresh.splitlines(), text.splitlines()
    functions = _functions(text) if path.endswith(".py") else {}
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_AROUND):
        changed = [(there, end) for tag, _, _, there, end in group if tag != "equal"]
        first, last = min(there for there, _ in changed) + 1, max(max(there + 1, end) for there, end in changed)
        names = dict.fromkeys(name for line in range(first, last + 1) if (name := functions.get(line, "")))
        yield Hunk(path, first, last, tuple(names), "\n".join(_unified(group, old, new)))


def _unified(group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    yield f"@@ -{group[0][1] + 1},{group[-1][2] - group[0][1]} +{group[0][3] + 1},{group[-1][4] - group[0][3]} @@"
    for tag, here, until, there, end in group:
        if tag == "equal":
            yield from (f" {line}" for line in old[here:until])
        else:
            yield from (f"-{line}" for line in old[here:until])
            yield from (f"+{line}" for line in new[there:end])


def _functions(text: str) -> dict[int, str]:
    """Line -> the qualified name of the innermost function or class that it is in."""
    found: dict[int, str] = {}

    def name(body: Collection[ast.stmt], around: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                own = f"{around}.{node.name}".lstrip(".")
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found.update(dict.fromkeys(range(first, (node.end_lineno or node.lineno) + 1), own))
                name(node.body, own)

    try:
        name(ast.parse(text).body, "")
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return found


def _targets(root: Path) -> dict[tuple[str, str], str]:
    """Patch config and function in it -> what it replaces upstream: the first string of its decorator."""
    found: dict[tuple[str, str], str] = {}
    for file in files_matching(root, "*_patch_gen_config.py"):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            continue
        nodes: list[ast.FunctionDef | ast.ClassDef] = [*within(tree, ast.FunctionDef), *within(tree, ast.ClassDef)]
        for node in nodes:
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and call.args and isinstance(target := constant(call.args[0]), str):
                    found[file.name, node.name] = target
    return found


def _spoken(hunk: Hunk, root: Path, remarks: Sequence[Remark], written: Mapping[tuple[str, str], str]) -> Hunk:
    """Return a hunk with the remarks about its lines, or about a function that it is in."""
    replaced = {written.get((hunk.path, name.partition(".")[0]), "") for name in hunk.functions} - {""}
    found = tuple(one for one in remarks if _speaks(one, hunk, root, replaced))
    return Hunk(hunk.path, hunk.line, hunk.last, hunk.functions, hunk.diff, found)


def _speaks(remark: Remark, hunk: Hunk, root: Path, replaced: Collection[str]) -> bool:
    if any(_same_function(name, remark.function) for name in (*replaced, *hunk.functions)):
        return True
    if remark.file is None or remark.file.resolve() != root / hunk.path:
        return False
    if hunk.line - 1 <= remark.line <= hunk.last + 1 or not remark.line:
        return True
    functions = _functions((root / hunk.path).read_text(encoding="utf-8"))
    return functions.get(remark.line, "") in hunk.functions


def _same_function(name: str, other: str) -> bool:
    """Return whether one of two qualified names is the other, or a class that holds it."""
    return bool(other) and (name == other or other.startswith(f"{name}.") or name.startswith(f"{other}."))


def remarks_of(by: str, reason: str, sources: Sequence[str] = ()) -> Iterator[Remark]:
    """Return the remarks of a failed stage about the places that its reason names or that are known from elsewhere.

    Args:
        sources: "file:line" of functions that are to blame.
    """
    said = reason if len(reason) <= _SAID else f"{reason[:_SAID]}..."
    places = [*_NAMED.findall(reason), *(source.rpartition(":")[::2] for source in sources if source)]
    found = False
    for file, line in places:
        place = Path(file)
        if place.is_absolute() and place.is_file() and line.isdigit():
            found = True
            try:
                function = _functions(place.read_text(encoding="utf-8")).get(int(line), "")
            except (OSError, UnicodeDecodeError):
                function = ""
            yield Remark(by, said, place, int(line), function if "." in function else "")
    if not found:
        yield Remark(by, said)
