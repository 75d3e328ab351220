"""A run that failed, in a small file from which it can be run again."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from omni_kit.documents import read_json
from omni_kit.errors import BadInput, reason
from omni_kit.files import cache_directory, write_atomic
from omni_kit.parity.report.environment import versions
from omni_kit.parity.report.report import ParityReport

SCHEMA = "omni-kit/parity-replay/1"
_FIGURES = ("status", "max_abs", "max_rel")


@dataclass(frozen=True)
class Options:
    """Options of a run that its figures depend on.

    Attributes:
        target: the framework, where it was named.
        checkpoint: the given one; empty if a toy was made.
        toy: the whole config of the toy that was made; weights and batch follow from it, without any chance.
        named: the levels were asked for by name, and take their time.
    """

    path: str
    levels: list[str]
    target: str = ""
    layout: str = "hub"
    device: str = "cpu"
    prove: bool = False
    timeout: float = 300.0
    checkpoint: str = ""
    toy: Mapping[str, Any] | None = None
    named: bool = True


@dataclass(frozen=True)
class Saved:
    """A run as its file has it.

    Attributes:
        versions: package -> version at that time.
        figures: level -> its status and how far it was off.
        module: the first to add error.
    """

    options: Options
    versions: Mapping[str, str]
    figures: Mapping[str, Mapping[str, Any]]
    module: str = ""


def save_replay(report: ParityReport, options: Options, work_dir: Path | None) -> str:
    """Write the file of a run, a new one each time: into the directory that it keeps, or into the user's cache.

    Returns:
        Where it is; empty if nothing can be written.
    """
    named = hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode()).hexdigest()[:8]
    first = (
        work_dir / "replay.json"
        if work_dir
        else cache_directory() / "parity" / f"{Path(options.path).name}-{_levels(options)}-{named}.json"
    )
    file = next(path for path in _names(first) if not path.exists())
    module = report.first_divergence.module if report.first_divergence else ""
    saved = Saved(options, versions(), figures_of(report), module)
    try:
        write_atomic(file, json.dumps({"schema": SCHEMA, **asdict(saved)}, indent=2) + "\n")
    except BadInput:
        return ""
    return str(file.resolve())


def _levels(options: Options) -> str:
    return options.levels[0] if len(options.levels) == 1 else f"{len(options.levels)}-levels"


def _names(first: Path) -> Iterator[Path]:
    yield first
    yield from (first.with_stem(f"{first.stem}-{number}") for number in count(2))


def load_replay(file: Path) -> Saved:
    """Read what `save_replay` wrote.

    Raises:
        BadInput: there is no such file, or it is another one.
    """
    try:
        data = read_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read {file}: {reason(error)}", "pass the file that a failed parity run has named"
        ) from error
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise BadInput(f"{file} is not a saved parity run", "pass the file that a failed parity run has named")
    try:
        return Saved(**{**data, "options": Options(**data["options"])})
    except (KeyError, TypeError) as error:
        raise BadInput(f"{file} is a saved parity run of another omni-kit version: {error}") from error


def figures_of(report: ParityReport) -> dict[str, dict[str, Any]]:
    """Level -> what a replay must give again; figures that are infinite have no place in JSON, and are text."""
    return {level.level: {name: _plain(getattr(level, name)) for name in _FIGURES} for level in report.levels}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def changes(saved: Saved, report: ParityReport) -> list[str]:
    """Return the differences from a saved run: versions, figures, the first divergence; or that there are none."""
    now = versions()
    lines = [
        f"{name} was {saved.versions.get(name, 'not installed')} then and is {now.get(name, 'not installed')} now"
        for name in sorted({*saved.versions, *now})
        if saved.versions.get(name) != now.get(name)
    ]
    figures = figures_of(report)
    changed = [name for name, then in saved.figures.items() if dict(then) != figures.get(name)]
    module = report.first_divergence.module if report.first_divergence else ""
    if not changed and module == saved.module:
        return [*lines, "the same figures as in the saved run"]
    lines += [f"{name}: {_shown(saved.figures[name])} then, {_shown(figures.get(name, {}))} now" for name in changed]
    if module != saved.module:
        lines.append(f"first divergence: {saved.module or 'none'} then, {module or 'none'} now")
    return lines


def _shown(figures: Mapping[str, Any]) -> str:
    value = figures.get("max_rel")
    return f"{figures.get('status', 'not run')}" + ("" if value is None else f" ({float(value):.2e})")
