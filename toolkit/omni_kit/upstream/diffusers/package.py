"""The parts of a package of diffusers: folders of pipelines, models, schedulers, and what exports them."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from omni_kit.files import files_matching
from omni_kit.upstream.diffusers.classes import MODELS, MODULAR, PIPELINES, SCHEDULERS, TRANSFORMERS

_INIT = "__init__.py"
_EXPORTING = ("", MODELS, TRANSFORMERS, PIPELINES, MODULAR, SCHEDULERS)


def package_root(path: Path) -> Path | None:
    """The package that a path is in, or is, or is the checkout of; None without one."""
    for root in (path / "src" / "diffusers", path, *path.parents):
        if root.name == "diffusers" and (root / _INIT).is_file() and (root / "configuration_utils.py").is_file():
            return root
    return None


@cache
def package_parts(root: Path) -> tuple[Path, ...]:
    """Return the parts of a package, each a folder or a file; every file is in one, what exports in the package itself.

    Args:
        root: the package directory.
    """
    return (root, *_folders(root), *_files(root))


def part_files(root: Path, part: Path) -> list[Path]:
    """Return the Python files of a part; with the folder of a pipeline comes the model that is named like it.

    Args:
        root: the package directory.
    """
    if part == root:
        return [file for place in _EXPORTING if (file := root / place / _INIT).is_file()]
    if part.is_file():
        return [part]
    return sorted({*files_matching(part, "*.py"), *filter(Path.is_file, [_model_of(root, part)])})


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders with pipelines, standard and modular."""
    for place in (PIPELINES, MODULAR):
        found = [file.parent for file in files_matching(root / place, f"**/{_INIT}")]
        yield from (folder for folder in found if folder != root / place)


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of models and schedulers that come with no pipeline's folder."""
    taken = {_model_of(root, folder) for folder in _folders(root)}
    for place in (TRANSFORMERS, SCHEDULERS):
        yield from (file for file in files_matching(root / place, "*.py") if file.name != _INIT and file not in taken)


def _model_of(root: Path, folder: Path) -> Path:
    return (
        root / TRANSFORMERS / f"transformer_{folder.name}.py" if folder.parent == root / PIPELINES else folder / _INIT
    )
