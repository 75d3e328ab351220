"""Report of a parity run: one result a level, and the JSON of the command-line contract."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from omni_kit.pysource.branches import Arcs
from omni_kit.toys.configs.variants import FieldVaried

_SHOWN = 4
Status = Literal["pass", "fail", "skip", "error"]


@dataclass(frozen=True)
class Worst:
    """One of the tensors that differ most."""

    name: str
    max_abs: float
    max_rel: float
    why: str = ""


@dataclass(frozen=True)
class ScenarioResult:
    """One way of calling the model, or one variant of its config.

    Attributes:
        status: "refused" where upstream itself cannot be called so; it is left out then.
        compared: how many tensors were.
    """

    name: str
    status: Literal["pass", "fail", "refused"]
    reason: str = ""
    compared: int = 0
    max_rel: float | None = None


@dataclass(frozen=True)
class LevelResult:
    """The answer of one level.

    Attributes:
        status: "fail" is the integration's fault; "skip" and "error" mean that nothing was proven either way.
        max_abs: largest absolute difference of all compared tensors; None if the level compares none.
        max_rel: largest difference relative to its tensor's own largest element; where tensors are wrong, of those.
        tolerance: what max_rel may be at most.
        worst: the tensors that differ most, worst first.
        scenarios: what came of each, where the level has several.
        fields: of each field of the config that upstream's code reads, the values that were tried, or why none was.
        applicable: False for a "skip" where there is nothing to compare in this integration.
        place: FILE:LINE of the integration's own code that a failure comes from, relative to its directory; empty
            where that is not known.
    """

    level: str
    status: Status
    reason: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    tolerance: float | None = None
    seconds: float = 0.0
    worst: Sequence[Worst] = ()
    scenarios: Sequence[ScenarioResult] = ()
    fields: Sequence[FieldVaried] = ()
    applicable: bool = True
    place: str = ""


def listed(names: Sequence[str]) -> str:
    """Return names for people: the first few, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def fields_said(fields: Sequence[FieldVaried]) -> str:
    """Return how many config fields were varied, and which were not; empty if there are none."""
    left = [one.name for one in fields if one.why]
    varied = f"{len(fields) - len(left)} of {len(fields)} config fields varied"
    return (varied + (f", not {listed(left)}" if left else "")) if fields else ""


@dataclass(frozen=True)
class Growth:
    """Output error of a module in a run without interference."""

    module: str
    error: float


@dataclass(frozen=True)
class Divergence:
    """The first module that adds error of its own.

    Attributes:
        added: its error when it is fed what upstream's module was fed.
        inherited: the error of its input when the candidate runs freely.
        what: where the error shows: in what it returns, what it passes on, or a gradient.
        candidate_source, reference_source: file:line of the two forwards.
        growth: the error of every module's output, in order.
    """

    module: str
    added: float
    inherited: float
    what: str = ""
    candidate_source: str = ""
    reference_source: str = ""
    growth: Sequence[Growth] = ()


@dataclass(frozen=True)
class ModuleError:
    """Error of one module.

    Attributes:
        kind: its class.
        paired: upstream has it, too; of others nothing is known.
        added: the largest error that it adds when fed what upstream's module was fed.
        inherited, grown: the errors of what comes in and goes out when the candidate runs freely.
        answered: its place in the order in which modules answer for the first time.
    """

    module: str
    kind: str
    paired: bool
    added: float
    inherited: float
    grown: float
    answered: int = 0


@dataclass(frozen=True)
class InjectionResult:
    """Result of one injected fault.

    Attributes:
        name: its kind, where it was injected, and what it changed there.
        detected_by: the levels that failed; "error" where the model did not even run.
        blamed: the module that the report would have named.
        located: that is the module with the fault, or the nearest one around it that upstream has, too.
        idle: the fault changed no value, or no bit of an output or gradient, with any config that was tried.
        equal: it is idle because the outputs do not depend on what it changes, although they depend on the line.
    """

    name: str
    kind: str
    module: str
    detected_by: Sequence[str] = ()
    blamed: str = ""
    located: bool = False
    idle: bool = False
    equal: bool = False

    def __str__(self) -> str:
        if self.idle:
            return "equal to the right code" if self.equal else "changes nothing here"
        if not self.detected_by:
            return "MISSED"
        where = "located" if self.located else f"blamed on {self.blamed or 'nobody'}"
        return f"detected by {', '.join(self.detected_by)}, {where}"


@dataclass(frozen=True)
class Proof:
    """Detection of injected faults.

    Attributes:
        missed: those that no level noticed.
        mislocated: those that were noticed, and blamed on another module.
        idle: not detected, because no config that was tried gives them an effect; not counted among the faults.
        equal: faults without an effect on lines that have one: no comparison of results could detect them.
    """

    faults: int
    detected: int
    located: int
    missed: Sequence[str] = ()
    mislocated: Sequence[str] = ()
    idle: Sequence[str] = ()
    equal: Sequence[str] = ()
    planted: Sequence[InjectionResult] = ()


def proof_of(results: Sequence[InjectionResult]) -> Proof:
    """Return the results of all faults: those that changed something, and those that did not."""
    planted = [fault for fault in results if not fault.idle]
    return Proof(
        faults=len(planted),
        detected=sum(bool(fault.detected_by) for fault in planted),
        located=sum(fault.located for fault in planted),
        missed=[fault.name for fault in planted if not fault.detected_by],
        mislocated=[f"{f.name}: blamed on {f.blamed or 'nobody'}" for f in planted if f.detected_by and not f.located],
        idle=[fault.name for fault in results if fault.idle and not fault.equal],
        equal=[fault.name for fault in results if fault.equal],
        planted=planted,
    )


@dataclass(frozen=True)
class Image:
    """Images that both sides drew for one sample of a diffusion model: PNG files of the same size and value range.

    Attributes:
        name: the output that is shown.
    """

    name: str
    reference_png: bytes
    candidate_png: bytes


@dataclass(frozen=True)
class ParityReport:
    """The outcome of `run_parity`.

    Attributes:
        model_type: what was compared.
        not_run: the levels that were not asked for.
        loaded: the paths of files that processes have loaded, without those of this run; None if one ended too early
            to say.
        executed: file -> pairs of lines that followed each other, of the integration's and of upstream's files; None
            where that was not measured.
        work_dir: where the tensors and logs lie; empty when they were not kept.
        modules: the error of every module, where that was asked for, in the order in which they are called.
        replay: the file of a run that is not at parity, from which it can be run again.
        images: what a diffusion model drew, where it ran; kept as files in the work_dir, too.
    """

    path: str
    model_type: str
    levels: Sequence[LevelResult]
    first_divergence: Divergence | None = None
    prove: Proof | None = None
    modules: Sequence[ModuleError] = ()
    replay: str = ""
    seconds: float = 0.0
    work_dir: str = ""
    notes: Sequence[str] = field(default_factory=list)
    images: Sequence[Image] = ()
    not_run: Sequence[str] = ()
    loaded: frozenset[str] | None = None
    executed: Mapping[str, Arcs] | None = None

    @property
    def ok(self) -> bool:
        """Every level that was asked for ran and passed, and no injected fault went unnoticed."""
        passed = bool(self.levels) and all(level.status == "pass" for level in self.levels)
        return passed and not (self.prove and self.prove.missed)

    @property
    def exit_code(self) -> int:
        """0 proven, 1 something is wrong, 3 something could not be run."""
        if self.ok:
            return 0
        missed = self.prove is not None and bool(self.prove.missed)
        return 1 if missed or any(level.status == "fail" for level in self.levels) else 3

    @property
    def again(self) -> str:
        """The command that runs a failed comparison again; empty if there is none."""
        return f"omni-kit parity --replay {shlex.quote(self.replay)}" if self.replay else ""

    def level(self, name: str) -> LevelResult:
        """Return the result of one level.

        Raises:
            KeyError: that level was not asked for.
        """
        for level in self.levels:
            if level.level == name:
                return level
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Return the command's own fields of the contract."""
        return {
            "path": self.path,
            "model_type": self.model_type,
            "not_run": list(self.not_run),
            "levels": [asdict(level) for level in self.levels],
            "first_divergence": asdict(self.first_divergence) if self.first_divergence else None,
            "prove": asdict(self.prove) if self.prove else None,
            "modules": [asdict(module) for module in self.modules],
            "replay": self.replay,
            "seconds": self.seconds,
            "work_dir": self.work_dir,
        }
