"""The output directory: no partial file has a final name, and finished shards are recorded."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from omni_kit.convert.casts import CASTS
from omni_kit.convert.plan import ConversionPlan, Shard
from omni_kit.documents import read_json
from omni_kit.errors import BadInput, reason
from omni_kit.upstream.places import INDEX_SUFFIX

STATE = ".omni-kit-convert.json"
_LOCK = ".omni-kit-convert.lock"
_PARTIAL = ".partial"
# where a config says in what dtype its weights are
_DTYPES = frozenset({"dtype", "torch_dtype"})
# what loading or reading a checkpoint needs beside its weights; scripts and pickles are not copied
_COMPANIONS = frozenset({".json", ".txt", ".model", ".jinja", ".md", ".tiktoken"})


class Destination:
    """DST of one conversion of the files in `source`.

    Nothing that this conversion did not write is replaced or removed: what is its own is known by the state file, which
    names the plan, and by the names that the plan gives.

    A shard is finished when its final name exists: it gets that name only when every byte of it is written. Waiting for
    the disk would cost as much again, and protects from nothing but a machine that goes down; so the state file, which
    stands from before the first shard until after the last file, says under which boots they were written, and after
    another one they are written again.
    """

    def __init__(self, path: Path, plan: ConversionPlan, source: Path) -> None:
        self.path = path.resolve()
        self.plan = plan
        self.source = source.resolve()

    @property
    def _index(self) -> Path:
        return self.path / f"{self.plan.stem}.safetensors.index.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the directory, from before it is looked at until all is written.

        Raises:
            BadInput: another conversion is writing there, or it is no place for one.
        """
        self._refuse_place()
        place = self.path.parent / f".{self.path.name}{_LOCK}"
        made = [folder for folder in (place.parent, *place.parent.parents) if not folder.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place, timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise BadInput(f"another process is converting into {self.path}", "wait for it") from error
        try:
            yield
        finally:
            place.unlink(missing_ok=True)
            lock.release()
            for folder in made:  # those in which nothing was written go again
                with suppress(OSError):
                    folder.rmdir()

    def _refuse_place(self) -> None:
        """Raise where the directory is, or is in, the source, or where something else is."""
        if self.path == self.source:
            raise BadInput(f"{self.path} is the source", "pass a new directory")
        if self.path.is_relative_to(self.source):
            raise BadInput(f"{self.path} is inside the source directory", "pass a directory outside it")
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"{self.path} is a file", "pass a new directory")

    def open(self, resume: bool, boots: Sequence[str]) -> bool:
        """Prepares the directory; returns whether there was something to resume.

        Args:
            boots: of the machines that write to it; see `boot_of_machine`.

        Raises:
            BadInput: it holds something else than what this conversion wrote.
        """
        there = {item.name for item in self._contents()} - {self._temporary(STATE).name}
        written = sorted({*boots})
        if STATE in there:
            known = self._read_state(resume)
            self._refuse_others()
            if "" in written or known.get("boots") != written:
                self._discard()
                there = set()
            self._check_shards()
        elif there and not (resume and self._complete()):
            hint = "only an interrupted conversion can be resumed" if resume else "pass a new directory"
            raise BadInput(f"{self.path} is not empty: it contains {min(there)}", hint)
        elif not resume and self._contents():
            raise BadInput(f"{self.path} has {self._contents()[0].name} of an interrupted conversion", "--resume it")
        self._check_room()
        self.path.mkdir(parents=True, exist_ok=True)
        for name in self._planned():
            self._temporary(name).unlink(missing_ok=True)
        if not there:
            state = {"fingerprint": self.plan.fingerprint, "boots": written}
            self.write(self.path / STATE, json.dumps(state).encode())
        return bool(there)

    def _planned(self) -> list[str]:
        """Return the names of all files that this conversion writes."""
        companions = [item.name for item in self.source.iterdir() if self._comes_along(item)]
        return [*(shard.name for shard in self.plan.shards), self._index.name, STATE, *companions]

    def _refuse_others(self) -> None:
        """Raise where a link stands under a name that is to be written, or a companion that is none of the source."""
        for name in self._planned():
            for place in (self.path / name, self._temporary(name)):
                if place.is_symlink():
                    raise BadInput(f"{place} is a link, which no conversion writes", "start again in a new directory")
        for item in self.source.iterdir():
            if self._comes_along(item):
                self._refuse_other(self.path / item.name, self._companion(item))

    def _refuse_other(self, place: Path, content: bytes) -> None:
        """Raise where another file is in the way of one that is to be written."""
        if place.exists() and place.read_bytes() != content:
            raise BadInput(f"{place} differs from the written file", "start again in a new directory")

    def _discard(self) -> None:
        for shard in self.plan.shards:
            (self.path / shard.name).unlink(missing_ok=True)

    def _contents(self) -> list[Path]:
        return sorted(self.path.iterdir()) if self.path.is_dir() else []

    def _read_state(self, resume: bool) -> dict[str, Any]:
        if not resume:
            raise BadInput(f"{self.path} contains an interrupted conversion", "--resume it, or pass a new directory")
        try:
            state = read_json((self.path / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(
                f"cannot read {self.path / STATE}: {reason(error)}", "start again in a new directory"
            ) from error
        if not isinstance(state, dict) or state.get("fingerprint") != self.plan.fingerprint:
            raise BadInput(
                f"{self.path} was started with another source or other options",
                "resume with the same command, or start again in a new directory",
            )
        return state

    def _check_shards(self) -> None:
        there = [shard for shard in self.plan.shards if self._exists(shard)]
        wrong = next((shard for shard in there if not self.finished(shard) or not self._has_header(shard)), None)
        if wrong is not None:
            raise BadInput(f"{self.path / wrong.name} differs from the written file", "start again in a new directory")

    def _complete(self) -> bool:
        """Return whether an earlier run of this very plan got to its end: files, headers and index are as planned."""
        if not all(self.finished(shard) and self._has_header(shard) for shard in self.plan.shards):
            return False
        return self.plan.index is None or (
            self._index.is_file() and self._index.read_text(encoding="utf-8") == self.plan.index
        )

    def _has_header(self, shard: Shard) -> bool:
        with (self.path / shard.name).open("rb") as stream:
            return stream.read(len(shard.header)) == shard.header

    def _check_room(self) -> None:
        needed = sum(shard.size for shard in self.plan.shards if not self.finished(shard))
        parent = next(folder for folder in (self.path.absolute(), *self.path.absolute().parents) if folder.exists())
        free = shutil.disk_usage(parent).free
        if needed > free:
            raise BadInput(f"{needed} bytes are to be written, {parent} has {free} free", "free some space")

    def _exists(self, shard: Shard) -> bool:
        return (self.path / shard.name).exists()

    def finished(self, shard: Shard) -> bool:
        """Return whether a shard is there, whole."""
        file = self.path / shard.name
        return file.is_file() and file.stat().st_size == shard.size

    def begin(self, shard: Shard) -> int:
        """Return a descriptor of a shard's file, under a temporary name, with its header written."""
        descriptor = os.open(self._temporary(shard.name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        reserve(descriptor, shard.size)
        os.pwrite(descriptor, shard.header, 0)
        return descriptor

    def finish(self, shard: Shard, descriptor: int) -> None:
        """Give a shard its final name, once it is written."""
        os.close(descriptor)
        place = self.path / shard.name
        if os.path.lexists(place):
            raise BadInput(f"{place} appeared while the conversion was running", "start again in a new directory")
        self._temporary(shard.name).rename(place)

    def sync(self, shards: Iterable[Shard]) -> None:
        """Wait until the disk has taken shards."""
        for shard in shards:
            with (self.path / shard.name).open("rb") as stream:
                os.fsync(stream.fileno())

    def close(self) -> list[str]:
        """Write what is copied, then the index, and take the state away; return what was not copied.

        Raises:
            BadInput: something else was put there while the shards were written.
        """
        left = []
        for item in sorted(self.source.iterdir()):
            if self._comes_along(item):
                content = self._companion(item)
                self._refuse_other(self.path / item.name, content)
                self.write(self.path / item.name, content)
            elif item.suffix != ".safetensors" and not item.name.endswith(INDEX_SUFFIX):
                left.append(item.name)
        if self.plan.index is not None:
            self._refuse_other(self._index, self.plan.index.encode())
            self.write(self._index, self.plan.index.encode())
        (self.path / STATE).unlink(missing_ok=True)
        return left

    def _comes_along(self, item: Path) -> bool:
        """Return whether a file of the source is copied: no weights, no code, and no link to where no shard lies."""
        if not item.is_file() or item.suffix not in _COMPANIONS or item.name.endswith(INDEX_SUFFIX):
            return False
        return item.resolve().parent in self._roots

    @cached_property
    def _roots(self) -> frozenset[Path]:
        """Real directories of the source: its own, and those of its shards, which may be links into a cache."""
        files = {info.file for info in self.plan.sources.values()}
        return frozenset({self.source, *(file.resolve().parent for file in files)})

    def _companion(self, item: Path) -> bytes:
        """Return a file that is copied; after a cast the config names the new dtype, or loading would cast back."""
        content = item.read_bytes()
        if self.plan.dtype is None or item.name != "config.json":
            return content
        name = next(name for name, code in CASTS.items() if code == self.plan.dtype)
        return json.dumps(_retyped(json.loads(content), name), indent=2, ensure_ascii=False).encode() + b"\n"

    def write(self, path: Path, content: bytes) -> None:
        """Write a small file in one step."""
        temporary = self._temporary(path.name)
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as stream:
            stream.write(content)
        temporary.rename(path)

    def _temporary(self, name: str) -> Path:
        return self.path / f".{name}{_PARTIAL}"


def _retyped(config: Any, name: str) -> Any:
    if not isinstance(config, dict):
        return config
    return {key: name if key in _DTYPES and value else _retyped(value, name) for key, value in config.items()}


def boot_of_machine() -> str:
    """Return the ID of this machine's boot; empty if it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def reserve(descriptor: int, size: int) -> None:
    """Make a file as large as it will be; where the file system can, with its blocks reserved."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)
