"""The plan of a conversion: which bytes of which shards make which output. Pure: headers in, plan out."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_kit.convert.casts import casts
from omni_kit.convert.forms import Form, Former
from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import LAYOUT_MARK, Checkpoint
from omni_kit.layout.headers import DTYPE_BITS, TensorInfo
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.recipes.expression import Expression

_SIZE = re.compile(r"^([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]?I?B?)$")
# Of each source file so many stretches of so many bytes tell it from another of the same size.
_SAMPLES, _SAMPLE = 64, 4096
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True)
class Output:
    """One tensor to write.

    Attributes:
        dtype: what it is written as.
        source_dtype: what its sources have; another one means that it is cast.
        passes_through: written byte for byte as one source tensor was read, whatever its name.
    """

    name: str
    dtype: str
    source_dtype: str
    expression: Expression
    passes_through: bool

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.expression.size * DTYPE_BITS[self.dtype] // 8


@dataclass(frozen=True)
class Shard:
    """One file to write: header first, then the tensors without holes."""

    name: str
    outputs: tuple[Output, ...]
    metadata: Mapping[str, str]

    @cached_property
    def header(self) -> bytes:
        """The first bytes of the file: the length of the JSON, then the JSON, padded to eight bytes."""
        entries: dict[str, object] = {"__metadata__": dict(self.metadata)} if self.metadata else {}
        for output, offset in self._offsets():
            span = [offset, offset + output.size]
            entries[output.name] = {"dtype": output.dtype, "shape": output.expression.shape, "data_offsets": span}
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    @property
    def size(self) -> int:
        """Bytes of the file, header included."""
        return len(self.header) + sum(output.size for output in self.outputs)

    def places(self) -> Iterator[tuple[Output, int]]:
        """Return each tensor with the byte in the file where it begins."""
        return ((output, offset + len(self.header)) for output, offset in self._offsets())

    def _offsets(self) -> Iterator[tuple[Output, int]]:
        position = 0
        for output in self.outputs:
            yield output, position
            position += output.size


@dataclass(frozen=True)
class ConversionPlan:
    """Everything that will be written, except the files that are only copied.

    Attributes:
        dtype: what floating tensors are cast to, as safetensors names it; None for no cast.
    """

    sources: Mapping[str, TensorInfo]
    shards: tuple[Shard, ...]
    stem: str
    dtype: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def outputs(self) -> Iterator[Output]:
        """Every tensor to write, in the order of the files."""
        return (output for shard in self.shards for output in shard.outputs)

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(output.size for output in self.outputs)

    @property
    def index(self) -> str | None:
        """The text of the index; None for a single file."""
        if len(self.shards) == 1:
            return None
        weight_map = {output.name: shard.name for shard in self.shards for output in shard.outputs}
        content = {"metadata": {"total_size": self.bytes}, "weight_map": dict(sorted(weight_map.items()))}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two runs that write the same bytes: the same sources, untouched, and the same outputs.

        Times can be set, and a file of the same size put in another's place: so the file itself counts, and the time
        of its last change, which nobody can set; and samples of its bytes, for file systems that keep neither.
        """
        digest = hashlib.sha256()
        for file in sorted({info.file for info in self.sources.values()}):
            state = file.stat()
            told = f"{file.resolve()} {state.st_size} {state.st_mtime_ns} {state.st_ino} {state.st_ctime_ns}\n"
            digest.update(told.encode(errors="surrogateescape") + _sample(file, state.st_size))
        for shard in self.shards:
            digest.update(f"{shard.name}\n".encode() + shard.header)
            digest.update("".join(str(output.expression.pieces) for output in shard.outputs).encode())
        return digest.hexdigest()


def _sample(file: Path, size: int) -> bytes:
    """Return a digest of some of a file's bytes: its beginning, its end, and places between at equal distances."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for number in range(_SAMPLES):
            stream.seek(max(0, size - _SAMPLE) * number // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE))
    return digest.digest()


def make_plan(
    checkpoint: Checkpoint,
    model: UpstreamModel | None,
    form: Form,
    dtype: str | None = None,
    shard_size: int = 5 * 10**9,
) -> ConversionPlan:
    """Plans the conversion of a checkpoint.

    Args:
        dtype: what floating tensors are cast to, as safetensors names it; None for no cast.
        shard_size: bytes of tensors in one file; a tensor that is larger has a file of its own.

    Raises:
        BadInput: only names are known, or the layout cannot be brought to that form without loss.
    """
    sources = tensors_of(checkpoint)
    metadata = {key: value for key, value in checkpoint.metadata.items() if key != LAYOUT_MARK}
    former = Former(checkpoint, model)
    tensors = former.tensors(form)
    buffers = {p.name for p in model.skeleton.parameters if p.buffer} if model else set()
    outputs = [_output(name, tensor, sources, dtype, name in buffers) for name, tensor in tensors.items()]
    _check_complete(outputs, sources)
    if form is Form.canonical and former.groups:
        metadata[LAYOUT_MARK] = form
    stem = "diffusion_pytorch_model" if checkpoint.files[0].name.startswith("diffusion_") else "model"
    return ConversionPlan(sources, tuple(pack(outputs, sources, shard_size, stem, metadata)), stem, dtype)


def tensors_of(checkpoint: Checkpoint) -> dict[str, TensorInfo]:
    """Return every tensor of a checkpoint.

    Raises:
        BadInput: only names are known, or there are none.
    """
    found = {key: info for key, info in checkpoint.tensors.items() if info is not None}
    if len(found) != len(checkpoint.tensors):
        raise BadInput(f"{checkpoint.path.name} is an index whose shards are missing")
    if not found:
        raise BadInput(f"{checkpoint.path} contains no tensors")
    return found


def _output(name: str, x: Expression, sources: Mapping[str, TensorInfo], dtype: str | None, buffer: bool) -> Output:
    found = {sources[piece.key].dtype for piece in x.pieces}
    if len(found) != 1:
        raise BadInput(f"{name} would combine tensors of different dtypes: {', '.join(sorted(found))}")
    source = found.pop()
    target = dtype if dtype and casts(name, source, buffer) else source
    same = target == source and (key := x.unmoved) is not None and sources[key].shape == x.shape
    output = Output(name, target, source, x, same)
    if DTYPE_BITS[source] % 8 and not output.passes_through:
        raise BadInput(f"{name} has elements of {DTYPE_BITS[source]} bits ({source}): they cannot be moved one by one")
    return output


def _check_complete(outputs: Sequence[Output], sources: Mapping[str, TensorInfo]) -> None:
    """Nothing is lost: every element of every source tensor goes to exactly one place."""
    moved = dict.fromkeys(sources, 0)
    for output in outputs:
        filled = 0
        for piece in output.expression.pieces:
            moved[piece.key] += piece.size
            filled += piece.size
        if filled != output.expression.size:
            raise BadInput(f"{output.name} would have {output.expression.size - filled} unfilled elements")
    for key, info in sources.items():
        size = (info.end - info.begin) * 8 // DTYPE_BITS[info.dtype]
        if moved[key] != size:
            raise BadInput(f"{key} has {size} elements, of which {moved[key]} would be written")


def pack(
    outputs: Sequence[Output],
    sources: Mapping[str, TensorInfo],
    limit: int,
    stem: str,
    metadata: Mapping[str, str],
) -> Iterator[Shard]:
    """Fill files in the order in which the sources lie; within a file large elements first, which aligns all."""
    files: list[list[Output]] = [[]]
    room = limit
    for output in sorted(outputs, key=lambda output: _position(output, sources)):
        if output.size > room and files[-1]:
            files.append([])
            room = limit
        files[-1].append(output)
        room -= output.size
    for number, members in enumerate(files, start=1):
        name = f"{stem}-{number:05}-of-{len(files):05}.safetensors" if len(files) > 1 else f"{stem}.safetensors"
        members.sort(key=lambda output: -DTYPE_BITS[output.dtype])
        yield Shard(name, tuple(members), metadata)


def _position(output: Output, sources: Mapping[str, TensorInfo]) -> tuple[str, int, int]:
    piece = output.expression.pieces[0]
    info = sources[piece.key]
    return info.file.name, info.begin, piece.offset


def parse_size(text: str) -> int:
    """Bytes of "5GB", "500MiB" or "1000000".

    Raises:
        BadInput: it is not a size, or zero.
    """
    match = _SIZE.match(text.strip().upper())
    if match is None or not (size := int(float(match[1]) * _UNITS[match[2].removesuffix("B")])):
        raise BadInput(f"'{text}' is not a valid shard size", "for example 5GB or 500MB")
    return size
