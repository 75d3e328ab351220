"""A run: apply rules to models, then remove silenced findings and those of the baseline."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from omni_checkers.engine.cache import Cache, digest
from omni_checkers.engine.judge import RuleVerdict, judge, package_of
from omni_checkers.engine.own_rules import RuleFailed, documents
from omni_checkers.engine.registry import all_rules, select_rules
from omni_checkers.engine.report import Report
from omni_checkers.engine.rule import Result, Rule, Severity
from omni_kit.diagnostics.baseline import Baseline
from omni_kit.diagnostics.definition import Selection
from omni_kit.diagnostics.settings import Settings
from omni_kit.errors import BadInput
from omni_kit.isolation.pool import map_in_forks
from omni_kit.pysource.source import without_collection
from omni_kit.targets.protocol import Target
from omni_kit.targets.registry import chosen, find_integrations, get_target, integration_at

__all__ = ["Report", "check"]
_WORKERS, _MANY = 8, 3
_ORDER = {Severity.error: 0, Severity.warning: 1, Severity.info: 2}


def check(
    paths: Sequence[Path],
    *,
    target: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    settings: Settings | None = None,
    cache: Cache | None = None,
    level: str = "static",
) -> Report:
    """Run rules over the models at `paths`.

    Args:
        paths: model directories, or roots of checkouts.
        target: judge by this framework's rules alone; without it, by the framework that knows the path.
        select: prefixes of rule ids; all rules without any.
        ignore: prefixes of rule ids that are left out.
        level: "static" looks at the text alone; "import" and "toy" also run the model, in processes of their own.
        settings: how the project requires to be checked; `select` replaces and `ignore` adds to what they say.
        cache: verdicts of earlier runs, to be used and added to.

    Raises:
        BadInput: a path contains no model, nothing was selected, an id is unknown, or the baseline cannot be read.
        MissingRequirement: a level above "static" needs what is not installed.
    """
    settings = (settings or Settings()).overridden(select=select, ignore=ignore)
    rules = select_rules(settings.select, settings.ignore, level)
    if not rules:
        raise BadInput("no rule is selected", "select other ids, or ignore fewer")
    report = Report(rules=rules, strict=settings.strict, settings=settings)
    known = Baseline(settings.baseline).read() if settings.baseline is not None else None
    models = find_models(paths, target)
    if level != "static":
        _prepare(models)
    with without_collection():
        judged = judge_all(models, rules, cache)
    if level != "static":
        _run(models, rules, level, judged)
    for (path, owner), verdicts in zip(models, judged, strict=True):
        _add(report, path, owner, verdicts, settings.selection)
    _settle(report, settings, known)
    return report


def _settle(report: Report, settings: Settings, known: Baseline | None) -> None:
    """Put the findings in order, without those that the settings silence or the baseline knows."""
    wanted = [finding for finding in report.findings if not settings.silences(finding)]
    report.suppressed += len(report.findings) - len(wanted)
    report.findings = sorted(
        wanted, key=lambda f: (f.path, f.line, _ORDER[f.severity or Severity.error], f.rule, f.message)
    )
    if known is not None:
        report.findings, report.matched, report.stale = known.split(report.findings)


def models_of(files: Sequence[Path], target: str | None = None) -> list[Path]:
    """Return the model directories that files are in, such as those that a commit touches; files elsewhere are left
    out.
    """
    known = chosen(target)
    found: dict[Path, None] = {}
    for file in files:
        for directory in file.resolve().parents:
            if any(integration_at(directory, owner) is not None for owner in known):
                found.setdefault(directory)
                break
    return list(found)


def find_models(paths: Sequence[Path], target: str | None = None) -> list[tuple[Path, Target]]:
    """Return the model directories at paths, with the framework of each.

    Raises:
        BadInput: a path does not exist, or contains no model.
    """
    found: dict[Path, Target] = {}
    for path in paths:
        try:
            here = find_integrations(path, target)
        except BadInput as error:
            what = f"nothing to check: {error.message}" if path.exists() else error.message
            hint = "pass the model's directory, or add --touched" if path.is_file() else error.hint
            raise BadInput(what, hint) from error
        for owner, integration in here:
            found.setdefault(integration.path, owner)
    return list(found.items())


def _prepare(models: Sequence[tuple[Path, Target]]) -> None:
    """Let packages that can begin their runs: they start while the text is judged."""
    for owner in {owner.name: owner for _, owner in models}.values():
        begin = getattr(package_of(owner), "prepare", None)
        if begin is not None:
            begin([path for path, other in models if other.name == owner.name])


def _run(
    models: Sequence[tuple[Path, Target]], rules: Sequence[type[Rule]], level: str, judged: list[dict[str, RuleVerdict]]
) -> None:
    """Add the verdicts of the rules that need runs; these are never kept for the next time."""
    live = [rule for rule in rules if rule.level != "static"]
    for owner in {owner.name: owner for _, owner in models}.values() if live else ():
        numbers = [number for number, (_, other) in enumerate(models) if other.name == owner.name]
        known = package_of(owner).experiments([models[number][0] for number in numbers], level)
        for number in numbers:
            path = models[number][0]
            verdicts = judge(path, owner, [*live, RuleFailed], known[path])
            crashes = verdicts.pop(RuleFailed.id)
            judged[number] |= verdicts
            if crashes.findings and RuleFailed.id in judged[number]:
                judged[number][RuleFailed.id] = crashes


def judge_all(
    models: Sequence[tuple[Path, Target]], rules: Sequence[type[Rule]], cache: Cache | None
) -> list[dict[str, RuleVerdict]]:
    """Return the verdicts on every model: from the cache, or judged; many at once are judged by several processes.

    With a cache, all rules judge, so that the next run finds their verdicts whichever it selects.
    """
    if cache is None:
        static = tuple(rule.id for rule in rules if rule.level == "static")
        return _judged([(path, owner.name, static) for path, owner in models])
    keys = [_key(path, owner) for path, owner in models]
    found = [cache.read(path, key) for (path, _), key in zip(models, keys, strict=True)]
    every = tuple(rule.id for rule in all_rules() if rule.level == "static")
    fresh = [number for number, verdicts in enumerate(found) if not verdicts]
    judged = _judged([(models[number][0], models[number][1].name, every) for number in fresh])
    for number, verdicts in zip(fresh, judged, strict=True):
        cache.write(models[number][0], keys[number], verdicts)
        found[number] = verdicts
    return found


def _key(path: Path, owner: Target) -> str:
    """Return the digest of everything that a verdict on a model depends on."""
    package = package_of(owner)
    files = list(dict.fromkeys([*package.inputs(path), *documents(path)]))
    return digest(files, package.surroundings(path), owner.reads)


def _judged(jobs: Sequence[tuple[Path, str, tuple[str, ...]]]) -> list[dict[str, RuleVerdict]]:
    """Judges one of the smaller models before forking: workers inherit what it read. Then the largest ones first."""
    order = sorted(range(len(jobs)), key=lambda number: _size(jobs[number][0]), reverse=True)
    order.insert(0, order.pop(len(order) * 3 // 4)) if order else None
    rest = [jobs[number] for number in order[1:]]
    found = [_judge(jobs[number]) for number in order[:1]]
    found += map_in_forks(_judge, rest, _WORKERS) if len(rest) >= _MANY else [_judge(job) for job in rest]
    return [verdicts for _, verdicts in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.py"))


def _judge(job: tuple[Path, str, tuple[str, ...]]) -> dict[str, RuleVerdict]:
    path, target, ids = job
    return judge(path, get_target(target), [rule for rule in all_rules() if rule.id in ids])


def _add(report: Report, path: Path, owner: Target, verdicts: Mapping[str, RuleVerdict], selection: Selection) -> None:
    """Add what the rules say of one model to the report; of a family, what its selected detectors say."""
    inputs = package_of(owner).inputs(path)
    report.models.append(path)
    alone = path.is_dir()  # what has no directory of its own is told by its files
    report.files += sum(file.suffix == ".py" and (file.is_relative_to(path) or not alone) for file in inputs)
    for rule in report.rules:
        verdict = verdicts.get(rule.id)
        if verdict is not None:
            findings = [finding for finding in verdict.findings if finding.rule in selection]
            status = "pass" if verdict.findings and not findings else verdict.status
            report.findings += findings
            report.suppressed += verdict.suppressed
            report.results.append(Result(rule.id, path, status, verdict.reason))
