"""What a project says about checking, in `[tool.omni-kit.check]` of its pyproject.toml."""

import fnmatch
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding
from omni_kit.errors import BadInput


@dataclass(frozen=True)
class Settings:
    """How to check.

    Attributes:
        select, ignore: prefixes of rule ids.
        per_file_ignores: glob relative to `root` -> prefixes of rule ids that are not reported there.
        baseline: a file of known findings.
        root: the directory that paths are relative to: that of the pyproject.toml.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: Path | None = None
    root: Path | None = None

    def overridden(
        self,
        *,
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        strict: bool = False,
        baseline: Path | None = None,
    ) -> "Settings":
        """With what the command line says: it replaces `select` and `baseline`, and adds to the rest."""
        return replace(
            self,
            select=tuple(select) or self.select,
            ignore=(*self.ignore, *ignore),
            strict=self.strict or strict,
            baseline=baseline or self.baseline,
        )

    def silences(self, finding: Finding) -> bool:
        """Whether the project does not want this finding reported in this file."""
        if self.root is None or not finding.path.is_relative_to(self.root):
            return False
        relative = finding.path.relative_to(self.root).as_posix()
        return any(
            fnmatch.fnmatch(relative, pattern) and any(finding.rule.startswith(prefix) for prefix in prefixes)
            for pattern, prefixes in self.per_file_ignores.items()
        )


def find_settings(path: Path) -> Settings:
    """The settings for a path: those of the nearest pyproject.toml above it that has the table; else the defaults.

    Raises:
        BadInput: the file cannot be read, or says something that is not understood.
    """
    for directory in (path, *path.parents):
        file = directory / "pyproject.toml"
        if file.is_file():
            table = _read(file).get("tool", {}).get("omni-kit", {}).get("check")
            if table is not None:
                return _settings(table, file)
    return Settings()


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}") from error


def _settings(table: Any, file: Path) -> Settings:
    known = {"select", "ignore", "strict", "per-file-ignores", "baseline"}
    if not isinstance(table, dict) or (strange := sorted(table.keys() - known)):
        what = f"an unknown key '{strange[0]}'" if isinstance(table, dict) else "something that is no table"
        raise BadInput(f"{file}: [tool.omni-kit.check] has {what}", f"it may have {', '.join(sorted(known))}")
    ignores = table.get("per-file-ignores", {})
    if not isinstance(ignores, dict):
        raise BadInput(f"{file}: per-file-ignores is no table of glob = [ids]")
    baseline = table.get("baseline")
    return Settings(
        select=_ids(table, "select", file),
        ignore=_ids(table, "ignore", file),
        strict=table.get("strict") is True,
        per_file_ignores={glob: _ids(ignores, glob, file) for glob in ignores},
        baseline=file.parent / baseline if isinstance(baseline, str) else None,
        root=file.parent.resolve(),
    )


def _ids(table: Mapping[str, Any], key: str, file: Path) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadInput(f"{file}: {key} is no list of rule ids")
    return tuple(item.upper() for item in value)
