"""The files of one pipeline: a plugin's own, or those that SGLang keeps apart under one name."""

from pathlib import Path

from omni_kit.targets.sglang_diffusion.checkout import FOLDERS
from omni_kit.targets.sglang_diffusion.pipeline_dir import package_of_sglang


def files_of(path: Path) -> list[Path]:
    """The Python files, in order."""
    own = [file for file in path.rglob("*.py") if "__pycache__" not in file.parts and "tests" not in file.parts]
    package = package_of_sglang(path)
    apart = [package / folder / f"{path.name}.py" for folder in FOLDERS.values()] if package is not None else []
    return [*sorted(own), *(file for file in apart if file.is_file())]
