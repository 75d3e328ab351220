"""Patchgen: generated modeling files from upstream's, by configs that say what to change; nothing fails silently.

    from omni_kit.patchgen import run_config, check_config, list_configs
    result = run_config("pkg/my_model/my_model_gpu_patch_gen_config.py")   # or a dotted module; writes generated/...
    result.status          # "written", "unchanged" or "error"
    result.patches         # one Applied each: patch, status, upstream_hash, definition
    result.diagnostics     # Diagnostic(code, severity, message, path, line, names)

No library that a config mentions is imported, and none has to be installed but the one with the source module.
The names are imported when they are used: a config that imports `PatchConfig` from here needs nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omni_kit.patchgen.check import check_config, check_configs, list_configs
    from omni_kit.patchgen.drift import drift_report
    from omni_kit.patchgen.result import ConfigResult
    from omni_kit.patchgen.run import draft_configs, finish, run_config, run_configs
    from omni_kit.patchgen.spec import PatchConfig, create_patch_from_external

__all__ = [
    "ConfigResult",
    "PatchConfig",
    "check_config",
    "check_configs",
    "create_patch_from_external",
    "draft_configs",
    "drift_report",
    "finish",
    "list_configs",
    "run_config",
    "run_configs",
]

_HOMES = {
    "ConfigResult": "result",
    "check_config": "check",
    "check_configs": "check",
    "draft_configs": "run",
    "drift_report": "drift",
    "finish": "run",
    "list_configs": "check",
    "run_config": "run",
    "run_configs": "run",
    "PatchConfig": "spec",
    "create_patch_from_external": "spec",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
