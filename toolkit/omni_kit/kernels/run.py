"""From an integration to the kernels that it should train with: proven, then timed."""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.worker import StepError
from omni_kit.kernels.bench import UPSTREAM, Room
from omni_kit.kernels.result import USABLE, KernelReport, KernelResult, Point, SlotResult, kind_of, shape_class
from omni_kit.kernels.search import DEFAULT, Found, Search
from omni_kit.kernels.timing import Broken, Measured, interleaved
from omni_kit.kernels.verdicts import slot_result, untimed, verdict
from omni_kit.parity.candidate import find_candidate, require
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability, Bindable, Candidate, KernelChoice

_LONGEST_PROOF = 4096  # tokens: the reference keeps every expert's answer to every token
_FINAL_ROUNDS = 3
_LONG = 250.0  # ms of a step: one round fewer
_LATEST = 1.1  # of the seconds: nothing is measured once more after that
_SMALL = 0.1  # of upstream's step: no other kernel is proven for a slot that takes less


@dataclass(frozen=True)
class BenchOptions:
    """The options of a measurement.

    Attributes:
        config: a config.json of the real model; None scales the class's defaults to `size`.
        size: parameters.
        memory: GB that a choice may take; None takes what upstream or the default takes.
        seconds: after which nothing new is tried, of all that the work takes.
    """

    config: Path | None = None
    size: int = 1_000_000_000
    device: str = "cuda"
    dtype: str = "bfloat16"
    sequence: int = 4096
    micro_batch: int = 1
    memory: float | None = None
    steps: int = 5
    rounds: int = 3
    seconds: float = 100.0
    timeout: float = 180.0


def find_kernels(
    path: Path, asked: BenchOptions, *, target: str | None = None, say: Callable[[str], None] = lambda line: None
) -> KernelReport:
    """Proves every kernel of every slot, times the choices, and recommends one.

    Args:
        path: the directory of an integration.
        target: the framework, where several could know the directory.
        say: receives progress messages.

    Raises:
        BadInput: no integration, none with slots, or no such model.
        MissingRequirement: something is not installed.
    """
    candidate = find_candidate(path, target)
    if Ability.kernels not in candidate.offers:
        raise BadInput(f"{candidate.path} has no configurable kernels", "pass an integration that has some")
    if asked.config is not None and not asked.config.is_file():
        raise BadInput(f"there is no {asked.config}", "pass a config.json")
    require(candidate.requires)
    here = _present(asked.device)
    source = str(asked.config.resolve() if asked.config else candidate.source)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as where:
        room = Room(
            candidate,
            Path(where),
            device=asked.device if here else "cpu",
            dtype=asked.dtype,
            shape=(asked.micro_batch, asked.sequence),
            steps=asked.steps,
            timeout=asked.timeout,
        )
        with room:
            try:
                work = _Work(candidate, room, asked, say)
                return work.measured(source) if here else work.listed(source)
            except StepError as error:
                what, _, install = str(error).partition(": pip install ")
                hint = f"pip install {install}" if install else "see `omni-kit parity`"
                raise MissingRequirement(f"nothing could be measured: {what}", hint) from error


def _present(device: str) -> bool:
    """Return whether the device is there.

    Raises:
        BadInput: no such device is known.
    """
    if device not in ("cpu", "cuda"):
        raise BadInput(f"unknown device '{device}'", "devices: cpu, cuda")
    import torch

    return device == "cpu" or torch.cuda.is_available()


class _Work:
    """One search under way."""

    def __init__(self, candidate: Candidate, room: Room, asked: BenchOptions, say: Callable[[str], None]) -> None:
        self._candidate, self._room, self._asked, self._say = candidate, room, asked, say
        self._notes: list[str] = []
        self._begun = time.monotonic()
        self._step = 0.0  # ms of upstream's own, where it gives a time

    def listed(self, source: str) -> KernelReport:
        """Return the choices that a machine with the device could measure."""
        report = self._frame(source)
        choices = self._room.choices()
        slots = tuple(
            SlotResult(
                choice.slot,
                choice.setting,
                choice.default,
                choice.default,
                False,
                tuple(KernelResult(one.name, "not measured", reason=one.missing) for one in choice.kernels),
            )
            for choice in choices
        )
        count = f"{counted(sum(len(slot.kernels) for slot in slots), 'kernel')} in {counted(slots, 'slot')}"
        notes = [
            f"nothing was measured: torch finds no {self._asked.device} device, on which {count} could be",
            "run it on such a machine, or see what a CPU can run: --device cpu",
        ]
        return replace(report, slots=slots, place=self._room.place, notes=notes)

    def measured(self, source: str) -> KernelReport:
        """Proofs, times, and what follows."""
        report = self._frame(source)
        choices = self._room.choices()
        if self._asked.micro_batch == 1:
            self._notes.append("proven for one sequence per step; for packed sequences, pass --micro-batch 2 or more")
        if not choices:
            raise BadInput(f"{self._candidate.path} leaves no choice", "its slots have no kernels")
        upstream = self._upstream()
        proven = {choice.setting: self._proven(choice, choices) for choice in choices}
        default = {choice.setting: self._start(choice, proven[choice.setting]) for choice in choices}
        try:
            found = self._search(default, choices, proven, upstream).run()
            found, upstream = self._confirmed(default, found, upstream)
        except Broken as error:
            self._notes.append(f"the default could not be timed: {error}")
            return replace(report, slots=tuple(untimed(choices, proven)), notes=self._notes)
        return self._report(report, choices, proven, found, upstream)

    def _upstream(self) -> Measured | None:
        """Return upstream's step, by which what matters and what fits is judged until it is timed next to the
        default.
        """
        try:
            sample = self._room.sample(UPSTREAM)
        except Broken as error:
            self._notes.append(f"upstream's own step could not be timed: {error}")
            return None
        self._step = sample.typical
        return Measured(sample.typical, sample.gb, 0.0)

    def _frame(self, source: str) -> KernelReport:
        """Build the part of the report that is known before anything runs."""
        asked = self._asked
        parameters = self._room.scale(source, 0 if asked.config else asked.size)
        config = json.loads((self._room.config_dir / "config.json").read_text(encoding="utf-8"))
        if (own := _model_type(self._candidate.source)) != (given := kind_of(config)):
            raise BadInput(f"{asked.config} is of model_type '{given}', the integration of '{own}'", "pass its own")
        layers = config.get("num_hidden_layers") or config.get("num_layers")
        model = {**shape_class(config), "parameters": parameters, "layers": layers}
        run = {name: getattr(asked, name) for name in ("sequence", "micro_batch", "dtype", "device", "steps")}
        self._say(f"{model['model_type']}: {parameters / 1e9:.2f}B parameters, {asked.sequence} tokens, {asked.dtype}")
        return KernelReport(str(self._candidate.path), model, run, (), asked=asked.device)

    def _proven(self, choice: KernelChoice, choices: Sequence[KernelChoice]) -> list[KernelResult]:
        """Return the default first, or what stands in its place; the others if they could gain something."""
        results: dict[str, KernelResult] = {}
        small = ""
        first = (choice.default, choice.fallback)
        for kernel in sorted(
            choice.kernels, key=lambda one: first.index(one.name) if one.name in first else len(first)
        ):
            if small and not kernel.plain and not kernel.missing:
                results[kernel.name] = KernelResult(kernel.name, "not measured", reason=small)
                continue
            led = any(one.status in USABLE for one in results.values())
            results[kernel.name], ms = self._judged(choice, kernel, choices, timed=not led)
            if 0 < ms < _SMALL * self._step and results[kernel.name].status in USABLE:
                small = f"all of {kernel.name} takes {ms:.1f} ms of upstream's step of {self._step:.1f} ms"
        return [results[kernel.name] for kernel in choice.kernels]

    def _judged(
        self, choice: KernelChoice, kernel: Bindable, choices: Sequence[KernelChoice], *, timed: bool
    ) -> tuple[KernelResult, float]:
        """Return one kernel, with plain code in all other slots; and what it takes alone in a step, in ms, if
        `timed`.
        """
        if kernel.missing:
            return KernelResult(kernel.name, "missing", reason=kernel.missing), 0.0
        if kernel.plain:
            return KernelResult(kernel.name, "plain"), 0.0
        chosen = {**{other.setting: other.fallback for other in choices}, choice.setting: kernel.name, **kernel.along}
        try:
            said = self._room.prove(choice.setting, chosen, _LONGEST_PROOF, timed=timed)
        except StepError as error:
            return self._told(choice, KernelResult(kernel.name, "failed", reason=str(error))), 0.0
        return self._told(choice, verdict(kernel.name, said)), float(said["ms"])

    def _told(self, choice: KernelChoice, result: KernelResult) -> KernelResult:
        error = "" if result.max_rel is None else f", off by {result.max_rel:.1e}"
        self._say(f"{choice.slot} with {result.name}: {result.status}{error} {result.reason}".rstrip())
        if result.status in ("wrong", "failed", "unknown"):
            self._notes.append(f"{choice.slot} with {result.name} is {result.status}: {result.reason}")
        return result

    def _start(self, choice: KernelChoice, results: Sequence[KernelResult]) -> str:
        """Return the default, or what replaces it where it cannot run here."""
        usable = {result.name for result in results if result.status in USABLE}
        own = next((result for result in results if result.name == choice.default), None)
        if choice.default in usable or (own is not None and own.status == "not called"):
            return choice.default
        why = f"is {own.status}{': ' + own.reason if own.reason else ''}" if own else "is unknown to this version"
        order = (choice.fallback, *(one.name for one in results))
        instead = next((name for name in order if name in usable), choice.fallback)
        if instead not in usable:
            self._notes.append(f"{choice.slot}: no correct kernel runs here; do not train with this choice")
        self._notes.append(f"{choice.slot}: {choice.default}, the default, {why}; {instead} replaces it")
        return instead

    def _search(
        self,
        default: Mapping[str, str],
        choices: Sequence[KernelChoice],
        proven: Mapping[str, Sequence[KernelResult]],
        upstream: Measured | None,
    ) -> Search:
        asked = self._asked
        kernels = {
            setting: [one.name for one in results if one.status in USABLE] for setting, results in proven.items()
        }
        called = {setting for setting, results in proven.items() if all(one.status != "not called" for one in results)}

        return Search(
            self._room,
            default,
            {setting: names if setting in called else [default[setting]] for setting, names in kernels.items()},
            lambda gb: self._limit(gb, upstream),
            {(one.setting, kernel.name): kernel.along for one in choices for kernel in one.kernels if kernel.along},
            rounds=asked.rounds,
            seconds=max(0.0, asked.seconds - (time.monotonic() - self._begun)),
            say=self._say,
        )

    def _confirmed(
        self, default: Mapping[str, str], found: Found, upstream: Measured | None
    ) -> tuple[Found, Measured | None]:
        """Measure the default, the recommended choice, its runner-up and upstream once more, in the same rounds.

        Where the recommended choice then is slower than one that was not measured again, that one is, too.
        """
        confirmed: set[str] = set()
        contenders = found.finalists(self._limit(found.measured[DEFAULT].gb, upstream))
        while True:
            given = {name: found.choices[name] for name in contenders}
            zero = found.measured[DEFAULT].ms
            rounds = _FINAL_ROUNDS if zero < _LONG else _FINAL_ROUNDS - 1
            last = interleaved(
                self._room, default, {"upstream": UPSTREAM, **given}, rounds=rounds, zero=zero, closely=True
            )
            upstream = last.measured.get("upstream", upstream)
            limit = self._limit(last.baseline.gb, upstream)
            found = found.confirmed(last, limit)
            confirmed |= {*contenders, *last.broken}
            left = [name for name in found.claimants(limit) if name not in confirmed and name != DEFAULT]
            if not left:
                return found, upstream
            if self._spent() > _LATEST:
                self._notes.append(f"not measured again for lack of time, though faster in the search: {left[0]}")
                return found, upstream
            contenders = [name for name in (found.recommended, left[0]) if name != DEFAULT]

    def _spent(self) -> float:
        """Return the share of the seconds that is spent."""
        return (time.monotonic() - self._begun) / self._asked.seconds

    def _limit(self, gb: float, upstream: Measured | None) -> float | None:
        """Return the GB that a choice may take, given what the default takes; None for no limit."""
        if self._asked.memory is not None:
            return self._asked.memory
        return None if upstream is None else max(gb, upstream.gb)

    def _report(
        self,
        report: KernelReport,
        choices: Sequence[KernelChoice],
        proven: Mapping[str, Sequence[KernelResult]],
        found: Found,
        upstream: Measured | None,
    ) -> KernelReport:
        asked, base = self._asked, found.measured[DEFAULT]
        elsewhere = {
            one.setting: {kernel.name: kernel.training for kernel in one.kernels}
            for one in choices
            if any(kernel.training for kernel in one.kernels)
        }
        chosen = found.choices[found.recommended]

        def point(name: str) -> Point:
            one, own = found.measured[name], found.choices[name]
            settings = {setting: kernel for setting, kernel in own.items() if setting not in elsewhere}
            training = {
                path: value for setting in elsewhere for path, value in elsewhere[setting][own[setting]].items()
            }
            return Point(name, one.ms, one.gb, settings, training, self._room.recompiled(own))

        best = found.measured[found.recommended]
        limit = self._limit(base.gb, upstream)
        if limit is not None and best.gb > limit:
            self._notes.append(f"nothing that was measured fits into {limit:.2f} GB: the smallest is recommended")
        if asked.device == "cpu":
            self._notes.append("a CPU has no kernels: accelerator kernels were not tested")
        return replace(
            report,
            run={**report.run, "device": self._room.device_name},
            slots=tuple(slot_result(choice, proven[choice.setting], found, chosen) for choice in choices),
            upstream=upstream,
            default=point(DEFAULT),
            recommended=point(found.recommended),
            front=tuple(map(point, found.front)),
            measured=tuple(map(point, found.measured)),
            limit=limit,
            noise=found.noise,
            stopped=found.stopped,
            seconds=round(time.monotonic() - self._begun, 1),
            place=self._room.place,
            notes=self._notes,
        )


def _model_type(source: str) -> str:
    """Return the model_type of an integration's toy: the name itself, or the one in a config."""
    path = Path(source)
    return kind_of(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else source
