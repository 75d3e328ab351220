"""Several processes of one training step, and what each of them says when it fails.

On a CPU they are forked from a process that has imported everything and computed nothing, which saves each of them the
imports. A GPU does not survive a fork, so there each imports for itself.
"""

import faulthandler
import gc
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import distributed

from omni_kit.errors import OmniKitError
from omni_kit.files import write_atomic
from omni_kit.isolation.failures import lacks_package, one_line
from omni_kit.isolation.groups import run_group
from omni_kit.parity.compare.files import save_tensors
from omni_kit.parity.faults.sharing import fault_between
from omni_kit.parity.processes.batches import load_batches
from omni_kit.parity.processes.builder import made
from omni_kit.parity.processes.executed import execution, read_executed, write_executed
from omni_kit.parity.processes.loaded import add_loaded, read_loaded, write_loaded
from omni_kit.targets.sides import Builder, Distributed, Mesh, TrainingRun, Trains

_LOADED = "rank{}.loaded"  # which files a process has loaded
_EXECUTED = "rank{}.executed.json"  # and what it has executed of those that are measured
PLANTED = "planted"  # left beside the results where a planted fault changed what a process received
_TIME_IS_UP = "Timeout ("  # how faulthandler heads the stacks of a process that hangs
# How the functions are called in which a process waits for all the others.
_COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "barrier")
_LIBRARIES = ("/torch/", "site-packages/transformers/")
_MISMATCH = "Received data size doesn't match expected size"  # gloo, where two processes exchange different things
_opened: list[Builder] = []


@dataclass(frozen=True)
class Job:
    """Parameters of every process of a launch.

    Attributes:
        builder, options: how a process that was not forked makes its builder.
        batches: directory of the batches.
        out: where the first process writes its results, and every one its log.
        timeout: seconds after which a process writes its stack and ends.
        fault: one to plant between the processes.
        run: of the framework's own trainer, in place of the steps on `batches`.
    """

    builder: str
    options: Mapping[str, Any]
    device: str
    checkpoint: Path
    batches: Path
    mesh: Mesh
    out: Path
    timeout: float
    fault: str = ""
    run: TrainingRun | None = None


class RankError(OmniKitError):
    """A launch that gave no result.

    Attributes:
        blames_candidate: its own code raised in a process.
    """

    def __init__(self, message: str, *, blames_candidate: bool = False) -> None:
        super().__init__(message)
        self.blames_candidate = blames_candidate


def launch(job: Job, builder: Builder) -> None:
    """Run a job in as many processes as its mesh has, and wait for them; this process has then loaded what they did.

    Raises:
        RankError: the first process that failed, or all of them where they hang.
    """
    _opened[:] = [builder]
    job.out.mkdir(parents=True, exist_ok=True)
    _meeting_place(job).unlink(missing_ok=True)
    codes = run_group(_rank, (job,), job.mesh.processes, fork=job.device == "cpu")
    if failed := {rank: code for rank, code in enumerate(codes) if code}:
        raise _explained(job, failed)
    for file in job.out.glob(_LOADED.format("*")):
        add_loaded(read_loaded(file))
    for file in job.out.glob(_EXECUTED.format("*")):
        execution.add(read_executed(file))


def _rank(number: int, environment: Mapping[str, str], job: Job) -> None:
    """One process: its output goes to its own log, and it ends itself when it hangs.

    The first whose time is up ends, and the others get SIGTERM: both leave a stack.
    """
    gc.freeze()  # what this fork has inherited stays: trainers collect garbage at every step, and need not walk it
    os.environ.update(environment)
    log = _log(job, number).open("w", encoding="utf-8")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log)
    faulthandler.dump_traceback_later(job.timeout, exit=True, file=log)
    faulthandler.register(signal.SIGTERM, file=log, chain=True)
    try:
        execution.begin_in_fork()
        _train(job, number)
        write_loaded(job.out / _LOADED.format(number))
        write_executed(job.out / _EXECUTED.format(number), execution.end())
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        said = {"error": one_line(error), "environment": lacks_package(error), "time": time.time()}
        write_atomic(_error_file(job, number), json.dumps(said))  # it may get SIGTERM at any moment
        os._exit(1)
    faulthandler.cancel_dump_traceback_later()


def _train(job: Job, number: int) -> None:
    _join(job, number)
    builder = _builder(job)
    if job.run is not None:
        cast(Trains, builder).run_trainer(job.run, job.out)
        return
    with fault_between(job.fault) as outcome:
        results = cast(Distributed, builder).train(job.checkpoint, load_batches(job.batches), job.mesh)
    if outcome.changed:
        (job.out / PLANTED).touch()
    if number == 0:
        for index, (figures, gradients) in enumerate(results):
            save_tensors(figures, job.out / f"{index}.figures.safetensors")
            save_tensors(gradients, job.out / f"{index}.gradients.safetensors")
        (job.out / "notes.json").write_text(json.dumps(builder.notes()), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _join(job: Job, number: int) -> None:
    """Find the other processes: forked ones by a file."""
    if job.device == "cuda":
        distributed.init_process_group("nccl")
        return
    store = distributed.FileStore(str(_meeting_place(job)), job.mesh.processes)
    distributed.init_process_group("gloo", store=store, rank=number, world_size=job.mesh.processes)


def _builder(job: Job) -> Builder:
    if job.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not _opened:
        builder = made(job.builder)
        builder.open(job.options)
        _opened.append(builder)
    return _opened[0]


def _explained(job: Job, codes: Mapping[int, int]) -> RankError:
    """Return the crash that came first. Those that follow, of processes that lost a partner, say nothing."""
    signals = {rank: signal.Signals(-code).name for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM}
    crashed = {rank: how for rank in _ranks(job) if (how := _crash(_log(job, rank)) or signals.get(rank))}
    if apart := [rank for rank in crashed if _MISMATCH in _text(job, rank)]:
        place = _stuck_at(_text(job, apart[0]))
        why = f"the processes are not in the same collective: {_of(job, apart[0])} is in {place}"
        return RankError(f"{why}; stacks in {job.out}", blames_candidate=True)
    if crashed:
        rank = min(crashed)
        return RankError(f"{_of(job, rank)} crashed ({crashed[rank]}); its stack is in {_log(job, rank)}")
    said = {rank: json.loads(file.read_text()) for rank in _ranks(job) if (file := _error_file(job, rank)).is_file()}
    if said:
        rank = min(said, key=lambda rank: said[rank]["time"])
        return RankError(f"{_of(job, rank)}: {said[rank]['error']}", blames_candidate=not said[rank]["environment"])
    texts = {rank: _text(job, rank) for rank in _ranks(job)}
    if any(_TIME_IS_UP in text for text in texts.values()):
        places = {rank: place for rank, text in texts.items() if (place := _stuck_at(text))}
        where = "; ".join(f"rank {rank} in {place}" for rank, place in places.items())
        return RankError(f"{job.mesh.name} hangs: not done after {job.timeout:.0f} s ({where}); stacks in {job.out}")
    first = min(codes)
    message = f"{_of(job, first)} ended with code {codes[first]}; the logs are in {job.out}"
    return RankError(message, blames_candidate=codes[first] > 0)


def _crash(log: Path) -> str:
    """Return Python's message when a signal ends it; a partner's end may be seen first."""
    found = re.search(r"^Fatal Python error: (.+)$", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return found[1] if found else ""


def _stuck_at(log: str) -> str:
    """Return the innermost line that is no library's, of the thread that was running when the process was ended.

    With it, where it is known, the collective that it waits for the others in.
    """
    frames = re.findall(r'File "(.+?)", line (\d+) in (\S+)', log.rpartition("(most recent call first)")[2])
    own = [frame for frame in frames if not any(library in frame[0] for library in _LIBRARIES)]
    torchs = (name for file, _, name in frames if "/torch/distributed/" in file)
    waiting = next((name for name in torchs if _is_collective(name)), "")
    said = f", waiting in {waiting}" if waiting else ""
    return " ".join(f"{name} ({file}:{line}){said}" for file, line, name in own[:1])


def _is_collective(name: str) -> bool:
    return name.removeprefix("_").removeprefix("foreach_").startswith(_COLLECTIVES)


def _of(job: Job, rank: int) -> str:
    return f"rank {rank} of {job.mesh.processes} ({job.mesh.name})"


def _text(job: Job, rank: int) -> str:
    return _log(job, rank).read_text(encoding="utf-8", errors="replace")


def _ranks(job: Job) -> Sequence[int]:
    return range(job.mesh.processes)


def _log(job: Job, rank: int) -> Path:
    return job.out / f"rank{rank}.log"


def _meeting_place(job: Job) -> Path:
    return job.out / "processes"


def _error_file(job: Job, rank: int) -> Path:
    return job.out / f"rank{rank}.error.json"
