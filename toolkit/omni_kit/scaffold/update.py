"""Makes an integration again as today's templates and library have it, and merges that with what people changed."""

import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from omni_kit.documents import read_json
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.files import check_name
from omni_kit.isolation.programs import run_program
from omni_kit.record import ANSWERS, BASE, Answers, digest, load_answers, load_base, root_of
from omni_kit.scaffold.new_model import draft
from omni_kit.scaffold.write import FileChange, leads_nowhere, read_existing, write
from omni_kit.targets.protocol import IntegrationPlan, Style

_MERGING = 60.0  # seconds
_PLACE = re.compile(r"([\w./-]+\.py):\d+")  # a line of upstream, as comments and docstrings refer to it


@dataclass(frozen=True)
class Update:
    """The result of an update.

    Attributes:
        root: what the paths of the changes start from.
        changes: every file with what was, or would be, done to it; a "conflict" has marks in it, or was left alone.
        notes: one line for everything that a person has to look at, or should know.
    """

    root: Path
    plan: IntegrationPlan
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether nothing is left for a person to decide."""
        return all(change.action != "conflict" for change in self.changes)


@dataclass(frozen=True)
class Recorded:
    """The recorded source and options of an integration.

    Attributes:
        root: the directory that the recorded paths start from.
    """

    name: str
    source: str
    target: str
    style: Style
    root: Path
    answers: Answers
    base: Mapping[str, str]

    @property
    def kind(self) -> str | None:
        """Return the requested kind, or the requested variant of the integration; None without one."""
        return self.answers.answers.get("kind")

    @property
    def kernels(self) -> dict[str, str]:
        """The kernels that its training file was written with.

        Raises:
            BadInput: they cannot be read.
        """
        try:
            said = read_json(self.answers.answers.get("kernels", "{}"))
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise BadInput(f"{ANSWERS} of {self.name} holds kernels that cannot be read", "restore it, or remove them")
        return {str(setting): str(kernel) for setting, kernel in said.items()}


def update(directory: Path, *, source: str | None = None, dry_run: bool = False) -> Update:
    """Render an integration again, and merge it three-way with the current files.

    A file that nobody changed is replaced. One that somebody changed is merged by git; where both changed the same
    lines, both stand in the file between marks. One that somebody removed stays away.

    Args:
        directory: the integration's directory, with its `.omni-kit.toml`.
        source: where the model is now; None if it was.
        dry_run: decide everything, write nothing.

    Raises:
        BadInput: there is no record of what it was made from, or that can no longer be read; as `new_model`.
        MissingRequirement: git is not installed.
    """
    recorded = read_record(directory)
    try:
        plan, files, edited = draft(
            recorded.name, source or recorded.source, target=recorded.target, style=recorded.style, into=recorded.root,
            kind=recorded.kind, kernels=recorded.kernels, class_name=recorded.answers.answers.get("class_name", ""),
        )  # fmt: skip
    except BadInput as error:
        if source is None:
            raise BadInput(
                error.message, error.hint or "pass the model's current location with --from SOURCE"
            ) from error
        raise
    notes: list[str] = []
    changes = []
    for path, text in files.items():
        old = read_existing(recorded.root, path)
        if path in (f"{plan.base}/{ANSWERS}", f"{plan.base}/{BASE}"):
            changes.append(_plain(path, old, text))
        elif (change := _merged(path, old, text, recorded, notes)) is not None:
            changes.append(change)
    changes += [_plain(path, read_existing(recorded.root, path), text) for path, text in edited.items()]
    gone = [path for path in recorded.answers.files if path not in files and (recorded.root / path).exists()]
    notes += [f"{path} is no longer part of the integration; it was left unchanged" for path in gone]
    if not dry_run:
        write(recorded.root, changes)
    return Update(recorded.root, plan, tuple(changes), tuple(notes))


def read_record(directory: Path) -> Recorded:
    """Return the recorded source and options of an integration.

    Raises:
        BadInput: it does not say so, or not all of it.
    """
    path = directory / ANSWERS
    if not path.is_file():
        raise BadInput(f"{directory} has no {ANSWERS}", "pass a directory that omni-kit new-model wrote")
    record = load_answers(path)
    if missing := [key for key in ("name", "source", "target", "style") if key not in record.answers]:
        raise BadInput(f"{path} has no {missing[0]}", "restore it, or create the integration again")
    name, source, target, style = (record.answers[key] for key in ("name", "source", "target", "style"))
    check_name(name)
    if style not in ("plugin", "in-tree"):
        raise BadInput(f"{path} has the unknown style '{style}'", "plugin or in-tree")
    root = root_of(directory.resolve(), record)
    known: Style = "in-tree" if style == "in-tree" else "plugin"
    return Recorded(name, source, target, known, root, record, load_base(directory / BASE, record))


def _plain(path: str, old: str | None, new: str) -> FileChange:
    return FileChange(path, "create" if old is None else "unchanged" if old == new else "update", old, new)


def _merged(path: str, old: str | None, new: str, recorded: Recorded, notes: list[str]) -> FileChange | None:
    """Return the change of one file; None if it stays removed."""
    written = recorded.answers.files.get(path)
    if leads_nowhere(recorded.root / path):
        notes.append(f"{path} is a link that leads nowhere; it was left unchanged")
        return FileChange(path, "conflict", "", "")
    if old is None and written is not None:
        notes.append(f"{path} was removed and is not restored; new-model --force restores it")
        return None
    if old is None or old == new or digest(old) == written:
        return _plain(path, old, new)
    if written == digest(new):  # only people changed it
        return FileChange(path, "unchanged", old, old)
    base = recorded.base.get(path)
    if base is None:
        notes.append(f"{path} was changed, and its original content is unknown; it was left unchanged")
        return FileChange(path, "conflict", old, old)
    text, clean = _merge(*follow_references(old, base, new), new)
    if not clean:
        notes.append(f"{path} has conflict markers: resolve them")
    return FileChange(path, ("unchanged" if text == old else "update") if clean else "conflict", old, text)


def follow_references(yours: str, base: str, new: str) -> tuple[str, str]:
    """Return `yours` and `base` with the references to upstream's lines that `new` has.

    A reference is not code: without this, a change next to one would conflict wherever upstream only moved its lines.
    """
    then, now = base.split("\n"), new.split("\n")
    plain = [[_PLACE.sub(r"\1", line) for line in side] for side in (then, now)]
    matcher = SequenceMatcher(None, plain[0], plain[1], autojunk=False)
    moved: defaultdict[str, set[str]] = defaultdict(set)
    for start, there, size in matcher.get_matching_blocks():
        for step in range(size):
            places = (_PLACE.finditer(side[at + step]) for side, at in ((then, start), (now, there)))
            for old, other in zip(*places, strict=True):
                moved[old.group()].add(other.group())
    sure = {old: others.pop() for old, others in moved.items() if len(others) == 1}
    renewed = (_PLACE.sub(lambda place: sure.get(place.group(), place.group()), text) for text in (yours, base))
    return next(renewed), next(renewed)


def _merge(yours: str, base: str, new: str) -> tuple[str, bool]:
    """Return the three-way merge of git, and whether it left no marks.

    Raises:
        MissingRequirement: git is not installed, or fails.
    """
    with tempfile.TemporaryDirectory(prefix="omni-kit-update-") as place:
        for name, text in (("yours", yours), ("base", base), ("new", new)):
            (Path(place) / name).write_text(text, encoding="utf-8", newline="\n")
        labels = ("-L", "yours", "-L", "as it was written", "-L", "new")
        program = ("git", "merge-file", "-p", "--diff3", *labels, "yours", "base", "new")
        try:
            done = run_program(program, timeout=_MERGING, directory=Path(place))
        except FileNotFoundError as error:
            raise MissingRequirement(
                "changed files are merged with git, which is not installed", "install git"
            ) from error
        except OSError as error:
            raise MissingRequirement(f"git merge-file failed: {error}", "look at git --version") from error
    if done.code < 0 or done.code > 127:  # 1 to 127 is the number of conflicts
        raise MissingRequirement(f"git merge-file failed: {done.stderr.strip()[:200]}", "look at git --version")
    return done.stdout, done.code == 0
