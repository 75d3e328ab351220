"""Calls of a transformer by the pipelines of diffusers."""

import ast
from functools import lru_cache
from pathlib import Path

from omni_checkers.engine.files import read_file, walked
from omni_kit.files import files_matching
from omni_kit.pysource.library import Library


@lru_cache(maxsize=64)
def divides_timestep(library: Library, transformer: str) -> bool | None:
    """Return whether pipelines divide the timestep by 1000 before the transformer gets it; None if they disagree."""
    found = {told for file in pipelines_with(library.root, transformer) if (told := _divides(file)) is not None}
    return found.pop() if len(found) == 1 else None


@lru_cache(maxsize=64)
def pipelines_with(root: Path, transformer: str) -> list[Path]:
    """Return the files of pipelines whose constructor takes this transformer."""
    files = files_matching(root / "pipelines", "**/pipeline_*.py")
    return [file for file in files if f"transformer: {transformer}" in file.read_text(encoding="utf-8")]


def _divides(file: Path) -> bool | None:
    answers = set()
    for call in read_file(file).nodes(ast.Call):
        if ast.unparse(call.func) == "self.transformer":
            for keyword in call.keywords:
                if keyword.arg == "timestep":
                    answers.add(any(isinstance(n, ast.Constant) and n.value == 1000 for n in walked(keyword.value)))
    return answers.pop() if len(answers) == 1 else None
