"""A run over packs of skills."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts, facts_in
from omni_checkers.engine.judge import RuleVerdict, applied, settled
from omni_checkers.engine.own_rules import RuleFailed
from omni_checkers.engine.registry import SKILLS, select_rules
from omni_checkers.engine.report import Report
from omni_checkers.engine.rule import Finding, NotApplicable, Result, Rule, Severity
from omni_checkers.skills.facts.installed import Installed
from omni_checkers.skills.facts.programs import Programs
from omni_checkers.skills.subject import Subject, find_skills
from omni_kit.diagnostics.definition import Selection
from omni_kit.diagnostics.suppress import Suppression, read_comment
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.skillpack.commands import Command

_ORDER = {Severity.error: 0, Severity.warning: 1, Severity.info: 2}


def check_skills(
    paths: Sequence[Path],
    *,
    known: Mapping[str, Command] | None = None,
    checkout: Path | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    strict: bool = False,
    ask: bool = False,
) -> Report:
    """Check every skill at or below folders; none of the shown commands runs.

    Args:
        known: programs whose commands are known, by name; others are asked by `--help`.
        checkout: a repository whose paths the skills name.
        select, ignore: prefixes of rule ids.
        strict: warnings count.
        ask: also run programs with `--help` of which it is not known that they answer it.

    Raises:
        BadInput: a folder is not there or has no skill, or nothing was selected.
    """
    skills = [skill for path in paths for skill in _skills_of(path)]
    skills = list({skill.path: skill for skill in skills}.values())
    if checkout is not None and not checkout.is_dir():
        raise BadInput(f"the checkout {checkout} is not a directory", "pass the root of a repository")
    rules = select_rules(select, ignore, about=SKILLS)
    if not rules:
        raise BadInput("no rule is selected", "select other ids, or ignore fewer")
    report = Report(rules=rules, strict=strict, models=[skill.path for skill in skills])
    untested: set[str] = set()
    asked: set[str] = set()
    for skill in skills:
        report.files += len(skill.files)
        programs = Programs(known or {}, _apart(skill, checkout), ask)
        _judge(skill, report, Selection(select, ignore), _facts(skill, skills, programs, checkout, untested))
        asked |= programs.ran
    report.notes += [f"run with --help: {', '.join(sorted(asked))}"] if asked else []
    report.findings.sort(key=lambda f: (f.path, f.line, _ORDER[f.severity or Severity.error], f.rule, f.message))
    report.notes += [f"not tested: {what}" for what in sorted(untested)]
    return report


def _skills_of(path: Path) -> list[Subject]:
    if not path.exists():
        raise BadInput(f"{path} does not exist", "pass a folder with skills")
    found = find_skills(path)
    if not found:
        raise BadInput(f"nothing to check in {path}: no SKILL.md at or below it", "pass a folder with skills")
    return found


def _apart(skill: Subject, checkout: Path | None) -> list[Path]:
    """Return the repository of a skill and the checkout: what lies there is somebody else's, and is not run."""
    repository = next((place for place in skill.path.parents if (place / ".git").exists()), skill.path.parent)
    return [repository, *([checkout.resolve()] if checkout is not None else [])]


def _facts(
    skill: Subject, skills: Sequence[Subject], programs: Programs, checkout: Path | None, untested: set[str]
) -> Facts:
    beside = [Subject(file.parent) for file in files_matching(skill.path.parent, "*/SKILL.md")]
    pack = {other.path.name: other for other in (*beside, *skills) if other.path.parent == skill.path.parent}
    given: dict[str, Any] = {
        "skill": skill,
        "pack": pack,
        "installed": _installed(skill.path, checkout),
        "programs": programs,
        "untested": untested,
        "checkout": checkout.resolve() if checkout else NotApplicable("no checkout was given"),
    }
    return Facts(given, facts_in("omni_checkers.skills.facts"))


_seen: dict[tuple[Path, ...], Installed] = {}


def _installed(path: Path, checkout: Path | None) -> Installed:
    """Return the installed packages: in the skill's environment, in the checkout, and here."""
    around = [place for place in path.parents if place.name in ("site-packages", "dist-packages")]
    roots = [checkout, checkout / "src", checkout / "python"] if checkout else []
    folders = tuple(place.resolve() for place in (*around, *roots, *(Path(entry) for entry in sys.path if entry)))
    return _seen.setdefault(folders, Installed(folders))


def _judge(skill: Subject, report: Report, selection: Selection, facts: Facts) -> None:
    """Add what the rules say of one skill to the report; a rule that fails on it is a finding, others continue."""
    active = [found for page in skill.pages for found in _silenced(page.path, page.text)]
    for rule in report.rules:
        crashes: list[Finding] = []
        verdict = settled(_applied(rule, facts, skill, crashes), active)
        report.findings += [
            replace(one, path=skill.file, rule=RuleFailed.id, severity=RuleFailed.severity) for one in crashes
        ]
        report.findings += [finding for finding in verdict.findings if finding.rule in selection]
        report.suppressed += verdict.suppressed
        report.results.append(Result(rule.id, skill.path, verdict.status, verdict.reason))


def _applied(rule: type[Rule], facts: Facts, skill: Subject, crashes: list[Finding]) -> RuleVerdict:
    try:
        return applied(rule, facts, skill.path, crashes)
    except RecursionError:
        crashes.append(Finding(f"{rule.id} failed: something is nested too deeply", skill.file))
        return RuleVerdict("not-applicable", crashes[-1].message)


def _silenced(path: Path, text: str) -> list[Suppression]:
    """Return the comments `<!-- omni-kit: ignore[ID] reason -->` of a page; each covers its line and the block after
    it.
    """
    lines = text.splitlines()
    ends = _ends(lines)
    found = []
    for number, line in enumerate(lines, 1):
        if "<!--" in line and (comment := read_comment(line.replace("<!--", "#").replace("-->", ""))) is not None:
            rules, reason = comment
            if rules and reason:
                found.append(Suppression(path, number, rules, range(number, ends[number] + 1)))
    return found


def _ends(lines: Sequence[str]) -> list[int]:
    """Return the last line, from 1, of the paragraph or block of code after each line: item n for line n."""
    count = len(lines)
    ends, paragraph, fences = [count] * (count + 1), count, {"```": count, "~~~": count}
    for at in range(count - 1, -1, -1):
        start = lines[at].lstrip()[:3]
        paragraph = paragraph if lines[at].strip() else at
        ends[at] = fences.get(start, paragraph)
        fences |= {start: at + 1} if start in fences else {}
    return ends
