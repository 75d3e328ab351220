"""Effects of a newer upstream on patches: which targets changed, how badly, and a proposed merge."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.compare import Change, DriftStatus, compare
from omni_kit.patchgen.generate import generate
from omni_kit.patchgen.header import code_hash, read_header
from omni_kit.patchgen.keys import KeyDrift, key_drift
from omni_kit.patchgen.loader import LoadedConfig, find_config, load_config
from omni_kit.patchgen.locate import Libraries, package_of, unpacked_library
from omni_kit.patchgen.merge import Merge, merge
from omni_kit.patchgen.project import find_project
from omni_kit.patchgen.source import SourceModule, read_source
from omni_kit.patchgen.write import compiles
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import without_collection

RANKS = ("vanished", "signature", "copied-lines", "body", "decorators", "cosmetic", "unchanged")


@dataclass
class TargetDrift:
    """One patch target between two versions.

    `rank` orders the work (see RANKS); `copied` counts the changed upstream lines that the patch has word for word;
    `then`, `now` and `patch` are the three versions; `proposed` is the patch with upstream's changes merged in, where
    the merge is clean, and `merged` has the conflict markers where it is not.
    """

    config: str
    target: str
    kind: str
    status: DriftStatus
    detail: str
    rank: str
    copied: int = 0
    then: str = ""
    now: str = ""
    patch: str = ""
    merged: str = ""
    proposed: str | None = None
    conflicts: int = 0

    @property
    def config_name(self) -> str:
        """The last part of the config's dotted name, or its file name without the suffix."""
        return self.config.removesuffix(".py").rpartition(".")[2]


@dataclass
class DriftReport:
    """The targets of all configs, worst first; and what became of the parameters of the models that they patch."""

    targets: list[TargetDrift] = field(default_factory=list)
    keys: list[KeyDrift] = field(default_factory=list)
    configs: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether every config could be read, targets changed by their looks at most, and checkpoints load as
        saved.
        """
        looks = all(target.rank in ("cosmetic", "unchanged") for target in self.targets)
        return not self.failed and looks and all(one.same for one in self.keys)

    def counts(self) -> dict[str, int]:
        """Return the number of targets of each rank, worst first; ranks without any are omitted."""
        found = Counter(t.rank for t in self.targets)
        return {rank: found[rank] for rank in RANKS if found[rank]}


def drift_report(
    configs: Sequence[str | Path], before: Path | None, after: Path | None, library: str = "transformers"
) -> DriftReport:
    """Compare the targets of all configs between two unpacked versions.

    Args:
        configs: files or dotted modules.
        before: the version that the patches were written against; without it, the hashes in the generated files tell
            what changed, but not how.
        after: the newer version; the installed one without it.
        library: the package that both are versions of.

    Raises:
        BadInput: no config is given, or a path holds no such package.
    """
    if not configs:
        raise BadInput("no patch configs to compare", "name configs, or pass --all with the --root that contains them")
    old = {library: unpacked_library(library, before)} if before else {}
    new = {library: unpacked_library(library, after)} if after else {}
    report, modules = DriftReport(configs=len(configs)), list[str]()
    with without_collection():
        for config in configs:
            try:
                module, found = _of_config(config, old if before else None, new)
                report.targets += found
                modules.append(module)
            except BadInput as why:
                report.failed.append((str(config), why.message))
        if before is not None and modules:
            report.keys = key_drift(modules, find_library(library, before), find_library(library, after))
    report.targets.sort(key=lambda t: (RANKS.index(t.rank), -t.copied, t.config, t.target))
    return report


def write_targets(report: DriftReport, folder: Path) -> list[Path]:
    """Write the three versions and the merge of every changed target below `folder`, a directory each."""
    written = []
    for target in report.targets:
        if target.rank in ("unchanged", "cosmetic"):
            continue
        place = folder / target.config_name / target.target
        texts = {"then.py": target.then, "now.py": target.now, "patch.py": target.patch}
        texts["proposed.py" if target.proposed is not None else "merge.txt"] = target.merged
        for name, text in texts.items():
            if text:
                write_atomic(place / name, text)
                written.append(place / name)
    return written


def _of_config(config: str | Path, old: dict[str, Path] | None, new: dict[str, Path]) -> tuple[str, list[TargetDrift]]:
    """Return the module that a config patches, and its targets."""
    project = find_project(Path(config).parent if Path(config).is_file() else Path.cwd())
    roots = (project.import_root,) if project else ()
    path = find_config(config, Libraries(roots=roots))
    roots = (*roots, package_of(path)[0])
    loaded = load_config(path, Libraries(roots=roots))
    after = _source(loaded.config.source_module, Libraries(new, roots))
    if old is None:
        return loaded.config.source_module, _by_hash(loaded, after)
    before = read_source(loaded.config.source_module, Libraries(old, roots))
    made = generate(loaded, before, Libraries(old, roots))
    found = [_target(loaded.name, applied, before, after) for applied in made.applied if applied.done]
    return loaded.config.source_module, found + _excluded(loaded, before, after)


def _source(module: str, libraries: Libraries) -> SourceModule | None:
    return read_source(module, libraries) if libraries.file_of(module) else None


def _target(config: str, applied: Applied, before: SourceModule, after: SourceModule | None) -> TargetDrift:
    patch = applied.fragment.text.rstrip() + "\n" if applied.fragment else f"{applied.patch.replacement_source}\n"
    if applied.definition is None:
        change = _of_injected(applied, after)
    else:
        change = compare(before, applied.definition, after, applied.definition.path)
    found = TargetDrift(
        config,
        applied.patch.target,
        applied.patch.kind,
        change.status,
        change.detail,
        "",
        0,
        change.then,
        change.now,
        patch,
    )
    found.copied = copied_lines(change.then, change.now, patch)
    found.rank = _rank(change, found.copied)
    if change.then and change.now and change.then != change.now and applied.fragment is not None:
        _propose(found, merge(change.then.splitlines(), patch.splitlines(), change.now.splitlines()))
    return found


def copied_lines(then: str, now: str, patch: str) -> int:
    """Return how many lines that upstream changed or removed are still in the patch, ignoring layout."""
    kept = {line.strip() for line in now.splitlines()}
    ours = {line.strip() for line in patch.splitlines()}
    return sum(1 for line in then.splitlines() if _says_something(line) and line.strip() in ours - kept)


def _says_something(line: str) -> bool:
    return any(character.isalnum() for character in line) and not line.strip().startswith("#")


def _of_injected(applied: Applied, after: SourceModule | None) -> Change:
    assert applied.owner is not None
    if after is None or after.get(applied.owner.path) is None:
        return Change("vanished", f"class {applied.owner.path}, which it is added to, is gone")
    if after.get(applied.patch.target) is not None:
        return Change("signature-changed", "upstream has a method of that name now; the patch would replace it")
    return Change("unchanged", "")


def _rank(change: Change, copied: int) -> str:
    match change.status:
        case "vanished":
            return "vanished"
        case "signature-changed":
            return "signature"
        case "body-changed":
            return "copied-lines" if copied else "body"
        case "decorators-changed":
            return "decorators"
    return "cosmetic" if change.cosmetic else "unchanged"


def _propose(found: TargetDrift, result: Merge) -> None:
    found.merged = "\n".join(result.lines) + "\n"
    found.conflicts = result.conflicts
    if result.clean and compiles(found.merged, found.target) is None and found.merged != found.patch:
        found.proposed = found.merged


def _excluded(loaded: LoadedConfig, before: SourceModule, after: SourceModule | None) -> list[TargetDrift]:
    """Excludes that name nothing any more: the config would fail."""
    gone = [n for n in loaded.config.exclude if before.get(n) and (after is None or after.get(n) is None)]
    return [TargetDrift(loaded.name, n, "exclude", "vanished", "nothing left to exclude", "vanished") for n in gone]


def _by_hash(loaded: LoadedConfig, after: SourceModule | None) -> list[TargetDrift]:
    output = loaded.path.parent / "generated" / loaded.config.target_file
    text = output.read_text(encoding="utf-8") if output.is_file() else ""
    records = read_header(text)
    if not records:
        why = f"{output.name} has no hashes, so the patches' original version is unknown"
        raise BadInput(why, "generate it with omni-kit patchgen run, or pass --from")
    generated = SourceModule(output.name, output, text) if compiles(text, output.name) is None else None
    found = []
    for key, (upstream, _) in records.items():
        kind, _, target = key.partition(" ")
        path = f"{target}.__init__" if kind == "init_modification" else target
        status, detail, now = _hash_status(upstream, path, after, generated)
        ranks = {"vanished": "vanished", "body-changed": "body", "decorators-changed": "decorators"}
        rank = ranks.get(status, "unchanged")
        found.append(TargetDrift(loaded.name, target, kind, status, detail, rank, now=now))
    return found


def _hash_status(
    upstream: str, path: str, after: SourceModule | None, generated: SourceModule | None
) -> tuple[DriftStatus, str, str]:
    definition = after.get(path) if after else None
    if upstream == "none":
        return ("body-changed", "upstream has a method of that name now", "") if definition else ("unchanged", "", "")
    if after is None or definition is None:
        return "vanished", "no such name", ""
    now = after.code_of(definition)
    if code_hash(now) == upstream:
        return "unchanged", "", now
    kept = generated.get(path) if generated else None  # a patch keeps upstream's decorators, mostly
    bare = after.rows(definition.node.lineno, definition.last_line)
    for decorators in ("", generated.decorators_of(kept) if generated and kept else ""):
        if code_hash(f"{decorators.rstrip()}\n{bare}" if decorators else bare) == upstream:
            names = [line.strip() for line in decorators.splitlines()]
            return "decorators-changed", f"the decorators were {' '.join(names) or 'none'}", now
    return "body-changed", "not the code that the patch was written against", now
