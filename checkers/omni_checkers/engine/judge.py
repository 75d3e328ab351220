"""Judges one model by rules."""

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File
from omni_checkers.engine.own_rules import (
    ENGINE_RULES,
    InvalidPython,
    RuleFailed,
    SuppressionNeedsReason,
    UnreadableDocument,
    invalid,
    too_deep,
    unjudgeable,
    unreadable,
)
from omni_checkers.engine.rule import Finding, NotApplicable, Rule
from omni_kit.diagnostics.suppress import Suppression, suppressions
from omni_kit.errors import BadInput
from omni_kit.targets.protocol import Target


class RulePackage(Protocol):
    """The functions that a target's rule package provides next to its rules."""

    EXAMPLE: str
    """The model whose directory the examples of its rules are laid over."""

    def read_model(self, path: Path) -> tuple[Facts, list[File]]:
        """Return the facts about the model directory at `path`, and its files."""

    def inputs(self, path: Path) -> list[Path]:
        """Return every file that the verdict on the model at `path` depends on, other than the libraries."""

    def experiments(self, paths: Sequence[Path], level: str) -> Mapping[Path, Mapping[str, Any]]:
        """Run the model for a level and those below it, and return the facts: path -> fact -> value.

        Raises:
            MissingRequirement: the environment lacks what the runs need.
        """

    def surroundings(self, path: Path) -> list[Path]:
        """Directories of packages that it imports from and that change while people work on it."""


_OFFERED = tuple(name for name in vars(RulePackage) if not name.startswith("_"))


STATUSES = ("pass", "fail", "not-applicable")


@dataclass
class RuleVerdict:
    """The result of one rule on one model.

    Attributes:
        status: one of STATUSES.
        reason: why it is not applicable.
        suppressed: how many findings a comment silenced.
    """

    status: str
    reason: str = ""
    findings: list[Finding] = field(default_factory=list)
    suppressed: int = 0


def package_of(target: Target) -> RulePackage:
    """Return the rule package of a target.

    Raises:
        BadInput: it lacks a function that the engine calls.
    """
    package = importlib.import_module(target.rules)
    if missing := [name for name in _OFFERED if not hasattr(package, name)]:
        raise BadInput(f"{target.rules} has no '{missing[0]}', which every rule package has", "see RulePackage")
    return cast(RulePackage, package)


def judge(
    path: Path, target: Target, rules: Sequence[type[Rule]], known: Mapping[str, Any] | None = None
) -> dict[str, RuleVerdict]:
    """Rule id -> verdict, for the engine's own rules and those of the target; `known` are facts from runs."""
    facts, files = package_of(target).read_model(path)
    facts.tell(known or {})
    active: list[Suppression] = []
    comments: list[Finding] = []
    for file in files:
        good, wrong = suppressions(file.path, file.text)
        active += good
        comments += wrong
    crashes: list[Finding] = []
    broken = [finding for file in files for finding in invalid(file)]
    doubtful = unjudgeable(files)
    verdicts: dict[str, RuleVerdict] = {}
    for rule in rules:
        if rule not in ENGINE_RULES and rule.target == target.name:
            try:
                verdicts[rule.id] = settled(_outside(doubtful, applied(rule, facts, path, crashes)), active)
            except RecursionError as error:
                deep = list(too_deep(files))
                broken += deep
                crashes += [] if deep else [_crash(rule, error, path)]
                verdicts[rule.id] = RuleVerdict("not-applicable", f"{rule.id} came to no end")
    own = {SuppressionNeedsReason: comments, InvalidPython: broken, RuleFailed: crashes}
    if UnreadableDocument in rules:
        own[UnreadableDocument] = list(unreadable(path, package_of(target).inputs(path)))
    for rule, found in own.items():
        if rule in rules:
            verdicts[rule.id] = settled(_verdict(rule, found), active)
    return {rule_id: settled(_traced(verdict, facts), active) for rule_id, verdict in verdicts.items()}


def _outside(doubtful: Collection[Path], verdict: RuleVerdict) -> RuleVerdict:
    """Return the verdict without findings in files that cannot be judged while another cannot be parsed."""
    if not any(finding.path in doubtful for finding in verdict.findings):
        return verdict
    left = [finding for finding in verdict.findings if finding.path not in doubtful]
    if left:
        return replace(verdict, findings=left)
    return RuleVerdict("not-applicable", "a file that it depends on cannot be parsed")


def _traced(verdict: RuleVerdict, facts: Facts) -> RuleVerdict:
    """Return the verdict with findings at the code that people write, where a target knows what generated code came
    from.

    It is the fact `written_at`: (file, line) of any code -> (file, line) of what it was made from, or None.
    """
    if not verdict.findings:
        return verdict
    try:
        written_at = facts.get("written_at")
        traced = [_at_its_origin(finding, written_at) for finding in verdict.findings]
    except Exception:  # then the findings stay where they are
        return verdict
    return replace(verdict, findings=list(_once(traced)))


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Leave out what repeats, of the code that a person wrote, what its generated copies show as well."""
    found = list(dict.fromkeys(findings))
    told = {_place(finding) for finding in found if finding.generated is None}
    for finding in found:
        if finding.generated is not None:
            if _place(finding) in told:
                continue
            told.add(_place(finding))
        yield finding


def _place(finding: Finding) -> tuple[str, Path, int, str]:
    return finding.rule, finding.path, finding.line, finding.message


def _at_its_origin(finding: Finding, written_at: Callable[[Path, int], tuple[Path, int] | None]) -> Finding:
    found = written_at(finding.path, finding.line)
    if found is None:
        return finding
    return replace(finding, path=found[0], line=found[1], column=1, generated=(finding.path, finding.line))


def applied(rule: type[Rule], facts: Facts, path: Path, crashes: list[Finding]) -> RuleVerdict:
    """Return one rule on one model; a rule that crashes is added to `crashes`, and the others continue."""
    try:
        kinds = facts.get("kinds") if rule.kinds else frozenset()
        if kinds and not kinds & rule.kinds:
            return RuleVerdict("not-applicable", f"the model is of kind {', '.join(sorted(kinds))}")
        return _verdict(rule, facts.call(rule().check))
    except NotApplicable as why:
        return RuleVerdict("not-applicable", str(why))
    except RecursionError:
        raise
    except Exception as error:  # a rule, perhaps a third party's, must not end the run
        crash = _crash(rule, error, path)
        crashes.append(crash)
        return RuleVerdict("not-applicable", crash.message)


def _crash(rule: type[Rule], error: Exception, path: Path) -> Finding:
    what = f"{rule.id} failed: {type(error).__name__}: {error}"
    return Finding(" ".join(what.split()), next(iter(sorted(path.rglob("*.py"))), path))


def _verdict(rule: type[Rule], found: Iterable[Finding]) -> RuleVerdict:
    findings = [replace(f, rule=rule.id_of(f.detector), severity=f.severity or rule.severity) for f in found]
    return RuleVerdict("fail" if findings else "pass", findings=list(dict.fromkeys(findings)))


def settled(verdict: RuleVerdict, active: Sequence[Suppression]) -> RuleVerdict:
    """Return the verdict without the findings that a comment silences."""
    if verdict.findings:
        left = [f for f in verdict.findings if not any(suppression.covers(f) for suppression in active)]
        gone = verdict.suppressed + len(verdict.findings) - len(left)
        return RuleVerdict("fail" if left else "pass", findings=left, suppressed=gone)
    return verdict
