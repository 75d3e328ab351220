"""Locations of configs: `[tool.patchgen]` of pyproject.toml, and the search for `*_patch_gen_config.py`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.documents import read_toml
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.patchgen.importing import CONFIG_SUFFIX


@dataclass(frozen=True)
class Project:
    """The settings in `[tool.patchgen]`.

    `search_root` is the directory that is searched for configs, `package_prefix` the dotted package that it is;
    `strict` turns warnings into errors for every config.
    """

    search_root: Path
    package_prefix: str = ""
    strict: bool = False

    @property
    def import_root(self) -> Path:
        """The directory that holds the first package of `package_prefix`."""
        depth = len(self.package_prefix.split(".")) if self.package_prefix else 0
        return self.search_root.parents[depth - 1] if depth else self.search_root


def find_project(start: Path) -> Project | None:
    """Return the project around `start`: the nearest pyproject.toml with a `[tool.patchgen]`.

    Raises:
        BadInput: the table or the file cannot be understood.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                return _project(table, file)
    return None


def find_configs(root: Path) -> list[Path]:
    """Return every config file below `root`, sorted; hidden directories and build leftovers are not entered.

    Raises:
        BadInput: `root` is not a directory.
    """
    if not root.is_dir():
        raise BadInput(f"there is no directory {root}", "pass the directory to search with --root")
    files = (p for p in files_matching(root, f"**/*{CONFIG_SUFFIX}.py") if not p.name.startswith("_"))
    return sorted(p for p in files if not _is_hidden(p.relative_to(root)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part in ("__pycache__", "node_modules") for part in path.parts)


def _table(file: Path) -> dict[str, Any] | None:
    try:
        tool = read_toml(file.read_text(encoding="utf-8")).get("tool")
    except (OSError, ValueError) as why:
        raise BadInput(f"{file} cannot be read: {why}", "fix the file") from why
    table = tool.get("patchgen") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise BadInput(f"{file}: [tool.patchgen] is not a table", "write [tool.patchgen] with search_root = '...'")
    return table


def _project(table: dict[str, Any], file: Path) -> Project:
    root, prefix, strict = table.get("search_root", "."), table.get("package_prefix", ""), table.get("strict", False)
    if not isinstance(root, str) or not isinstance(prefix, str) or not isinstance(strict, bool):
        raise BadInput(f"{file}: search_root and package_prefix are strings, strict is true or false", "fix the table")
    return Project((file.parent / root).resolve(), prefix, strict)
