"""One call of `omni-kit check`: settings, cache, fixes and baseline around a run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from omni_checkers.engine.cache import Cache
from omni_checkers.engine.fix import apply_fixes
from omni_checkers.engine.report import Report
from omni_checkers.engine.run import check, models_of
from omni_kit.diagnostics.baseline import Baseline
from omni_kit.diagnostics.settings import find_settings, not_used, read_settings
from omni_kit.files import cache_directory
from omni_kit.plurals import counted

_ROUNDS = 5


def run_check(
    paths: Sequence[Path],
    *,
    target: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    baseline: Path | None = None,
    write_baseline: Path | None = None,
    fix: bool = False,
    strict: bool = False,
    cached: bool = True,
    touched: bool = False,
    level: str = "static",
    config: Path | None = None,
) -> Report:
    """Check as the command line asks for it; see `check`.

    Args:
        baseline: known findings that are not reported.
        write_baseline: write the findings of this run there; none of them is reported then.
        fix: fix what findings know how to fix, and check again until nothing more can be fixed.
        strict: warnings count.
        cached: use and add to the user's cache.
        level: how far rules may go; see `check`.
        touched: check the models that contain these files; files outside every model give no findings.
        config: the file with the settings; without it, those of the working directory. What lies around the checked
            paths does not count.

    Raises:
        BadInput: as `check`; or `write_baseline` names a file that is not a baseline.
    """
    settings = read_settings(config) if config is not None else find_settings(Path.cwd())
    settings = settings.overridden(select=select, ignore=ignore, strict=strict, baseline=baseline)
    if write_baseline is not None:
        Baseline(write_baseline).check_replaceable()
        settings = replace(settings, baseline=None)
    if touched:
        paths = models_of(paths, target)
        if not paths:
            return Report(notes=["nothing was checked: no file is in a model directory"], settings=settings)
    cache = Cache(cache_directory()) if cached else None
    run = partial(check, paths, target=target, settings=settings, cache=cache, level=level)
    report = _mended(run) if fix else run()
    if report.stale:
        first = report.stale[0]
        report.notes.append(
            f"{counted(report.stale, 'entry')} of the baseline without a finding: {first['rule']} in {first['path']}"
        )
    for file in not_used(paths, settings.file):
        report.notes.append(f"the settings in {file} are not read: change to that directory, or pass --config")
    if write_baseline is not None:
        report.notes.append(Baseline(write_baseline).written(report.findings))
        report.matched, report.findings = len(report.findings), []
    return report


def _mended(run: Callable[[], Report]) -> Report:
    """Apply the fixes of findings, run after run; the report of the last run, which says how many."""
    report, mended = run(), 0
    for _ in range(_ROUNDS):
        done = apply_fixes(report.findings)
        if not done:
            break
        mended += len(done)
        report = run()
    report.notes.append(f"fixed {counted(mended, 'finding')}")
    return report
