"""Rules for VeOmni integrations of transformers models: a plugin package, or a directory of VeOmni itself."""

from pathlib import Path

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File

__all__ = ["inputs", "read_model"]


def read_model(path: Path) -> tuple[Facts, list[File]]:
    """The facts about one model directory, and its files."""
    from omni_checkers.veomni.facts import model_facts

    return model_facts(path)


def inputs(path: Path) -> list[Path]:
    """Every file that a verdict on the model at `path` depends on: its own, and the package above that imports it."""
    own = [file for file in path.rglob("*") if file.suffix in {".py", ".json"} and "__pycache__" not in file.parts]
    return [*sorted(own), path.parent / "__init__.py"]
