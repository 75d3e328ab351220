"""Runs the stages one after the other, and makes the card."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput, MissingRequirement, OmniKitError
from omni_kit.files import files_matching
from omni_kit.isolation.worker import StepError
from omni_kit.parity.candidate import find_owned
from omni_kit.parity.levels import BY_NAME, parse_levels
from omni_kit.parity.processes.workers import Sides, begin, preloaded
from omni_kit.parity.report.branches import NOT_MEASURED, BranchReport, branch_report
from omni_kit.parity.report.report import LevelResult, ParityReport, fields_said
from omni_kit.parity.run import run_parity
from omni_kit.plurals import counted
from omni_kit.pysource.branches import Arcs
from omni_kit.targets.protocol import Target
from omni_kit.targets.sides import NOT_COMPARED, Candidate
from omni_kit.upstream.subject import open_source
from omni_kit.verify.card import PROVE, TODO, Card, Stage, StageStatus
from omni_kit.verify.own_tests import own_tests, run_own_tests
from omni_kit.verify.pins import own_files, pinned, pins
from omni_kit.verify.previous_run import Earlier
from omni_kit.verify.review import Remark, Review, explained, remarks_of, review
from omni_kit.verify.thresholds import LOCATED, MISSED
from omni_kit.verify.unfinished import left_to_do, told_apart

LAYOUT, GENERATED, CHECK, BRANCHES = "layout", "generated", "check", "branches"
TESTS = "tests"
LEFT_OUT = "left out by --quick"
DIFFERENCE = "largest relative difference "


def verify(
    path: Path,
    *,
    weights: str | None = None,
    quick: bool = False,
    fresh: bool = False,
    device: str = "cpu",
    min_branches: int | None = None,
    reviewed: bool = False,
    source: str | None = None,
    sides: Sides | None = None,
    libraries: Sequence[Path] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Card:
    """Return the verdict on one integration.

    Args:
        weights: the checkpoint that it is to be trained or served from; its headers are looked at.
        quick: the static stages and the default levels alone; the others are not tested.
        fresh: also run what passed before on the same files with the same versions.
        reviewed: compare the integration with a fresh scaffold, too.
        source: SOURCE of that scaffold; None for the recorded one.
        min_branches: percent of the branches that the levels must execute; None for no such stage.
        sides: processes to use and to leave running; None starts two and ends them.
        libraries: directories from which both sides import first; see `used_instead`.
        say: is told each stage as it ends.

    Raises:
        BadInput: there is no integration at `path`, or several; or nothing at `weights`.
        MissingRequirement: the device is not there.
    """
    if weights is not None:
        open_source(weights)
    return _Run(path, weights, quick, fresh, device, min_branches, reviewed, source, sides, libraries, say).card()


@dataclass(frozen=True)
class _Run:
    """One run of all stages."""

    path: Path
    weights: str | None
    quick: bool
    fresh: bool
    device: str
    min_branches: int | None
    reviewed: bool
    source: str | None
    sides: Sides | None
    libraries: Sequence[Path]
    say: Callable[[str], None]
    _suppressed: list[str] = field(default_factory=list)
    _findings: list[Remark] = field(default_factory=list)
    _unmarked: list[str] = field(default_factory=list)
    _reports: list[ParityReport] = field(default_factory=list)

    @cached_property
    def _owned(self) -> tuple[Target, Candidate]:
        return find_owned(self.path, None)

    @property
    def candidate(self) -> Candidate:
        return self._owned[1]

    @cached_property
    def earlier(self) -> Earlier:
        return Earlier(self.pins)

    @cached_property
    def pins(self) -> Mapping[str, Any]:
        return pins(self.candidate.path, self.candidate, self.device)

    @property
    def _loaded(self) -> frozenset[Path] | None:
        """Files that the processes of this run loaded; None if one ended too early to report them."""
        if any(report.loaded is None for report in self._reports):
            return None
        return frozenset(own_files(Path(file) for report in self._reports for file in report.loaded or ()))

    @property
    def _all_pins(self) -> Mapping[str, object]:
        """The pins, with what was loaded from elsewhere in this run and in those that it does not repeat."""
        loaded = {*(self._loaded or ()), *(() if self.fresh else self.earlier.files)}
        root = self.candidate.path.resolve()
        files = {**pinned(loaded, root), **self.pins["files"]}
        return {**self.pins, "files": dict(sorted(files.items()))}

    def card(self) -> Card:
        candidate = self.candidate  # what is no integration ends here
        if self.sides is None and (self.fresh or not self.earlier.stages):
            begin(candidate)  # while the static stages run
        found = self._differences() if self.reviewed else None
        stages = list(self._stages())
        self.earlier.keep(stages, self._loaded, self._executed)
        options = {"weights": self.weights or "", "quick": self.quick, "device": self.device}
        if self.min_branches is not None:
            options["min_branches"] = self.min_branches
        branches = self._branches.to_json(candidate.path.resolve()) if self._branches is not None else {}
        return Card(
            str(self.path), options, stages, tuple(self._suppressed), _baseline(), self._all_pins, branches,
            self._notes, self._review(found, stages) if found is not None else None, tuple(self._unmarked),
        )  # fmt: skip

    def _differences(self) -> Review:
        """Compare the integration with a fresh scaffold and report it at once: it takes seconds, the levels minutes."""
        found = review(self.candidate, self._owned[0].name, self.source)
        self.say(f"{len(found.hunks)} differences to a fresh scaffold of {found.source}")
        for hunk in found.hunks:
            self.say(f"{hunk.place}\n{hunk.diff}")
        return found

    def _review(self, found: Review, stages: Sequence[Stage]) -> Review:
        """Return the differences, with what the stages of this run said of them."""
        blamed = [report.first_divergence for report in self._reports if report.first_divergence is not None]
        sources = [one.candidate_source for one in blamed]
        remarks = list(self._findings)
        for stage in stages:
            if stage.status == "failed" and stage.stage != CHECK:
                remarks += remarks_of(stage.stage, stage.reason, sources)
        return explained(found, self.candidate, remarks)

    @property
    def _measures(self) -> bool:
        return not self.quick or self.min_branches is not None

    @cached_property
    def _executed(self) -> dict[str, Arcs]:
        """Lines that the levels of this run, and of those that it does not repeat, have executed."""
        found: dict[str, set[tuple[int, int]]] = {}
        earlier = {} if self.fresh else self.earlier.executed
        for executed in (earlier, *(report.executed or {} for report in self._reports)):
            for file, arcs in executed.items():
                found.setdefault(file, set()).update(arcs)
        return {file: sorted(arcs) for file, arcs in sorted(found.items())}

    @cached_property
    def _branches(self) -> BranchReport | None:
        return branch_report(self._executed, self.candidate.path.resolve()) if self._executed else None

    @property
    def _notes(self) -> Sequence[str]:
        """Reasons why branches were not measured, and calls not compared."""
        kinds = (NOT_MEASURED, NOT_COMPARED)
        return [note for report in self._reports for note in report.notes if note.startswith(kinds)]

    def _stages(self) -> Iterator[Stage]:
        yield self._timed(self._layout)
        yield self._timed(self._generated)
        yield self._timed(self._check)
        yield self._timed(self._todo)
        with ThreadPoolExecutor(1) as beside:
            tests = beside.submit(self._timed, self._tests)
            levels = [*self._parity()]
        yield tests.result()
        yield from levels
        if self.min_branches is not None:
            yield self._timed(self._branched)

    def _timed(self, run: Callable[[], Stage]) -> Stage:
        started = time.monotonic()
        try:
            stage = run()
        except MissingRequirement as error:
            stage = Stage(run.__name__.strip("_"), "not tested", error.message)
        except OmniKitError as error:
            stage = Stage(run.__name__.strip("_"), "failed", error.message)
        self._announce(stage)
        return replace(stage, seconds=round(time.monotonic() - started, 2))

    def _announce(self, stage: Stage) -> None:
        """Print a stage as it ends; the levels of a comparison are printed by the comparison."""
        self.say(f"{stage.stage}: {stage.status}{f': {stage.reason}' if stage.status == 'failed' else ''}")

    def _layout(self) -> Stage:
        if self.weights is None:
            return Stage(LAYOUT, "not applicable", "no weights passed")
        from omni_kit.layout import check_layout

        command = shlex.join(["omni-kit", "check-layout", self.weights])
        verdict = check_layout(self.weights)
        figure = f"{counted(verdict.total, 'key')}, {verdict.verdict}"
        if verdict.untested:
            return Stage(LAYOUT, "not tested", "parts could not be checked", figure, command=command)
        accounting = verdict.accounting
        lost = len([*accounting.unmapped, *accounting.missing, *accounting.misfits]) if accounting is not None else 0
        wrong = "" if verdict.ok else f"layout {verdict.verdict}; keys or parameters that do not fit: {lost}"
        return Stage(LAYOUT, "failed" if wrong else "passed", wrong, figure, command=command)

    def _generated(self) -> Stage:
        from omni_kit.patchgen import check_configs

        configs = files_matching(self.candidate.path, "*_patch_gen_config.py")
        if not configs:
            return Stage(GENERATED, "not applicable", "it has no patch config")
        results = check_configs(configs)
        wrong = next((f"{one.config or one.output}: {one.status}" for one in results if not one.ok), "")
        command = shlex.join(["omni-kit", "patchgen", "check", *map(str, configs)])
        return Stage(GENERATED, "failed" if wrong else "passed", wrong, counted(configs, "file"), command=command)

    def _check(self) -> Stage:
        """Return all rules, with no settings but the defaults; what the files silence is named on the card.

        Findings that only repeat a to-do do not fail it: with them the integration is not finished.
        """
        from omni_checkers import check

        level = "static" if self.quick else "import"
        report = check([self.candidate.path], level=level)
        self._suppressed.extend(silenced(self.candidate.path))
        self._findings.extend(Remark(one.rule, one.message, one.path, one.line) for one in report.findings)
        found = told_apart(report.findings, self.candidate.path)
        self._unmarked.extend(f"{one.path}:{one.line} {one.rule}: {one.message}" for one in found.unmarked)
        figure = f"{counted(report.rules, 'rule')} at level {level}"
        command = shlex.join(["omni-kit", "check", str(self.path), "--strict", "--level", level])
        if wrong := found.unmarked:
            reason = f"{counted(wrong, 'finding')}, {wrong[0].rule} first: {wrong[0].message}"
            return Stage(CHECK, "failed", reason, figure, command=command)
        if found.findings:
            reason = f"{counted(found.findings, 'finding')} at to-dos: {found.findings[0].message}"
            return Stage(CHECK, "not tested", reason, figure, command=command)
        return Stage(CHECK, "passed", "", figure, command=command)

    @cached_property
    def _left(self) -> list[str]:
        """The to-dos of its files: "path:line what"."""
        found = left_to_do(self.candidate.path) if self.candidate.path.is_dir() else []
        return [f"{one.path}:{one.line} {one.what}" for one in found]

    def _todo(self) -> Stage:
        """Return the stage that fails to pass while the files contain a to-do for a person."""
        if self._left:
            return Stage(TODO, "not tested", f"{counted(self._left, 'to-do')} left", untried=self._left)
        return Stage(TODO, "passed", figure="no to-dos left")

    def _tests(self) -> Stage:
        """Return the tests that stand in its own directory."""
        command = shlex.join(["python", "-m", "pytest", str(self.candidate.path / TESTS)])
        if not own_tests(self.candidate.path):
            return Stage(TESTS, "not applicable", "its directory has no tests")
        if self.quick:
            return Stage(TESTS, "not tested", LEFT_OUT, command=command, left_out=True)
        try:
            found = run_own_tests(self.candidate.path, preloaded(self.candidate.reference))
        except StepError as error:
            return Stage(TESTS, "failed", str(error), command=command)
        figure = ", ".join(
            f"{found[what]} {what}" for what in ("passed", "failed", "error", "skipped") if found.get(what)
        )
        wrong = "" if found["code"] == 0 else found["last"] or "they failed"
        return Stage(TESTS, "failed" if wrong else "passed", wrong, figure, command=command)

    def _branched(self) -> Stage:
        """Return whether the levels executed enough of the code."""
        command = shlex.join(["omni-kit", "verify", str(self.path), "--min-branches", str(self.min_branches)])
        found = self._branches
        if found is None or self.min_branches is None:
            notes = (note for note in self._notes if note.startswith(NOT_MEASURED))
            why = next(notes, f"{NOT_MEASURED}: no level ran")
            return Stage(BRANCHES, "not tested", why, command=command)
        wrong = f"{found.figure}, fewer than {self.min_branches}%" if 100 * found.share < self.min_branches else ""
        return Stage(BRANCHES, "failed" if wrong else "passed", wrong, found.figure, command=command)

    def _parity(self) -> Iterator[Stage]:
        """Yield every level, and the proof that they notice faults."""
        wanted = parse_levels(None, self.candidate.offers) if self.quick else list(BY_NAME)
        before = {} if self.fresh else self.earlier.stages
        todo = [name for name in wanted if name not in before]
        proving = not self.quick and PROVE not in before
        started = time.monotonic()
        report = self._compared(todo, proving) if todo or proving else None
        spent = time.monotonic() - started
        self._reports.extend([report] if isinstance(report, ParityReport) else [])
        by_name = {level.level: level for level in report.levels} if isinstance(report, ParityReport) else {}
        for name in (*BY_NAME, PROVE):
            command = shlex.join(["omni-kit", "parity", str(self.path), *_asking(name)])
            if name in before:
                yield replace(before[name], resumed=True)
            elif name not in wanted and (name != PROVE or self.quick):
                yield Stage(name, "not tested", LEFT_OUT, command=command, left_out=True)
            elif isinstance(report, str):
                yield Stage(name, "not tested", report, command=command)
            elif name == PROVE:
                rest = spent - sum(level.seconds for level in by_name.values())
                proven = replace(_proven(report, command), seconds=round(max(0.0, rest), 2))
                self._announce(proven)
                yield proven
            else:
                yield _judged(by_name[name], command)

    def _compared(self, levels: Sequence[str], proving: bool) -> ParityReport | str:
        """The report of the levels, or why there is none."""
        try:
            return run_parity(
                self.path, levels or ["import"], device=self.device, sides=self.sides, prove=proving,
                libraries=self.libraries, branches=self._measures, say=self.say,
            )  # fmt: skip
        except MissingRequirement as error:
            return error.message
        except BadInput as error:
            return f"nothing could be compared: {error.message}"


def _asking(name: str) -> list[str]:
    return ["--prove"] if name == PROVE else ["--levels", name]


def _judged(level: LevelResult, command: str) -> Stage:
    """Return a level as a stage. What neither side answered was not tested, whatever the cause."""
    figure = f"{DIFFERENCE}{level.max_rel:.1e}" if level.max_rel is not None else ""
    untried = [f"{one.name}: {one.why}" for one in level.fields if one.why]
    if level.status == "pass":
        figure = "; ".join(filter(None, [figure, fields_said(level.fields)]))
        return Stage(level.level, "passed", "", figure, level.seconds, command, untried=untried)
    if level.status == "fail":
        return Stage(level.level, "failed", level.reason, figure, level.seconds, command, untried=untried)
    status: StageStatus = "not tested" if level.applicable else "not applicable"
    return Stage(level.level, status, level.reason, "", level.seconds, command)


def _proven(report: ParityReport | None, command: str) -> Stage:
    """Return whether faults that are injected are noticed, and blamed on the right module."""
    proof = report.prove if report is not None else None
    if proof is None or not proof.faults:
        failed = report is not None and any(level.status == "fail" for level in report.levels)
        why = "a level fails without an injected fault" if failed else "no fault could be injected"
        return Stage(PROVE, "not tested", why, command=command)
    figure = f"{proof.faults} faults injected: {proof.detected} detected, {proof.located} localised"
    if proof.idle:
        figure += f"; not detected, without an effect on any config tried: {'; '.join(proof.idle)}"
    wrong = ""
    if len(proof.missed) > MISSED:
        wrong = f"missed {counted(proof.missed, 'injected fault')}: {'; '.join(proof.missed)}"
    elif proof.located < LOCATED * proof.detected:
        wrong = f"only {proof.located} of {proof.detected} faults were localised to the right module"
    return Stage(PROVE, "failed" if wrong else "passed", wrong, figure, command=command, untried=[*proof.idle])


def _baseline() -> str:
    """Return the baseline that the settings of the working directory name: it is not used here."""
    from omni_kit.diagnostics.settings import find_settings

    found = find_settings(Path.cwd())
    return str(found.baseline) if found.baseline is not None else ""


def silenced(directory: Path) -> Iterator[str]:
    """Return the findings that comments in a directory silence, as "path:line RULE"."""
    from omni_checkers.engine.files import read_file
    from omni_kit.diagnostics.suppress import suppressions

    for file in files_matching(directory, "**/*.py"):
        found, _ = suppressions(file, read_file(file).text)
        for one in found:
            yield f"{file.relative_to(directory).as_posix()}:{one.line} {','.join(one.rules)}"
