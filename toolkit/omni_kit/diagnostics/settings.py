"""A project's settings: `[tool.omni-kit.check]` in its pyproject.toml."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omni_kit.diagnostics.definition import Selection, begins
from omni_kit.diagnostics.finding import Finding
from omni_kit.documents import read_toml
from omni_kit.errors import BadInput


@dataclass(frozen=True)
class Settings:
    """The settings of a check.

    Attributes:
        select, ignore: prefixes of rule ids.
        per_file_ignores: glob relative to `root` -> prefixes of rule ids that are not reported there.
        baseline: a file of known findings.
        root: the directory that paths are relative to: that of the pyproject.toml.
        file: where the settings were read; None for what the command line says alone.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: Path | None = None
    root: Path | None = None
    file: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the settings of a run and their file."""
        return {
            "file": str(self.file) if self.file else None,
            "select": list(self.select),
            "ignore": list(self.ignore),
            "strict": self.strict,
            "per_file_ignores": {glob: list(ids) for glob, ids in self.per_file_ignores.items()},
            "baseline": str(self.baseline) if self.baseline else None,
        }

    def __str__(self) -> str:
        """Return the settings that differ from the defaults, in one line for people."""
        said = self.as_json()
        parts = [f"{key} {','.join(said[key])}" for key in ("select", "ignore") if said[key]]
        parts += ["strict"] if self.strict else []
        parts += [f"per-file-ignores of {', '.join(self.per_file_ignores)}"] if self.per_file_ignores else []
        parts += [f"baseline {self.baseline}"] if self.baseline else []
        return f"{'; '.join(parts) or 'the defaults'} ({self.file or 'no settings file'})"

    def overridden(
        self,
        *,
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        strict: bool = False,
        baseline: Path | None = None,
    ) -> "Settings":
        """Return the settings with the command line's: it replaces `select` and `baseline`, and adds to the rest."""
        return replace(
            self,
            select=tuple(select) or self.select,
            ignore=(*self.ignore, *ignore),
            strict=self.strict or strict,
            baseline=baseline or self.baseline,
        )

    @property
    def selection(self) -> Selection:
        """The IDs that are reported."""
        return Selection(self.select, self.ignore)

    def silences(self, finding: Finding) -> bool:
        """Return whether the project does not want this finding reported in this file."""
        if self.root is None or not finding.path.is_relative_to(self.root):
            return False
        relative = finding.path.relative_to(self.root).as_posix()
        return any(
            fnmatch.fnmatch(relative, pattern) and any(begins(prefix, finding.rule) for prefix in prefixes)
            for pattern, prefixes in self.per_file_ignores.items()
        )


def find_settings(directory: Path) -> Settings:
    """The settings of whoever stands in a directory: of the nearest pyproject.toml at or above it that has the table.

    Without one, the defaults.

    Raises:
        BadInput: the file cannot be read, or says something that is not understood.
    """
    for place in (directory, *directory.parents):
        file = place / "pyproject.toml"
        if file.is_file() and (table := _table(file)) is not None:
            return _settings(table, file)
    return Settings()


def read_settings(file: Path) -> Settings:
    """Return the settings of a named file.

    Raises:
        BadInput: it cannot be read, has no such table, or says something that is not understood.
    """
    table = _table(file)
    if table is None:
        raise BadInput(f"{file} has no [tool.omni-kit.check]", "name a file with this table")
    return _settings(table, file)


def not_used(paths: Sequence[Path], used: Path | None) -> list[Path]:
    """Return settings files around the checked paths that are ignored: checked code must not choose its own
    settings."""
    found: dict[Path, None] = {}
    for path in paths:
        for place in (path.resolve(), *path.resolve().parents):
            file = place / "pyproject.toml"
            try:
                has_table = file.is_file() and _table(file) is not None
            except BadInput:
                continue
            if has_table:
                found.setdefault(file)
                break
    return [file for file in found if used is None or file != used.resolve()]


def _table(file: Path) -> Any:
    """Return the file's [tool.omni-kit.check]; None if it has none."""
    table: Any = _read(file)
    for key in ("tool", "omni-kit", "check"):
        if not isinstance(table, dict):
            raise BadInput(f"{file}: what should hold '{key}' is not a table", "write [tool.omni-kit.check]")
        if key not in table:
            return None
        table = table[key]
    return table


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_toml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot read {file}: {why}", "pass a TOML file") from error


def _settings(table: Any, file: Path) -> Settings:
    known = {"select", "ignore", "strict", "per-file-ignores", "baseline"}
    if not isinstance(table, dict) or (strange := sorted(table.keys() - known)):
        what = f"an unknown key '{strange[0]}'" if isinstance(table, dict) else "something that is not a table"
        raise BadInput(f"{file}: [tool.omni-kit.check] has {what}", f"it may have {', '.join(sorted(known))}")
    for key, kind, words in (
        ("per-file-ignores", dict, "not a table of glob = [ids]"),
        ("strict", bool, "neither true nor false"),
        ("baseline", str, "not a file name"),
    ):
        if key in table and not isinstance(table[key], kind):
            raise BadInput(f"{file}: {key} is {words}", "fix the table")
    ignores = table.get("per-file-ignores", {})
    return Settings(
        select=_ids(table, "select", file),
        ignore=_ids(table, "ignore", file),
        strict=table.get("strict", False),
        per_file_ignores={glob: _ids(ignores, glob, file) for glob in ignores},
        baseline=file.parent / table["baseline"] if "baseline" in table else None,
        root=file.parent.resolve(),
        file=file,
    )


def _ids(table: Mapping[str, Any], key: str, file: Path) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadInput(f"{file}: {key} is not a list of rule ids", "fix the table")
    return tuple(item.upper() for item in value)
