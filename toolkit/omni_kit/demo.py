"""The main job on two real models, and one injected fault that must be caught."""

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from omni_kit.errors import OmniKitError
from omni_kit.layout import LayoutVerdict, check_layout
from omni_kit.layout.taxonomy import Converter, Disk
from omni_kit.parity import make_toy_checkpoint, run_parity
from omni_kit.parity.candidate import require
from omni_kit.parity.levels.roundtrip import Roundtrip
from omni_kit.parity.levels.train import Train
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.report import LevelResult
from omni_kit.patchgen import run_config
from omni_kit.plurals import counted
from omni_kit.scaffold import new_model
from omni_kit.scaffold.render import render, templates_of
from omni_kit.targets.protocol import Request
from omni_kit.targets.registry import get_target
from omni_kit.upstream.subject import open_source

# Qwen3-MoE is the yardstick: VeOmni has its own integration. OLMoE is day zero: VeOmni has none.
MODELS = ("qwen3_moe", "olmoe")
TARGET = "veomni"


@dataclass(frozen=True)
class DemoStep:
    """One step of the main job, with the figure that shows its outcome."""

    step: str
    status: str
    seconds: float
    figure: str


@dataclass(frozen=True)
class InjectedFault:
    """A fault that was put in on purpose, and which commands caught it; none is a failure of the demo."""

    what: str
    caught_by: tuple[str, ...]


@dataclass(frozen=True)
class DemoReport:
    """The results of the demo's steps."""

    models: dict[str, list[DemoStep]]
    planted_fault: InjectedFault
    into: Path

    @property
    def ok(self) -> bool:
        """Return whether every step passed and the injected fault was caught."""
        passed = all(step.status == "pass" for steps in self.models.values() for step in steps)
        return passed and bool(self.planted_fault.caught_by)

    def as_json(self) -> dict[str, Any]:
        """Return the command's own fields of the contract."""
        models = [{"name": name, "steps": [asdict(step) for step in steps]} for name, steps in self.models.items()]
        return {"models": models, "planted_fault": asdict(self.planted_fault), "into": str(self.into)}


def run_demo(into: Path, say: Callable[[str], None]) -> DemoReport:
    """Run every step for both models below `into`.

    Args:
        say: receives progress messages.

    Raises:
        MissingRequirement: torch or VeOmni is not installed.
    """
    needed = [one for one in get_target(TARGET).requirements if one.needed_by == "parity"]
    require({one.module or one.name: one.install for one in needed}, "the demo")
    models: dict[str, list[DemoStep]] = {}
    with Sides(into / "runs") as sides:
        for name in MODELS:
            say(f"{name}:")
            steps = models.setdefault(name, [])
            for step in _steps(name, into, sides):
                say(f"  {step.step:<24}{step.status:<6}{step.seconds:5.1f} s  {step.figure}")
                steps.append(step)
                if step.status != "pass":
                    break
    say("injected fault: a converter for the wrong layout")
    fault = _plant_fault(MODELS[-1], into)
    for line in fault.caught_by:
        say(f"  caught by {line}")
    return DemoReport(models, fault, into)


def _steps(name: str, into: Path, sides: Sides) -> Iterator[DemoStep]:
    checkpoint, plugins = into / "checkpoints" / name, into / "plugins"
    directory = plugins / name
    yield _timed("inspect", lambda: _inspect(name))
    yield _timed("toy checkpoint", lambda: _checkpoint(name, checkpoint))
    yield _timed("check-layout", lambda: _layout(checkpoint))
    yield _timed("new-model", lambda: _scaffold(name, checkpoint, plugins))
    yield _timed("patchgen run", lambda: _patchgen(directory / f"{name}_gpu_patch_gen_config.py"))
    yield _timed("check", lambda: _check(directory))
    yield from _parity(directory, checkpoint, sides)


def _timed(step: str, run: Callable[[], tuple[bool, str]]) -> DemoStep:
    start = time.perf_counter()
    try:
        ok, figure = run()
    except OmniKitError as error:
        if error.exit_code == 3:  # nothing can be proven here: the whole demo says so
            raise
        ok, figure = False, error.message
    return DemoStep(step, "pass" if ok else "fail", round(time.perf_counter() - start, 2), figure)


def _inspect(name: str) -> tuple[bool, str]:
    from omni_kit.inspection import inspect

    report = inspect(name)
    sites = report["targets"][TARGET]["patches"]
    patched = sum(1 for site in sites if site["decision"] == "patch")
    return (
        True,
        f"{report['kind']}, {counted(report['experts']['count'], 'expert')}, {patched} of {len(sites)} sites to patch",
    )


def _checkpoint(name: str, into: Path) -> tuple[bool, str]:
    made = make_toy_checkpoint(name, into)
    shards = len(list(made.glob("*.safetensors")))
    return shards > 1, f"{counted(shards, 'shard')} by transformers' save_pretrained"


def _layout(checkpoint: Path) -> tuple[bool, str]:
    verdict = check_layout(str(checkpoint))
    disks = ", ".join(dict.fromkeys(str(subtree.disk) for subtree in verdict.subtrees))
    mapped = verdict.accounting.mapped if verdict.accounting else 0
    return verdict.ok, f"{disks} -> {verdict.converter}, {mapped} of {verdict.total} keys accounted for"


def _scaffold(name: str, checkpoint: Path, into: Path) -> tuple[bool, str]:
    scaffold = new_model(name, str(checkpoint), target=TARGET, into=into)
    return not scaffold.refused, counted(scaffold.changes, "file")


def _patchgen(config: Path) -> tuple[bool, str]:
    result = run_config(config)
    errors = [item.message for item in result.diagnostics if item.severity == "error"]
    figure = errors[0] if errors else f"{counted(result.patches, 'patch')} applied"
    return result.status in {"written", "unchanged"}, figure


def _check(directory: Path) -> tuple[bool, str]:
    from omni_checkers import check

    report = check([directory])
    errors = [finding for finding in report.findings if finding.severity == "error"]
    figure = errors[0].message if errors else f"{counted(report.rules, 'rule')}, {counted(report.findings, 'finding')}"
    return not errors, figure


def _parity(directory: Path, checkpoint: Path, sides: Sides) -> Iterator[DemoStep]:
    """Yield the default levels; then the framework's own trainer takes four steps, resumes, and exports."""
    for levels in (None, (Train.name,)):
        report = run_parity(directory, levels, checkpoint=checkpoint, sides=sides)
        for level in report.levels:
            shown = level.status == "pass" and level.max_rel is not None
            figure = f"max rel {level.max_rel:.1e}" if shown else level.reason
            yield DemoStep(f"parity {level.level}", level.status, round(level.seconds, 2), figure)


def _plant_fault(name: str, into: Path) -> InjectedFault:
    """Write the integration again with the converter of a sibling's layout, and let the tools find it."""
    checkpoint = into / "checkpoints" / name
    verdict = check_layout(str(checkpoint))
    place = into / "planted_fault"
    directory = _with_wrong_converter(name, checkpoint, verdict, place)
    caught = [f"check-layout: the file is {verdict.subtrees[0].disk}, it needs {verdict.converter}, not transpose"]
    if verdict.converter is Converter.transpose:
        caught = []
    run_config(directory / f"{name}_gpu_patch_gen_config.py")
    report = run_parity(directory, ("keys", "roundtrip"), checkpoint=checkpoint, work_dir=place / "run")
    found = caught_by(report.levels)
    return InjectedFault(f"{name} with a fused-transposed converter", (*caught, *found) if found else ())


def caught_by(levels: Sequence[LevelResult]) -> list[str]:
    """Return a line for each failed level; none unless `roundtrip` failed, where a wrong converter shows."""
    failed = {level.level: level.reason for level in levels if level.status == "fail"}
    if Roundtrip.name not in failed:
        return []
    return [f"parity {name}: {textwrap.shorten(reason, 160, placeholder=' ...')}" for name, reason in failed.items()]


def _with_wrong_converter(name: str, checkpoint: Path, verdict: LayoutVerdict, into: Path) -> Path:
    new_model(name, str(checkpoint), target=TARGET, into=into, force=True)
    wrong = replace(
        verdict,
        subtrees=tuple(
            replace(s, disk=Disk.fused_transposed, names=("gate_up_proj", "down_proj")) for s in verdict.subtrees
        ),
    )
    subject, target = open_source(str(checkpoint)), get_target(TARGET)
    handler = target.kinds[subject.kind]
    plan = handler.plan(subject, Request(name, into, verdict=wrong))
    files = render(plan.files, templates_of(target, handler.templates))
    converter = f"{name}/checkpoint_tensor_converter.py"
    (into / converter).write_text(files[converter], encoding="utf-8")
    return into / name
