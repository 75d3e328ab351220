"""The whole bump: drift, merge, generate, check, compare."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from omni_checkers.engine.command import run_check
from omni_kit import __version__
from omni_kit.errors import BadInput, MissingRequirement, OmniKitError
from omni_kit.files import cache_directory, write_atomic
from omni_kit.isolation.programs import run_program
from omni_kit.parity import run_parity
from omni_kit.patchgen.keys import KeyDrift, key_drift
from omni_kit.patchgen.project import find_configs
from omni_kit.patchgen.run import run_configs
from omni_kit.patchgen.upgrade.configs import upgrade_configs
from omni_kit.patchgen.upgrade.outcome import ConfigOutcome
from omni_kit.plurals import counted
from omni_kit.pysource.library import find_library
from omni_kit.record import ANSWERS, record_version
from omni_kit.scaffold import update
from omni_kit.targets.registry import find_integrations
from omni_kit.upgrade.companion_files import follow_names
from omni_kit.upgrade.older import OlderLevels, older_levels
from omni_kit.upgrade.result import Bump, Leftover, ModelUpgrade, StageResult, StageStatus
from omni_kit.upgrade.runtime import broken_uses, own_files
from omni_kit.upgrade.toys import follow_toys

_CHECKING = 600.0  # seconds for the rules of all models


def upgrade(
    path: Path,
    old: Path,
    new: Path,
    library: str = "transformers",
    *,
    write: bool = True,
    resume: bool = False,
    compare: bool = True,
    libraries: Sequence[Path] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Bump:
    """Move the integrations at or below a path from one version of a library to another.

    Args:
        old, new: the directories of both versions' packages.
        write: False merges in memory and runs neither checks nor comparisons.
        resume: take over what an earlier run made of the patches, and the stages of models whose files have not changed
            since.
        compare: False leaves the comparison with upstream out; it counts as not tested.
        libraries: directories where the processes of a comparison find the newer version first.
        say: prints one line of progress.

    Raises:
        BadInput: there is no integration at the path.
    """
    run = _Run(path.resolve(), old, new, library, write, resume, compare, libraries, say)
    return run.bump()


@dataclass
class _Run:
    path: Path
    old: Path
    new: Path
    library: str
    write: bool
    resume: bool
    compare: bool
    libraries: Sequence[Path]
    say: Callable[[str], None]
    _kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)

    def bump(self) -> Bump:
        owned = find_integrations(self.path)
        folders = [one.path for _, one in owned]
        configs = find_configs(self.path)
        if self.write and not self._findings.is_file():
            if self.compare:
                self._remember_levels(folders)
            self._remember_findings(folders)
        self._kept = _read_json(self._file) if self.resume else {}
        merged = self._merged(configs)
        names = [
            f"{self.library} {one.version}"
            for one in (find_library(self.library, self.old), find_library(self.library, self.new))
        ]
        result = Bump(names[0], names[1], root=self.path)
        for folder in folders:
            model = ModelUpgrade(self._shown(folder), older=self._older(folder))
            model.configs = [one for one in merged if one.path.is_relative_to(folder)]
            self.say(f"{model.path} ...")
            self._model(model, folder)
            result.models.append(model)
            self._keep()
        result.runtime = self._runtime([(target.name, one.path) for target, one in owned])
        return result

    def _merged(self, configs: Sequence[Path]) -> list[ConfigOutcome]:
        if not configs:
            return []
        self.say(f"merging the patches of {counted(configs, 'config')}")
        outcomes = upgrade_configs(list(configs), self.old, self.new, self.library, write=self.write).configs
        patches = self._kept.setdefault("patches", {})
        for one in outcomes:
            one.continue_from(patches.get(str(one.path), []))
            patches[str(one.path)] = [patch.as_json() for patch in one.patches]
        self._keep()
        return outcomes

    def _model(self, model: ModelUpgrade, folder: Path) -> None:
        """The stages of one model."""
        drift = self._drift(model)
        model.changed, model.left = follow_names(folder, drift, self.path, write=self.write)
        if model.configs and self.library == "transformers":
            versions = (find_library(self.library, one) for one in (self.old, self.new))
            model.changed += follow_toys(folder, self.path, *versions, write=self.write)
        if not model.configs and (folder / ANSWERS).is_file():
            model.stages.append(_timed("update", partial(self._updated, model, folder)))
        if not self.write:
            return
        models = self._kept.setdefault("models", {})
        earlier = models.get(str(folder), {})
        if earlier.get("digest") == self._digest(folder) and all(
            one["status"] == "passed" for one in earlier["stages"]
        ):
            model.stages += [StageResult(**one) for one in earlier["stages"]]
            self._notes += earlier["notes"]
            return
        ran, before = [], len(self._notes)
        if model.configs:
            ran.append(_timed("patchgen", partial(self._generated, model, folder)))
        ran.append(_timed("check", partial(self._checked, folder)))
        blocked = any(one.status == "failed" for one in ran if one.stage == "patchgen")
        ran.append(_timed("parity", partial(self._compared, model, folder, blocked)))
        model.stages += ran
        stages = [one.as_json() for one in ran]
        models[str(folder)] = {"digest": self._digest(folder), "stages": stages, "notes": self._notes[before:]}

    def _drift(self, model: ModelUpgrade) -> list[KeyDrift]:
        """Return the drift of the parameters of the models that the configs patch."""
        if self.library != "transformers" or not model.configs:
            return []
        modules = sorted({one.source_module for one in model.configs if one.source_module})
        try:
            return key_drift(modules, find_library(self.library, self.old), find_library(self.library, self.new))
        except BadInput:
            return []

    def _updated(self, model: ModelUpgrade, folder: Path) -> StageResult:
        """Render a scaffold again from the newer library, merged with what people changed."""
        done = update(folder, dry_run=not self.write)
        model.changed += [one.path for one in done.changes if one.action == "update"]
        clashing = [one.path for one in done.changes if one.action == "conflict"]
        if clashing:
            why = f"both changed {', '.join(clashing)}: conflict markers are in the files"
            return StageResult("update", "failed", why)
        return StageResult("update", "passed" if done.ok else "failed", "; ".join(done.notes))

    def _generated(self, model: ModelUpgrade, folder: Path) -> StageResult:
        results = run_configs(
            [one.path for one in model.configs], transformers=self.new if self.library == "transformers" else None
        )
        wrong = [one for one in results if not one.ok]
        if wrong:
            first = next((d for one in wrong for d in one.diagnostics if d.severity == "error"), None)
            return StageResult("patchgen", "failed", f"{wrong[0].config}: {first.message}" if first else "")
        if record_version(folder, self.library, find_library(self.library, self.new).version):
            model.changed.append(self._shown(folder / ANSWERS))
        return StageResult("patchgen", "passed")

    def _remember_findings(self, folders: Sequence[Path]) -> None:
        """Write the findings that the integrations have with the older version, from a process that reads it."""
        path = os.pathsep.join(filter(None, [str(self.old.parent), os.environ.get("PYTHONPATH")]))
        program = [
            sys.executable,
            "-m",
            "omni_kit",
            "check",
            *map(str, folders),
            "--write-baseline",
            str(self._findings),
        ]
        run_program(program, timeout=_CHECKING, directory=Path.cwd(), environment={**os.environ, "PYTHONPATH": path})

    def _remember_levels(self, folders: Sequence[Path]) -> None:
        """Write which levels pass with the older version, one integration after another."""
        known = _read_json(self._levels)
        library = find_library(self.library, self.old)
        for folder in (one for one in folders if str(one) not in known):
            self.say(f"{self._shown(folder)} on {self.old_version} ...")
            found = older_levels(folder, (self.path, Path.cwd()), library)
            known[str(folder)] = found.as_json()
            write_atomic(self._levels, json.dumps(known, indent=1))

    def _older(self, folder: Path) -> OlderLevels:
        found = _read_json(self._levels).get(str(folder))
        return OlderLevels(**found) if found else OlderLevels()

    def _checked(self, folder: Path) -> StageResult:
        """Return the rules; findings that the integration had before the upgrade do not count, and are reported."""
        report = run_check([folder], baseline=self._findings)
        errors = [one for one in report.findings if one.severity == "error"]
        why = f"{counted(report.matched, 'finding')} older than this upgrade" if report.matched else ""
        if errors:
            why = f"{counted(errors, 'error')}, first {errors[0].rule}: {errors[0].message}"
        return StageResult("check", "passed" if report.ok else "failed", why)

    def _compared(self, model: ModelUpgrade, folder: Path, blocked: bool) -> StageResult:
        if blocked or not self.compare:
            why = "the modeling file was not generated" if blocked else "parity was left out"
            return StageResult("parity", "not tested", why)
        report = run_parity(folder, None, libraries=self.libraries, say=self.say)
        self._notes += report.notes
        passed = f"{sum(one.status == 'pass' for one in report.levels)} of {len(report.levels)}"
        failed = [one for one in report.levels if one.status == "fail"]
        others = [one for one in report.levels if one.status not in ("pass", "fail")]
        failed.sort(key=lambda one: model.older.levels.get(one.level) == "failed")  # what the upgrade broke comes first
        why = next((f"{one.level}: {one.reason}" for one in (*failed, *others)), "")
        before = model.older.remark([one.level for one in (*failed, *others)], self.old_version)
        why = "; ".join(filter(None, [why, before]))
        status: StageStatus = "failed" if failed else "not tested" if others else "passed"
        return StageResult("parity", status, why, levels=passed)

    def _runtime(self, owned: Sequence[tuple[str, Path]]) -> list[Leftover]:
        """Return the framework's own files: those around the integrations in a checkout, or the installed
        framework's.
        """
        roots = {root for name, folder in owned if (root := _package_root(folder) or _installed(name)) is not None}
        roots -= {self.old, self.new}
        found: list[Leftover] = []
        for root in sorted(roots):
            found += broken_uses(own_files(root), self.library, self.old, self.new, root.parent)
        said = " ".join(self._notes)
        stood_in = [one for one in found if f"({one.path}:{one.line})" in said]
        return [replace(one, what=f"{one.what}; parity took it from {self.old_version}") if one in stood_in else one
                for one in found]  # fmt: skip

    def _digest(self, folder: Path) -> str:
        """Return a digest of all that a model's stages depend on: its files, the newer version, and this program."""
        found = hashlib.sha256(f"{self.new} {__version__}".encode())
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(folder)).encode() + file.read_bytes())
        return found.hexdigest()

    @property
    def old_version(self) -> str:
        """The library and its older version, as "transformers 5.9.0"."""
        return f"{self.library} {find_library(self.library, self.old).version}"

    def _shown(self, folder: Path) -> str:
        return str(folder.relative_to(self.path)) if folder != self.path else folder.name

    @property
    def _file(self) -> Path:
        name = hashlib.sha256(f"{self.path}{self.old}{self.new}".encode()).hexdigest()[:16]
        return cache_directory() / "upgrades" / f"{name}.json"

    @property
    def _findings(self) -> Path:
        """The findings before the first run of this upgrade: a later run starts from what the first one wrote."""
        return self._file.with_suffix(".findings.json")

    @property
    def _levels(self) -> Path:
        """The levels before the first run of this upgrade."""
        return self._file.with_suffix(".levels.json")

    def _keep(self) -> None:
        if self.write:
            write_atomic(self._file, json.dumps(self._kept, indent=1))


def _read_json(file: Path) -> dict[str, Any]:
    """Return the mapping that an earlier run wrote; empty without one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _timed(name: str, run: Callable[[], StageResult]) -> StageResult:
    started = time.perf_counter()
    try:
        result = run()
    except MissingRequirement as error:
        result = StageResult(name, "not tested", error.message)
    except OmniKitError as error:
        result = StageResult(name, "failed", error.message)
    return replace(result, seconds=time.perf_counter() - started)


def _package_root(folder: Path) -> Path | None:
    """Return the top package of a checkout's integration; None for a plugin, which is a package of its own."""
    top = folder
    while (top.parent / "__init__.py").is_file():
        top = top.parent
    return top if top != folder and (top / "models").is_dir() else None


def _installed(framework: str) -> Path | None:
    """Return the directory of an installed framework's package, which a target's name begins with; None without one."""
    try:
        return find_library(framework.partition("-")[0]).root
    except OmniKitError:
        return None
