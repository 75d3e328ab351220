"""Checkpoints of torch.distributed.checkpoint (DCP) under other names. What a tensor is called stands in the metadata
alone, so that the files of tensors are copied as they lie, without a process group and without opening them."""

import io
import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from omni_kit.convert.metadata import METADATA, read_metadata
from omni_kit.convert.names import Names, distinct
from omni_kit.convert.run import Progress
from omni_kit.errors import BadInput, Refusal
from omni_kit.files import inside
from omni_kit.upstream.places import INDEX_SUFFIX


class Distributed:
    """One DCP directory.

    Attributes:
        keys: what it calls everything that it holds: "model.PARAMETER", "optimizer.state.PARAMETER.exp_avg".

    Raises:
        BadInput: its metadata is damaged, or names files that are missing, too short or not in it.
        MissingRequirement: torch is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._metadata = read_metadata(folder / METADATA)
        self.keys: list[str] = list(self._metadata.state_dict_metadata)
        for index, info in self._metadata.storage_data.items():
            file = inside(folder, info.relative_path)
            if not file.is_file() or file.stat().st_size < info.offset + info.length:
                raise BadInput(f"{index.fqn} lies in {file}, which is missing or too short", "copy it again")

    def renamed(self, names: Names) -> dict[str, str]:
        """Return the new name of every key.

        Raises:
            BadInput: two keys would be called the same.
        """
        return distinct({key: ".".join(map(str, names.within(self._parts(key)))) for key in self.keys})

    def _parts(self, key: str) -> tuple[str | int, ...]:
        """Return the keys of the nested state that a flat key stands for, the outermost first: a parameter's name is
        one.
        """
        planned = self._metadata.planner_data
        parts = planned.get(key) if isinstance(planned, dict) else None
        if not isinstance(parts, tuple) or not all(isinstance(part, (str, int)) for part in parts):
            return (key,)
        return parts if ".".join(map(str, parts)) == key else (key,)

    def values(self, names: Names) -> dict[str, bytes]:
        """Return the values that are no tensors and hold names that change (the lists of an optimizer's groups), as
        they are to be written.

        Raises:
            Refusal: such a value can only be read by running what is in it, or is compressed.
        """
        kinds = self._metadata.state_dict_metadata
        found = {}
        for index, info in self._metadata.storage_data.items():
            if hasattr(kinds[index.fqn], "size"):
                continue
            if getattr(info, "transform_descriptors", None):
                raise Refusal(f"{index.fqn} is compressed, so its names cannot be read", "save it without extensions")
            with (self.folder / info.relative_path).open("rb") as stream:
                stream.seek(info.offset)
                content = stream.read(info.length)
            if names.stand_in(content):
                found[index.fqn] = _rewritten(index.fqn, content, names)
        return found

    def copy(self, folder: Path, names: Names, progress: Progress) -> list[str]:
        """Write it into an empty folder; return what is not copied: weights in another form.

        Raises:
            BadInput, Refusal: see `renamed` and `values`.
            OSError: reading or writing failed.
        """
        renamed, values = self.renamed(names), self.values(names)
        files = list(self._files())
        for file in progress([file for file in files if not _other_weights(file)], "copying"):
            place = folder / file.relative_to(self.folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        moved = _append(values, folder)
        with (folder / METADATA).open("xb") as stream:
            pickle.dump(self._metadata_with(renamed, moved, names), stream)
        return [str(file.relative_to(self.folder)) for file in files if _other_weights(file)]

    def _files(self) -> Iterator[Path]:
        for place, _, names in os.walk(self.folder):
            yield from (file for name in sorted(names) if (file := Path(place, name)) != self.folder / METADATA)

    def _metadata_with(self, renamed: dict[str, str], moved: dict[str, dict[str, Any]], names: Names) -> Any:
        """Return the metadata under other names, with the places of values that were written again."""
        old = self._metadata
        planned = old.planner_data
        if isinstance(planned, dict):
            planned = {renamed.get(key, key): names.within(parts) for key, parts in planned.items()}
        places = {index: replace(info, **moved.get(index.fqn, {})) for index, info in old.storage_data.items()}
        return replace(
            old,
            state_dict_metadata={renamed[key]: kind for key, kind in old.state_dict_metadata.items()},
            planner_data=planned,
            storage_data={replace(index, fqn=renamed[index.fqn]): info for index, info in places.items()},
        )


def _other_weights(file: Path) -> bool:
    return file.suffix == ".safetensors" or file.name.endswith(INDEX_SUFFIX)


def _rewritten(key: str, content: bytes, names: Names) -> bytes:
    """Return a pickled value with other names in it; it is read as torch reads weights, which runs nothing."""
    import torch

    try:
        value = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling raises whatever the bytes lead to
        why = f"{key} contains parameter names that only unpickling would reveal"
        raise Refusal(why, "save the model and optimizer as state dicts") from error
    stream = io.BytesIO()
    torch.save(names.within(value), stream)
    return stream.getvalue()


def _append(values: dict[str, bytes], folder: Path) -> dict[str, dict[str, Any]]:
    """Write values into a new file of the folder; return where each lies now, in the words of DCP's metadata."""
    if not values:
        return {}
    taken = {file.name for file in folder.iterdir()}
    name = next(name for number in range(len(taken) + 1) if (name := f"__renamed_{number}.distcp") not in taken)
    found: dict[str, dict[str, Any]] = {}
    with (folder / name).open("xb") as stream:
        for key, value in values.items():
            found[key] = {"relative_path": name, "offset": stream.tell(), "length": len(value)}
            stream.write(value)
    return found
