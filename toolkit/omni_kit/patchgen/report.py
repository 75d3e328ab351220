"""Results as the command-line contract wants them, and the same for a person."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from difflib import unified_diff
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from omni_kit.patchgen.diagnostics import Diagnostic, Severity
from omni_kit.patchgen.drift import RANKS, DriftReport, TargetDrift
from omni_kit.patchgen.result import ConfigResult

_COLOURS = {"error": "red", "stale": "red", "orphan": "red", "warning": "yellow", "info": "dim"}
FINE = ("written", "unchanged", "ok")


def as_json(result: ConfigResult) -> dict[str, Any]:
    """One entry of `configs`."""
    return {
        "config": result.config,
        "source_module": result.source_module,
        "target_file": result.target_file,
        "output": str(result.output) if result.output else None,
        "status": result.status,
        "patches": _patches(result),
        "diagnostics": [diagnostic_json(d) for d in result.diagnostics],
        "seconds": round(result.seconds, 4),
        "notes": result.notes,
    }


def diagnostic_json(found: Diagnostic) -> dict[str, Any]:
    return {
        "code": found.code,
        "severity": found.severity.value,
        "message": found.message,
        "path": found.path,
        "line": found.line,
        "names": list(found.names),
    }


def all_fine(results: Iterable[ConfigResult]) -> bool:
    return all(result.status in FINE for result in results)


def print_results(console: Console, results: list[ConfigResult], quiet: Severity = Severity.warning) -> None:
    """One line a config, then what there is to say about it; information only for a config that was asked for alone."""
    for result in results:
        colour = _COLOURS.get(result.status, "green")
        where = _short(result.output) if result.output else ""
        counts = ", ".join(f"{n} {status}" for status, n in Counter(a.status for a in result.patches).items())
        name = result.config or "(no config)"
        console.print(
            f"[{colour}]{result.status:<9}[/{colour}] {escape(name)}  {escape(where)}  [dim]{counts}[/dim]",
            soft_wrap=True,
        )
        for found in result.diagnostics:
            if found.severity is Severity.info and quiet is not Severity.info:
                continue
            at = f"{found.path}:{found.line} " if found.line else ""
            tint = _COLOURS[found.severity.value]
            console.print(
                f"  [{tint}]{found.severity}[/{tint}] {found.code}: {escape(at + found.message)}", soft_wrap=True
            )
    fine = sum(result.status in FINE for result in results)
    console.print(f"{len(results)} looked at, {fine} fine, {len(results) - fine} not")


def _patches(result: ConfigResult) -> list[dict[str, Any]]:
    if result.listed:
        return [{"kind": kind, "target": target, "status": "listed"} for kind, target in result.listed]
    return [
        {
            "kind": applied.patch.kind,
            "target": applied.patch.target,
            "status": applied.status,
            "upstream_hash": applied.upstream_hash,
            "decorators": applied.kept_decorators,
            "line": applied.patch.origin.line if applied.patch.origin else 0,
        }
        for applied in result.patches
    ]


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def drift_json(report: DriftReport, full: bool) -> dict[str, Any]:
    """The fields of `patchgen drift`; targets worst first, the unchanged ones counted only.

    The three versions and the marked merge come with `full`; proposed patches always.
    """
    left_out = () if full else ("then", "now", "patch", "merged")
    changed = [t for t in report.targets if t.rank != "unchanged"]
    return {
        "configs": report.configs,
        "counts": report.counts(),
        "targets": [{k: v for k, v in asdict(target).items() if k not in left_out} for target in changed],
        "failed": [{"config": config, "error": why} for config, why in report.failed],
    }


def print_drift(console: Console, report: DriftReport, full: bool) -> None:
    """A table by rank; with `full` also what upstream changed in each target."""
    for rank in RANKS[:-1]:
        group = [t for t in report.targets if t.rank == rank]
        if not group:
            continue
        console.print(f"[bold]{rank}[/bold] ({len(group)})")
        for target in group:
            console.print(f"  {escape(_drift_line(target))}", soft_wrap=True)
            if full and target.now:
                _print_change(console, target)
    for config, why in report.failed:
        console.print(f"[red]error[/red] {escape(config)}: {escape(why)}", soft_wrap=True)
    counts = ", ".join(f"{n} {rank}" for rank, n in report.counts().items())
    proposed = sum(t.proposed is not None for t in report.targets)
    console.print(f"{report.configs} configs, {len(report.targets)} targets: {counts}; {proposed} merges proposed")


def _drift_line(target: TargetDrift) -> str:
    copied = f"; {target.copied} changed lines are copied in the patch" if target.copied else ""
    merged = "; clean merge" if target.proposed is not None else ""
    name = target.config_name.removesuffix("_patch_gen_config")
    return f"{target.target} [{name}] {target.detail}{copied}{merged}"


def _print_change(console: Console, target: TargetDrift) -> None:
    lines = unified_diff(
        target.then.splitlines(), target.now.splitlines(), "upstream then", "upstream now", lineterm="", n=1
    )
    kept = {line.strip() for line in target.patch.splitlines()}
    for line in lines:
        mark = "patch>" if line.startswith("-") and line[1:].strip() in kept and line[1:].strip() else "      "
        console.print(f"    {mark} {escape(line)}", soft_wrap=True)
