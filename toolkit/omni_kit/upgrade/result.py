"""The results of an upgrade for each model, as data, as Markdown and as an HTML page."""

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omni_kit.patchgen.upgrade.outcome import PATCH_STATUSES, ConfigOutcome, PatchOutcome, PatchStatus
from omni_kit.plurals import counted
from omni_kit.upgrade.older import OlderLevels

StageStatus = Literal["passed", "failed", "not tested", "not applicable"]
HEAD = ("model", "carried", "merged", "dropped", "conflicts", "stages", "levels before", "levels", "seconds")


@dataclass(frozen=True)
class StageResult:
    """One step of one model's upgrade; `levels` are those that passed in its comparison, as "5 of 6"."""

    stage: str
    status: StageStatus
    reason: str = ""
    seconds: float = 0.0
    levels: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the stage for machines."""
        found = {"stage": self.stage, "status": self.status, "reason": self.reason, "levels": self.levels}
        return {**found, "seconds": round(self.seconds, 2)}


@dataclass(frozen=True)
class Leftover:
    """A place that upstream breaks and the upgrade did not change."""

    path: str
    line: int
    what: str

    def as_json(self) -> dict[str, Any]:
        """Return the place for machines."""
        return {"path": self.path, "line": self.line, "what": self.what}


@dataclass
class ModelUpgrade:
    """One integration: its configs, what else of it changed or is left, how far it is proven, and was before."""

    path: str
    configs: list[ConfigOutcome] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    left: list[Leftover] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    older: OlderLevels = field(default_factory=OlderLevels)

    def count(self, status: PatchStatus) -> int:
        """Return the number of patches with a status."""
        return sum(config.count(status) for config in self.configs)

    @property
    def proven(self) -> bool:
        """Return whether nothing is left to a person, and every stage that applies passed."""
        told = not self.left and not self.count("conflict") and not any(one.error for one in self.configs)
        return told and bool(self.stages) and all(one.status in ("passed", "not applicable") for one in self.stages)

    @property
    def wrong(self) -> bool:
        """Return whether a stage failed or something is left to a person; not proven without this means not tested."""
        told = bool(self.left) or bool(self.count("conflict")) or any(one.error for one in self.configs)
        return told or any(one.status == "failed" for one in self.stages)

    @property
    def seconds(self) -> float:
        """Return the time of merging the patches and of all stages."""
        return sum(one.seconds for one in self.configs) + sum(one.seconds for one in self.stages)

    def as_json(self) -> dict[str, Any]:
        """Return the model for machines."""
        counts = {"conflicts" if name == "conflict" else name: self.count(name) for name in PATCH_STATUSES}
        return {
            "path": self.path,
            "proven": self.proven,
            "patches": counts,
            "stages": [one.as_json() for one in self.stages],
            "levels_before": self.older.as_json(),
            "conflicts": [
                {"target": one.target, "path": str(one.path or ""), "line": one.line, "reason": one.reason}
                for config in self.configs
                for one in config.patches
                if one.status == "conflict"
            ],
            "changed": self.changed,
            "left": [one.as_json() for one in self.left],
        }

    def row(self) -> list[str]:
        """Return the cells of the model in the table."""
        passed = sum(one.status == "passed" for one in self.stages)
        asked = sum(one.status != "not applicable" for one in self.stages)
        counts = [str(self.count(name)) if self.configs else "-" for name in PATCH_STATUSES]
        levels = next((one.levels for one in self.stages if one.levels), "-")
        stages = f"{passed} of {asked}" if asked else "-"
        return [self.path, *counts, stages, self.older.cell(), levels, f"{self.seconds:.1f}"]


@dataclass
class Bump:
    """All models of one upgrade, and the required changes of the framework's own code; paths are relative to `root`."""

    before: str
    after: str
    models: list[ModelUpgrade] = field(default_factory=list)
    runtime: list[Leftover] = field(default_factory=list)
    root: Path | None = None

    @property
    def proven(self) -> bool:
        """Return whether every model is proven, and the framework's own code fits."""
        return bool(self.models) and not self.runtime and all(model.proven for model in self.models)

    @property
    def exit_code(self) -> int:
        """0 proven, 1 something is wrong or left to a person, 3 something was not tested."""
        if self.proven:
            return 0
        return 1 if self.runtime or any(model.wrong for model in self.models) else 3

    def as_json(self) -> dict[str, Any]:
        """Return the result for machines."""
        return {
            "before": self.before,
            "after": self.after,
            "models": [one.as_json() for one in self.models],
            "runtime": [one.as_json() for one in self.runtime],
        }

    @property
    def verdict(self) -> str:
        """Return how many models are verified and what the upgrade still needs, in one line without a full stop."""
        verified = sum(one.proven for one in self.models)
        line = f"{verified} of {counted(self.models, 'model')} verified"
        if not any(one.stages for one in self.models):
            conflicts = sum(one.count("conflict") for one in self.models)
            line = f"{counted(self.models, 'model')}, {counted(conflicts, 'conflict')}; not verified"
        return f"{line}; the framework's own code needs {counted(self.runtime, 'change')}" if self.runtime else line

    def markdown(self) -> str:
        """Return a report for the pull request."""
        lines = [f"# {self.before} to {self.after}", "", f"{self.verdict}.", ""]
        lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
        lines += [f"| {' | '.join(one.row())} |" for one in self.models]
        for title, rows in self.sections():
            lines += ["", f"## {title}", "", *(f"- {row}" for row in rows)]
        return "\n".join(lines) + "\n"

    def page(self) -> str:
        """Return the report as one page of HTML that needs nothing else."""
        head = "".join(f"<th>{name}</th>" for name in HEAD)
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in one.row())}</tr>\n" for one in self.models)
        parts = [
            f"<h2>{html.escape(title)}</h2>\n<ul>{''.join(f'<li>{html.escape(row)}</li>' for row in found)}</ul>"
            for title, found in self.sections()
        ]
        title = html.escape(f"{self.before} to {self.after}")
        return _PAGE.format(
            title=title, verdict=html.escape(self.verdict), head=head, rows=rows, sections="\n".join(parts)
        )

    def sections(self) -> list[tuple[str, list[str]]]:
        """Return the details that the table omits, by title."""
        patches = [one for model in self.models for config in model.configs for one in config.patches]
        conflicts = [
            f"{self._place(one)} {one.target}: {' '.join([f'{one.reason}.', *one.effects])}"
            for one in patches
            if one.status == "conflict"
        ]
        merged = [f"{one.target}: {one.reason}" for one in patches if one.status == "merged"]
        errors = [f"{one.config}: {one.error}" for model in self.models for one in model.configs if one.error]
        changed = [f"{model.path}: {', '.join(model.changed)}" for model in self.models if model.changed]
        dropped = [f"{one.target}: {one.reason}" for one in patches if one.status == "dropped"]
        failed = [
            f"{model.path}: {one.stage} {one.status}: {one.reason}"
            for model in self.models
            for one in model.stages
            if one.status in ("failed", "not tested")
        ]
        older = [
            f"{model.path}: {one.stage}: {one.reason}"
            for model in self.models
            for one in model.stages
            if one.status == "passed" and one.reason
        ]
        left = [f"{one.path}:{one.line} {one.what}" for model in self.models for one in model.left]
        runtime = [f"{one.path}:{one.line} {one.what}" for one in self.runtime]
        found = [
            ("Conflicts to decide", conflicts),
            ("Configs that could not be merged", errors),
            ("Merged patches", merged),
            ("Patches that upstream made unnecessary", dropped),
            ("Other files that changed", changed),
            ("Stages that did not pass", failed),
            ("Remarks on stages that passed", older),
            ("Names and layouts to follow by hand", left),
            ("The framework's own code", runtime),
        ]
        return [(title, rows) for title, rows in found if rows]

    def _place(self, patch: PatchOutcome) -> str:
        inside = patch.path is not None and self.root is not None and patch.path.is_relative_to(self.root)
        path = patch.path.relative_to(self.root) if inside and patch.path and self.root else patch.path
        return f"{path}:{patch.line}"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="omni-kit upgrade"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #ccc; padding: .3rem .8rem; text-align: left; }}
</style></head><body>
<h1>{title}</h1>
<p>{verdict}.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table>
{sections}
</body></html>
"""
