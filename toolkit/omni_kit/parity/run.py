"""Runs the levels: one process for upstream, one for the integration, and a verdict for each level."""

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.files import cache_directory
from omni_kit.isolation.worker import StepError
from omni_kit.parity.candidate import Layout, find_owned, require
from omni_kit.parity.levels import LAUNCHED_LEVELS, LEVELS, judge, parse_levels
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.branches import NOT_MEASURED
from omni_kit.parity.report.report import LevelResult, ParityReport
from omni_kit.parity.report.saved import Options, save_replay
from omni_kit.pysource.branches import Arcs
from omni_kit.pysource.library import find_library
from omni_kit.targets.provenance import other_version
from omni_kit.targets.sides import Candidate
from omni_kit.targets.versions import refuse_what_does_not_run
from omni_kit.upstream.diffusers.pipelines import INDEX
from omni_kit.upstream.subject import open_source

if TYPE_CHECKING:
    from omni_kit.parity.case import Case

_MARKER = ".omni-kit-parity"


def run_parity(
    path: Path,
    levels: Sequence[str] | None = None,
    *,
    target: str | None = None,
    checkpoint: Path | None = None,
    layout: Layout = "hub",
    work_dir: Path | None = None,
    device: str = "cpu",
    timeout: float = 300.0,
    sides: Sides | None = None,
    prove: bool = False,
    toy: Path | None = None,
    every_module: bool = False,
    libraries: Sequence[Path] = (),
    branches: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> ParityReport:
    """Compare an integration with upstream.

    Args:
        path: the directory of an integration, or of a folder that holds one.
        levels: names of the contract; None for the default ones, of those that both sides can run.
        target: the framework whose integration it is; None for the one that knows it.
        checkpoint: a toy checkpoint in upstream's layout to compare on; None derives a toy from the directory's
            toy_config.json or, without one, from the default config of the registered model_type.
        layout: how the toy's checkpoint is written: "hub" as upstream publishes it, "memory" as upstream's model holds
            it (for models whose published experts are fused already).
        work_dir: where tensors and logs are kept; None keeps none.
        device: "cpu" or "cuda".
        timeout: seconds that one step of a side may take; said to `sides` where they are given.
        sides: processes to use and to leave running; None starts two and ends them.
        prove: plants faults in the candidate, and reports which of them would have been noticed.
        toy: a toy_config.json to make the toy from, instead of the directory's.
        every_module: also reports the error of each module, for a page.
        libraries: directories from which both sides import first; see `used_instead`.
        branches: measures which branches of the integration and of upstream's model the levels execute.
        say: is told each verdict as it falls.

    Raises:
        BadInput: no model directory, an unknown level or device, a checkpoint that is none, a `work_dir` with files
            of somebody else.
        MissingRequirement: torch, the target framework or the device is not there; or the framework does not run on
            the installed version of upstream's library.
    """
    owner, candidate = find_owned(path, target)
    wanted = parse_levels(levels, frozenset(candidate.offers))
    _check_checkpoint(checkpoint)
    candidate = replace(candidate, source=str(toy)) if toy else candidate
    _check_values(candidate.source, checkpoint)
    require(candidate.requires)
    versions = refuse_what_does_not_run(owner, libraries) if candidate.requires else []
    read = [name for name in owner.reads if name in candidate.requires]
    made = [other_version(candidate.path, find_library(name)) for name in read]
    versions = [*filter(None, made), *versions]
    _check_device(device)
    given = str(checkpoint.resolve()) if checkpoint else ""
    asked = Options(
        str(candidate.path), wanted, target or "", layout, device, prove, timeout, given, named=levels is not None
    )
    started = time.monotonic()
    with ExitStack() as stack:
        # Below a directory that running processes can reach: what is made elsewhere is closed to a confined one.
        where = stack.enter_context(_directory(work_dir, sides.log_dir if sides else None))
        both = sides or stack.enter_context(Sides(where, timeout=timeout, path=libraries))
        hidden = stack.enter_context(_hidden(both.closed, where if work_dir else None))
        report, config = _compared(
            candidate, asked, both, (where, hidden), every_module=every_module, branches=branches, say=say
        )
        report = replace(report, loaded=_lasting(report.loaded, (where, both.closed, both.log_dir)))
        if not report.ok and work_dir is None:
            report = _with_logs_kept(report, where)
    seconds = round(time.monotonic() - started, 2)
    report = replace(report, notes=[*versions, *report.notes], seconds=seconds, work_dir=str(where) if work_dir else "")
    return report if report.ok else replace(report, replay=save_replay(report, replace(asked, toy=config), work_dir))


def _compared(
    candidate: Candidate,
    asked: Options,
    sides: Sides,
    places: tuple[Path, Path],
    *,
    every_module: bool,
    branches: bool,
    say: Callable[[str], None],
) -> tuple[ParityReport, dict[str, Any] | None]:
    """Return the report on what was asked for, without what is known only afterwards; and the config of the toy."""
    workers = sides.workers(candidate, places[0])
    # Imported only now: torch loads here while it loads in the two processes.
    from omni_kit.parity.case import Case
    from omni_kit.parity.processes.pair import Pair

    notes: list[str] = []
    pair = Pair(
        candidate,
        *places,
        workers,
        launcher=sides.launcher() if LAUNCHED_LEVELS.intersection(asked.levels) else None,
        checkpoint=Path(asked.checkpoint) if asked.checkpoint else None,
        layout=asked.layout,
        device=asked.device,
        note=lambda line: notes.append(line) if line not in notes else None,
        measured=branches and _can_measure(notes),
    )
    with _one_thread():
        case = Case(pair, notes=notes, thorough=asked.named)
        return _judged(case, asked, every_module=every_module, say=say), pair.toy()


def _can_measure(notes: list[str]) -> bool:
    """Return whether branches can be measured; a note says what is missing."""
    from omni_kit.parity.processes.executed import can_measure

    if not can_measure():
        notes.append(f"{NOT_MEASURED}: coverage is not installed (pip install coverage)")
    return can_measure()


def _lasting(files: frozenset[str] | None, made: Sequence[Path]) -> frozenset[str] | None:
    """Without the files that this run has made."""
    if files is None:
        return None
    places = tuple(f"{place.resolve()}{os.sep}" for place in made)
    return frozenset(file for file in files if not file.startswith(places))


def _with_logs_kept(report: ParityReport, where: Path) -> ParityReport:
    """Return the report of a failed comparison whose directory goes: the logs that it names are put into the user's
    cache.
    """
    kept = cache_directory() / "parity" / f"logs-{Path(report.path).name}"
    try:
        shutil.rmtree(kept, ignore_errors=True)
        for log in where.rglob("*.log"):
            place = kept / log.relative_to(where)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, place)
    except OSError:
        return report
    levels = [replace(level, reason=level.reason.replace(str(where), str(kept))) for level in report.levels]
    return replace(report, levels=levels)


def _judged(case: "Case", asked: Options, *, every_module: bool, say: Callable[[str], None]) -> ParityReport:
    """Run the levels and what else was asked for, while the processes are there."""
    from omni_kit.parity.prove import prove
    from omni_kit.parity.report.module_errors import module_errors
    from omni_kit.parity.report.pictures import drawn

    results: list[LevelResult] = []
    for level in asked.levels:
        results.append(judge(level, case))
        failed = results[-1].status in ("fail", "error")
        say(f"{level}: {results[-1].status}{f': {results[-1].reason}' if failed else ''}")
    executed = _executed(case)
    proof = prove(case, asked.levels, say) if asked.prove else None
    return ParityReport(
        path=asked.path,
        model_type=case.pair.model_type(),
        levels=results,
        loaded=_loaded(case),
        executed=executed,
        not_run=[level for level in LEVELS if level not in asked.levels],
        images=drawn(case),
        modules=module_errors(case) if every_module else (),
        prove=proof,
        first_divergence=case.divergence,
        notes=case.notes,
    )


def _executed(case: "Case") -> dict[str, Arcs] | None:
    """Return the measured lines that were executed; None if nothing is measured, or a process has ended."""
    try:
        return dict(case.pair.executed()) if case.pair.measured else None
    except StepError as error:
        case.note(f"{NOT_MEASURED}: {error}")
        return None


def _loaded(case: "Case") -> frozenset[str] | None:
    """Return the paths of the files that the processes have loaded, links followed; None if one of them has ended."""
    try:
        files = case.pair.loaded_files()
    except StepError:
        return None
    # Thousands of files lie in a few hundred directories: each of these is followed once.
    directory = cache(os.path.realpath)
    return frozenset(
        os.path.realpath(file) if os.path.islink(file) else os.path.join(directory(head), name)
        for file in files
        for head, name in [os.path.split(file)]
    )


def _check_checkpoint(checkpoint: Path | None) -> None:
    if checkpoint is not None and not any((checkpoint / name).is_file() for name in ("config.json", INDEX)):
        raise BadInput(f"{checkpoint} is not a checkpoint directory: it has no config.json, and no {INDEX}")


def _check_values(source: str, checkpoint: Path | None) -> None:
    """Raise where a config is no config: a process that built from it would take all memory, or all time."""
    for place in (Path(source) if source else None, checkpoint and checkpoint.absolute()):
        if place is not None and (place.is_file() or (place.is_absolute() and place.exists())):
            _ = open_source(str(place)).kind  # which reads the config, and looks at every value on the way


def _check_device(device: str) -> None:
    if device not in ("cpu", "cuda"):
        raise BadInput(f"unknown device '{device}'", "devices: cpu, cuda")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise MissingRequirement("no CUDA device is available to torch", "run without --device cuda")


@contextmanager
def _one_thread() -> Iterator[None]:
    """The cores are the two sides' own: comparing thousands of small tensors, threads would wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _hidden(closed: Path, kept: Path | None) -> Iterator[Path]:
    """A directory that nobody finds who was not told: its name is drawn, and that it is in cannot be listed.

    Args:
        closed: where it is made.
        kept: where its content is put in the end; None keeps nothing.
    """
    with tempfile.TemporaryDirectory(dir=closed, ignore_cleanup_errors=True) as outer:
        inner = Path(outer, secrets.token_hex(16))
        inner.mkdir()
        os.chmod(outer, stat.S_IWUSR | stat.S_IXUSR)
        try:
            yield inner
        finally:
            os.chmod(outer, stat.S_IRWXU)
            if kept is not None:
                shutil.copytree(inner, kept / "reference", dirs_exist_ok=True)


@contextmanager
def _directory(work_dir: Path | None, below: Path | None) -> Iterator[Path]:
    """The given directory, emptied of an earlier run, or one that is gone afterwards."""
    if work_dir is None:
        with tempfile.TemporaryDirectory(dir=below, ignore_cleanup_errors=True) as temporary:
            yield Path(temporary).resolve()
        return
    work_dir.mkdir(parents=True, exist_ok=True)
    marker = work_dir / _MARKER
    if any(work_dir.iterdir()) and not marker.is_file():
        raise BadInput(f"{work_dir} contains files that are not from a parity run", "pass a new directory")
    for part in ("checkpoint", "reference", "candidate", "ranks"):
        shutil.rmtree(work_dir / part, ignore_errors=True)
    marker.touch()
    yield work_dir.resolve()
