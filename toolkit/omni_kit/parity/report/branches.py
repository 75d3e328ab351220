"""Branches that no process of a comparison took, and what each would need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.branches import Arcs, Branch, BranchReader
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import read_source

# What a base class of this name asks of a model serves generation; a function that prints serves people.
NOT_MEASURED = "branches were not measured"
_GENERATION = "GenerationMixin"
_PRINTING = {"extra_repr": "printing", "__repr__": "printing", "__str__": "printing"}
_FEW = 5  # names that a reader takes in
_GENERATED_BY = "*_patch_gen_config.py"
_OF_PEOPLE = ("tests", "test_*.py", _GENERATED_BY)


@dataclass(frozen=True)
class UnexecutedBranch:
    """A branch that no process took.

    Attributes:
        path, line: where it begins.
        needs: what would take it, in words.
        fields, arguments: of configs and of calls, which decide it.
        apart: why it is not counted; empty if it is.
    """

    path: str
    line: int
    function: str
    needs: str
    fields: Sequence[str] = ()
    arguments: Sequence[str] = ()
    apart: str = ""

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.line} not executed: {self.needs}"


@dataclass(frozen=True)
class BranchReport:
    """Share of an integration's and of upstream's code that the processes of a comparison executed.

    Attributes:
        taken, counted: branches of functions that matter for training.
        untaken: those not taken, without those inside them.
        apart: those not taken that are not counted, with a reason each.
    """

    taken: int
    counted: int
    untaken: Sequence[UnexecutedBranch] = ()
    apart: Sequence[UnexecutedBranch] = ()

    @property
    def share(self) -> float:
        """Of the counted branches, those that were taken; 1 of none."""
        return self.taken / self.counted if self.counted else 1.0

    @property
    def figure(self) -> str:
        """The share in words."""
        return f"{self.share:.0%} of {self.counted} branches executed"

    def to_json(self, own: Path) -> dict[str, Any]:
        """Return the report for a card: the integration's files by their path in it, others by their path in their
        library.
        """
        figures = {"taken": self.taken, "counted": self.counted, "share": round(self.share, 4), "figure": self.figure}
        lists = {"untaken": self.untaken, "apart": self.apart}
        return {**figures, **{name: [_plain(one, own) for one in found] for name, found in lists.items()}}


def branch_report(executed: Mapping[str, Arcs], own: Path) -> BranchReport:
    """Compare what was executed with what the files contain.

    A branch that the integration copied from upstream, unchanged and taken on neither side, is one: the integration's.

    Args:
        executed: file -> pairs of lines, of upstream's files and of the integration's.
        own: the integration's directory.
    """
    mine = {file: arcs for file, arcs in executed.items() if Path(file).is_relative_to(own)}
    judged = [_Judged(Path(file), arcs) for file, arcs in sorted(mine.items()) if not _is_apart(Path(file), own)]
    judged += [_Judged(Path(file), arcs) for file, arcs in sorted(executed.items()) if file not in mine]
    taken = counted = 0
    untaken: dict[tuple[str, str], UnexecutedBranch] = {}
    apart: dict[tuple[str, str], UnexecutedBranch] = {}
    known: set[tuple[str, str]] = set()
    for one in judged:
        found = {branch: ran for branch, ran in one.ran.items() if _key(branch) not in known}
        for branch, ran in found.items():
            known.add(_key(branch))
            if not ran and (line := one.untaken(branch)) is not None:
                (apart if line.apart else untaken).setdefault(_key(branch), line)
            if ran or not one.apart(branch):
                taken, counted = taken + ran, counted + 1
    return BranchReport(taken, counted, [*untaken.values()], [*apart.values()])


def _plain(one: UnexecutedBranch, own: Path) -> dict[str, Any]:
    file = Path(one.path)
    if file.is_relative_to(own):
        path = file.relative_to(own).as_posix()
    else:
        library = next(_libraries(file), None)
        path = library.show(file) if library is not None else one.path
    return {**asdict(one), "path": path, "fields": list(one.fields), "arguments": list(one.arguments)}


def _key(branch: Branch) -> tuple[str, str]:
    """Return the key that copies of a branch share, with the conditions of the branches around it."""
    outer = _key(branch.outer) if branch.outer is not None and branch.outer.function == branch.function else ("", "")
    return branch.function, f"{outer[1]}/{branch.condition}"


def _is_apart(file: Path, own: Path) -> bool:
    """Return whether a file of an integration is for people: tests, and what code is generated from."""
    return any(part == _OF_PEOPLE[0] for part in file.relative_to(own).parts) or any(map(file.match, _OF_PEOPLE[1:]))


class _Judged:
    """One file, and what was executed of it."""

    def __init__(self, file: Path, arcs: Arcs) -> None:
        self.file = file
        self._reader = BranchReader(file, {**_PRINTING, **_serving_generation(file)})
        self.ran = {branch: branch.ran(arcs) for branch in self._reader.branches}
        self._entries = {branch.entry for branch, ran in self.ran.items() if ran}

    def apart(self, branch: Branch) -> str:
        """Return why a branch is not counted."""
        if branch.apart:
            return branch.apart
        return "other heads" if branch.entry and branch.entry not in self._entries else ""

    def untaken(self, branch: Branch) -> UnexecutedBranch | None:
        """Return the report on a branch that did not run; None if an outer or neighbouring one already covers it."""
        around = branch.outer
        if around is not None and around.function == branch.function and not self.ran[around]:
            return None
        beside = [one for one in self.ran if one.condition_line == branch.condition_line and one.condition]
        reached = any(self.ran[one] for one in beside)
        if branch.condition and not reached and beside[0] is not branch and len(beside) > 1:
            return None
        needs, cause = self._needs(branch, reached=reached or len(beside) == 1, seen={branch.function})
        decision = cause.decision
        return UnexecutedBranch(
            str(self.file), branch.line, branch.function, needs, sorted(decision.fields), sorted(decision.arguments),
            self.apart(branch) or self.apart(cause),
        )  # fmt: skip

    def _needs(self, branch: Branch, *, reached: bool, seen: set[str]) -> tuple[str, Branch]:
        """Return the need of a branch, and the branch that decides it; for an uncalled function, where it is named."""
        if branch.condition:
            if not reached:
                return f"needs line {branch.condition_line} to be reached", branch
            return f"needs {branch.condition}{_decided(branch)}", branch
        name, _, method = branch.function.rpartition(".")
        # What modules and Python itself call is called wherever the class is used.
        common = method == "forward" or method.startswith("__")
        for called in filter(None, (name, method) if common else (method, name)):
            for line in self._reader.users(called):
                cause = self._innermost(line)
                if cause is not None and not self.ran[cause] and cause.function not in seen:
                    said, decider = self._needs(cause, reached=True, seen={*seen, cause.function})
                    return f"needs {called} at line {line}, which {said}", decider
        return f"needs a call of {branch.function}", branch

    def _innermost(self, line: int) -> Branch | None:
        around = [one for one in self.ran if not one.absent and one.inside[0] <= line <= one.inside[1]]
        return max(around, key=lambda one: one.inside[0], default=None)


def _decided(branch: Branch) -> str:
    """Return the fields and arguments that decide a condition, if its own text does not name them."""
    fields = [f"config.{name}" for name in sorted(branch.decision.fields) if name not in branch.condition]
    arguments = [name for name in sorted(branch.decision.arguments) if name not in branch.condition]
    named = [*fields, *arguments]
    return f" (decided by {', '.join(named)})" if 0 < len(named) <= _FEW else ""


def _serving_generation(file: Path) -> dict[str, str]:
    """Return the methods that the library's class for generation calls of a model."""
    for library in _libraries(file):
        try:
            source = read_source(library, file)
            found = source.resolve_class(_GENERATION)
        except (BadInput, ValueError):
            continue
        if found is not None:
            methods = {one.name for one in found[1].body if hasattr(one, "name")} - {"__init__", "forward"}
            return dict.fromkeys(methods, "generation")
    return {}


def _libraries(file: Path) -> Iterator[Library]:
    """Yield the package that a file is of."""
    root: Path | None = None
    for parent in file.parents:
        if not (parent / "__init__.py").is_file():
            break
        root = parent
    if root is not None:
        yield Library(root.name, root)
