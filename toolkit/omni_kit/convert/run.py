"""Runs a plan: shards are written by threads, and by the ranks of a torchrun."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

from omni_kit.convert.destination import Destination, boot_of_machine
from omni_kit.convert.plan import ConversionPlan, Output, Shard
from omni_kit.convert.ranks import Ranks
from omni_kit.convert.transfer import Budget, Sources, transfer
from omni_kit.convert.verify import inverse, open_outputs, same_content
from omni_kit.errors import BadInput, OmniKitError

_T = TypeVar("_T")
JOBS = 4  # threads: while some wait for the disk, others go on
_BUFFERS = 128 << 20  # over all threads, unless one block alone needs more


class Progress(Protocol):
    """Wraps a long iteration to show its progress."""

    def __call__(self, items: Sequence[_T], what: str) -> Iterable[_T]: ...


def silent(items: Sequence[_T], what: str) -> Iterable[_T]:
    """Show nothing."""
    return items


@dataclass(frozen=True)
class Counts:
    """Tensors of a conversion."""

    read: int
    written: int
    passed_through: int
    converted: int


@dataclass(frozen=True)
class Converted:
    """The counts and times of a conversion.

    Attributes:
        bytes: of tensors in the destination.
        peak_rss_bytes: of the process that needed most.
        rank: of this process; the first one reports.
        damaged: source tensors that cannot be rebuilt from what was written.
    """

    tensors: Counts
    bytes: int
    shards: int
    peak_rss_bytes: int
    seconds: float
    verified: bool
    resumed: bool
    rank: int
    damaged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the command's own fields; rank, damaged tensors and notes are reported separately."""
        return {name: value for name, value in asdict(self).items() if name not in {"rank", "damaged", "notes"}}


def run_plan(
    plan: ConversionPlan, source: Path, path: Path, *, resume: bool, verify: bool, jobs: int, progress: Progress
) -> Converted:
    """Execute a conversion plan.

    Args:
        source: the directory whose other files are copied.
        path: the directory to write.
        jobs: threads in this process.

    Raises:
        BadInput: the destination cannot be used, or reading or writing failed.
    """
    started = time.monotonic()
    with closing(Ranks()) as ranks, ExitStack() as held:
        destination = Destination(path, plan, source)
        resumed = _open(destination, resume, ranks, held)
        _all_ranks(ranks, lambda: _write(plan, destination, ranks, jobs, progress))
        checked = _all_ranks(ranks, lambda: _verify(plan, destination, ranks, jobs, progress) if verify else [])
        damaged = tuple(key for keys in checked for key in keys)
        left = _all_ranks(ranks, lambda: destination.close() if ranks.first and not damaged else [])[0]
        peak = max(_all_ranks(ranks, peak_memory))
    notes = (f"left behind: {', '.join(left)}",) if left else ()
    return Converted(
        tensors=_counts(plan),
        bytes=plan.bytes,
        shards=len(plan.shards),
        peak_rss_bytes=peak,
        seconds=round(time.monotonic() - started, 3),
        verified=verify and not damaged,
        resumed=resumed,
        rank=ranks.rank,
        damaged=damaged,
        notes=(*plan.notes, *notes),
    )


def _open(destination: Destination, resume: bool, ranks: Ranks, held: ExitStack) -> bool:
    """Open the destination in the first rank, locked until `held` closes; tell whether a run is resumed."""
    boots = _all_ranks(ranks, boot_of_machine)

    def open_alone() -> bool:
        held.enter_context(destination.locked())
        return destination.open(resume, boots)

    resumed: bool = _all_ranks(ranks, lambda: open_alone() if ranks.first else False)[0]
    return resumed


def _all_ranks(ranks: Ranks, work: Callable[[], Any]) -> list[Any]:
    """Do a step in every rank and wait for all of them; if one fails, all fail, with its error."""
    try:
        mine = work()
    except OmniKitError as error:
        return ranks.agree(None, error)
    except OSError as error:
        reason = error.strerror or str(error)
        return ranks.agree(None, BadInput(f"the conversion stopped: {reason}", "fix that, then --resume"))
    return ranks.agree(mine)


class _Writing:
    """One shard while its tensors are written by several threads."""

    def __init__(self, shard: Shard, destination: Destination) -> None:
        self.shard = shard
        self._destination = destination
        self._lock = Lock()
        self._missing = len(shard.outputs)
        self._descriptor: int | None = None

    def write(self, output: Output, begin: int, sources: Sources, budget: Budget) -> None:
        with self._lock:
            if self._descriptor is None:
                self._descriptor = self._destination.begin(self.shard)
        transfer(output, sources, self._descriptor, begin, budget)
        with self._lock:
            self._missing -= 1
            last = not self._missing
        if last:
            self._destination.finish(self.shard, self._descriptor)


def _write(plan: ConversionPlan, destination: Destination, ranks: Ranks, jobs: int, progress: Progress) -> None:
    mine = [shard for shard in ranks.share(plan.shards) if not destination.finished(shard)]
    budget = Budget(_BUFFERS)
    with closing(Sources(plan.sources)) as sources, ThreadPoolExecutor(jobs) as pool:
        futures = []
        for shard in mine:
            writing = _Writing(shard, destination)
            futures += [pool.submit(writing.write, output, at, sources, budget) for output, at in shard.places()]
        _wait(pool, progress(futures, "converting"))


def _verify(plan: ConversionPlan, destination: Destination, ranks: Ranks, jobs: int, progress: Progress) -> list[str]:
    """Return the source tensors that the output, once it is on disk, does not give back."""
    destination.sync(ranks.share(plan.shards))
    budget = Budget(_BUFFERS)
    rebuilt = list(inverse(plan).items())
    with (
        closing(Sources(plan.sources)) as before,
        closing(open_outputs(plan, destination.path)) as after,
        ThreadPoolExecutor(jobs) as pool,
    ):
        mine = ranks.share(rebuilt)
        futures = [pool.submit(same_content, key, x, output, before, after, budget) for key, (x, output) in mine]
        same = _wait(pool, progress(futures, "verifying"))
    return [key for (key, _), fine in zip(mine, same, strict=True) if not fine]


def _wait(pool: ThreadPoolExecutor, futures: Iterable[Future[_T]]) -> list[_T]:
    try:
        return [future.result() for future in futures]
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise


def _counts(plan: ConversionPlan) -> Counts:
    outputs = list(plan.outputs)
    passed = sum(output.passes_through for output in outputs)
    return Counts(len(plan.sources), len(outputs), passed, len(outputs) - passed)


def peak_memory() -> int:
    """Return the most memory that this process ever held, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # the resource figure would count the parent's memory from before exec
        line = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM:")), None)
        if line is not None:
            return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
