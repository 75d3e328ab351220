"""omni_checkers: rules that read an integration and report what is wrong, where, and the consequence.

from omni_checkers import check
report = check([Path("plugins/olmoe")])
report.findings        # Finding(rule, severity, path, line, column, message, ...)
report.results         # what every rule made of every model: pass, fail, or not applicable and why
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omni_checkers.engine.registry import all_rules, find_rule, select_rules
    from omni_checkers.engine.report import Report
    from omni_checkers.engine.rule import Edit, Finding, NotApplicable, Rule, Severity
    from omni_checkers.engine.run import check

__all__ = [
    "Edit",
    "Finding",
    "NotApplicable",
    "Report",
    "Rule",
    "Severity",
    "all_rules",
    "check",
    "find_rule",
    "select_rules",
]

_HOMES = {
    "Edit": "rule",
    "Finding": "rule",
    "NotApplicable": "rule",
    "Rule": "rule",
    "Severity": "rule",
    "Report": "report",
    "check": "run",
    "all_rules": "registry",
    "find_rule": "registry",
    "select_rules": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.engine.{_HOMES[name]}"), name)
