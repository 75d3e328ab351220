"""A checkpoint as its headers and index describe it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import files_matching, is_file
from omni_kit.layout.headers import TensorInfo, read_header
from omni_kit.pysource.source import without_collection
from omni_kit.upstream.hub import HubRepo, hub_headers
from omni_kit.upstream.places import INDEX_SUFFIX, read_json

LAYOUT_MARK, CANONICAL = "experts", "canonical"
_SHARD = re.compile(r"(?P<stem>.*)-[0-9]{5}-of-(?P<count>[0-9]{5})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint.

    Attributes:
        tensors: every key with its tensor; None for each where only an index was there.
        files: the shards that were read.
        metadata: what the first shard says of itself.
    """

    path: Path
    tensors: Mapping[str, TensorInfo | None]
    files: tuple[Path, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def canonical(self) -> bool:
        """Return whether it says that its experts are canonical, whatever its model's recipe says."""
        return self.metadata.get(LAYOUT_MARK) == CANONICAL

    @property
    def names_only(self) -> bool:
        """Only names are known: an index without its shards was given."""
        return None in self.tensors.values()

    @property
    def stem(self) -> str:
        """Return the file name without the shard number and the suffix."""
        match = _SHARD.fullmatch(self.files[0].name)
        return match["stem"] if match else self.files[0].stem if len(self.files) == 1 else "model"

    def shape(self, key: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor; None if only names are known."""
        info = self.tensors[key]
        return None if info is None else info.shape

    def dtype(self, key: str) -> str | None:
        """Return the dtype of a tensor, as safetensors names it; None if only names are known."""
        info = self.tensors[key]
        return None if info is None else info.dtype


def read_checkpoint(path: Path | HubRepo) -> Checkpoint:
    """Read the headers of a directory, a single file, an index, or a repository on the hub.

    Raises:
        BadInput: nothing readable, or shards and index that disagree.
    """
    if isinstance(path, HubRepo):
        return _from_hub(path)
    if path.name.endswith(INDEX_SUFFIX):
        return _from_index(path)
    if path.is_dir():
        indexes = files_matching(path, f"*{INDEX_SUFFIX}")
        if indexes:
            return _from_index(indexes[0], shards_needed=True)
        files = files_matching(path, "*.safetensors")
        if not files:
            raise BadInput(f"{path} contains no safetensors files")
        _refuse_gaps(files)
        return Checkpoint(path, *_read_files(files))
    return Checkpoint(path, *_read_files([path]))


def _refuse_gaps(files: Sequence[Path]) -> None:
    """Shards say in their names how many there are; without an index nothing else tells that one is missing."""
    there = {file.name for file in files}
    for name in sorted(there):
        if match := _SHARD.fullmatch(name):
            count = int(match["count"])
            names = (f"{match['stem']}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1))
            absent = next((other for other in names if other not in there), None)
            if absent is not None:
                raise BadInput(f"{name} has a companion {absent}, which is missing", "download the checkpoint again")


def _from_hub(repo: HubRepo) -> Checkpoint:
    """By ranges: of every shard the eight bytes of its header's length, and the header."""
    tensors: dict[str, TensorInfo] = {}
    headers, metadata = hub_headers(repo)
    for name, entries in headers.items():
        for key, (dtype, shape, begin, end) in entries.items():
            if key in tensors:
                raise BadInput(f"{key} is in both {tensors[key].file.name} and {name}")
            tensors[key] = TensorInfo(dtype, shape, Path(name), begin, end)
    return Checkpoint(Path(str(repo)), tensors, tuple(Path(name) for name in headers), metadata)


def _from_index(index: Path, shards_needed: bool = False) -> Checkpoint:
    with without_collection():
        weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise BadInput(f"{index.name} has no weight_map")
    shards = dict.fromkeys(weight_map.values())
    outside = next((shard for shard in shards if Path(shard).name != shard or shard == ".."), None)
    if outside is not None:
        raise BadInput(f"{index.name} names '{outside}', which is not next to it")
    files = [index.parent / shard for shard in shards]
    absent = [file.name for file in files if not is_file(file)]
    if len(absent) == len(files) and not shards_needed:
        return Checkpoint(index, dict.fromkeys(weight_map), ())
    if absent:
        raise BadInput(f"{index.name} names {absent[0]}, which is missing", "download the checkpoint again")
    tensors, _, metadata = _read_files(files, weight_map, index.name)
    lost = weight_map.keys() - tensors.keys()
    if lost:
        raise BadInput(f"{index.name} lists {min(lost)}, which no shard contains", "rebuild the index from the shards")
    return Checkpoint(index.parent, tensors, tuple(files), metadata)


def _read_files(
    files: Sequence[Path], weight_map: Mapping[str, str] | None = None, index: str = ""
) -> tuple[dict[str, TensorInfo], tuple[Path, ...], dict[str, str]]:
    """Return the tensors of all files, the files, and the metadata of the first.

    With a weight map, each tensor must lie where it says.
    """
    tensors: dict[str, TensorInfo] = {}
    metadata: dict[str, str] = {}
    with without_collection():
        for file in files:
            found, said = read_header(file)
            metadata = metadata or said
            name = file.name
            if twice := tensors.keys() & found.keys():
                key = min(twice)
                raise BadInput(f"{key} is in both {tensors[key].file.name} and {name}")
            if weight_map is not None and {*map(weight_map.get, found)} - {name}:
                strange = next(key for key in found if weight_map.get(key) != name)
                raise BadInput(f"{name} holds {strange}, which {index} maps elsewhere or omits")
            tensors.update(found)
    return tensors, tuple(files), metadata
