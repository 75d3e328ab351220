"""Results and drift reports as the command-line contract requires them."""

from dataclasses import asdict
from typing import Any

from omni_kit.patchgen.diagnostics import Diagnostic
from omni_kit.patchgen.drift import DriftReport
from omni_kit.patchgen.result import ConfigResult


def as_json(result: ConfigResult) -> dict[str, Any]:
    """Return one entry of `configs`."""
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
    """Return one entry of `diagnostics`."""
    return {
        "id": found.id,
        "code": found.code,
        "severity": found.severity.value,
        "message": found.message,
        "path": found.path,
        "line": found.line,
        "names": list(found.names),
    }


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


def drift_json(report: DriftReport, full: bool) -> dict[str, Any]:
    """Return the fields of `patchgen drift`; targets worst first, the unchanged ones counted only.

    The three versions and the marked merge come with `full`; proposed patches always.
    """
    left_out = () if full else ("then", "now", "patch", "merged")
    changed = [t for t in report.targets if t.rank != "unchanged"]
    return {
        "read": report.configs,
        "counts": report.counts(),
        "targets": [{k: v for k, v in asdict(target).items() if k not in left_out} for target in changed],
        "keys": [asdict(one) for one in report.keys if not one.same],
        "failed": [{"config": config, "error": why} for config, why in report.failed],
    }
