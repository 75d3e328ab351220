"""A saved checkpoint under the names that a newer version of its model has; not one byte of a tensor changes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from omni_kit.convert.distributed import Distributed
from omni_kit.convert.metadata import METADATA
from omni_kit.convert.names import Names, distinct
from omni_kit.convert.plan import ConversionPlan, Output, pack, tensors_of
from omni_kit.convert.run import JOBS, Progress, run_plan, silent
from omni_kit.errors import BadInput
from omni_kit.files import refuse_taken, whole_directory
from omni_kit.layout.checkpoint import read_checkpoint
from omni_kit.upstream.places import one_of_several, path_of, weights_at
from omni_kit.upstream.transformers.recipes.expression import whole


@dataclass(frozen=True)
class KeyCounts:
    """Keys of a checkpoint: those that have another name now, and those that are copied as they were."""

    read: int
    renamed: int
    copied: int


@dataclass(frozen=True)
class RenamedCheckpoint:
    """The result of renaming a checkpoint.

    Attributes:
        form: "safetensors" or "dcp".
        model_type: whose new names it has.
        missing: names that the newer version has otherwise and that the checkpoint does not have.
        written: whether it was; not in a dry run.
        notes: what was not copied.
    """

    checkpoint: str
    into: str
    form: str
    model_type: str
    keys: KeyCounts
    missing: tuple[str, ...]
    written: bool
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the field of the command's output; the notes are reported separately."""
        return {name: value for name, value in asdict(self).items() if name != "notes"}


class _Saved(Protocol):
    """A checkpoint whose keys can be renamed."""

    form: str
    folder: Path
    keys: list[str]

    def renamed(self, names: Names) -> dict[str, str]: ...
    def write(self, folder: Path, names: Names, progress: Progress) -> list[str]: ...


class _Flat:
    """Safetensors: one file, or shards."""

    form = "safetensors"

    def __init__(self, place: Path) -> None:
        self.folder = place if place.is_dir() else place.parent
        self._checkpoint = read_checkpoint(place)
        self._tensors = tensors_of(self._checkpoint)
        self.keys = list(self._tensors)

    def renamed(self, names: Names) -> dict[str, str]:
        """Return the new name of every key; raise BadInput if two keys get the same name."""
        return distinct({key: names.of(key) for key in self.keys})

    def write(self, folder: Path, names: Names, progress: Progress) -> list[str]:
        """Write it into an empty folder, tensor by tensor; return what is not copied."""
        plan = self._plan(self.renamed(names))
        try:
            done = run_plan(plan, self.folder, folder, resume=False, verify=False, jobs=JOBS, progress=progress)
        except BadInput as why:  # nothing stays that could be resumed
            raise BadInput(why.message, "fix that and run the command again") from why
        return list(done.notes)

    def _plan(self, renamed: Mapping[str, str]) -> ConversionPlan:
        """Return files as large as the largest that was there, and called as they were."""
        outputs = [
            Output(renamed[key], info.dtype, info.dtype, whole(key, info.shape), True)
            for key, info in self._tensors.items()
        ]
        sizes: dict[Path, int] = {}
        for info in self._tensors.values():
            sizes[info.file] = sizes.get(info.file, 0) + info.end - info.begin
        stem = self._checkpoint.stem
        shards = pack(outputs, self._tensors, max(1, *sizes.values()), stem, self._checkpoint.metadata)
        return ConversionPlan(self._tensors, tuple(shards), stem)


class _Nested(Distributed):
    """A DCP directory: model, optimizer and whatever else was saved with them."""

    form = "dcp"

    def write(self, folder: Path, names: Names, progress: Progress) -> list[str]:
        """Write it into an empty folder; return what is not copied."""
        left = self.copy(folder, names, progress)
        return [f"left behind: {', '.join(left)}"] if left else []


def apply_renames(
    checkpoint: str,
    maps: Mapping[str, Mapping[str, str]],
    into: Path,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
) -> RenamedCheckpoint:
    """Write a checkpoint again, with other names.

    Args:
        checkpoint: a directory, file or index of safetensors, or a directory of torch.distributed.checkpoint.
        maps: model_type -> what its parameters were called -> what they are called, `*` for numbers. The one is taken
            that has names of the checkpoint.
        into: a directory that is empty or not there; it gets its name when all is written.
        dry_run: only look.

    Raises:
        BadInput: there is no map, or none fits, or several that do not agree; a new name is there already; the
            checkpoint is damaged; the directory is no place for it; reading or writing failed.
        Refusal: a value of a DCP directory holds names, and only running what is in it would read it.
        MissingRequirement: a DCP directory without torch.
    """
    if not maps:
        raise BadInput("no parameter was renamed in the newer version", "the checkpoint needs no change")
    saved = _open(checkpoint)
    if into.resolve().is_relative_to(saved.folder.resolve()):
        raise BadInput(f"{into} lies in {saved.folder}, which is read", "pass a directory outside it")
    refuse_taken(into)
    model_type, names, renamed = _fitting(checkpoint, saved, maps)
    notes: list[str] = []
    if not dry_run:
        with whole_directory(into) as folder:
            notes = saved.write(folder, names, progress)
    changed = sum(old != new for old, new in renamed.items())
    counts = KeyCounts(len(renamed), changed, len(renamed) - changed)
    missing = tuple(names.missing)
    return RenamedCheckpoint(checkpoint, str(into), saved.form, model_type, counts, missing, not dry_run, tuple(notes))


def _open(given: str) -> _Saved:
    place = path_of(given)
    if place is None:
        raise BadInput(f"there is no {given}", "pass the directory of a checkpoint")
    if (place / METADATA).is_file():
        return _Nested(place)
    weights = weights_at(place, given)
    if weights is None:
        raise BadInput(f"{given} has no weights", "pass a directory of safetensors, or of torch.distributed.checkpoint")
    return _Flat(weights.parent if one_of_several(weights) else weights)


def _fitting(given: str, saved: _Saved, maps: Mapping[str, Mapping[str, str]]) -> tuple[str, Names, dict[str, str]]:
    """Return the model whose names the checkpoint has, its names, and every key with what it will be called."""
    found: list[tuple[str, Names, dict[str, str]]] = []
    for model_type, patterns in maps.items():
        names = Names(patterns)
        renamed = saved.renamed(names)
        if any(old != new for old, new in renamed.items()):
            found.append((model_type, names, renamed))
    if not found:
        known = ", ".join(maps) or "no model"
        raise BadInput(
            f"{given} has none of the names that changed ({known})", "if it belongs to these models, it needs no change"
        )
    if any(renamed != found[0][2] for _, _, renamed in found):
        both = ", ".join(model_type for model_type, _, _ in found)
        raise BadInput(f"{given} contains renamed keys of several models: {both}", "pass one patch config")
    return found[0]
