"""What an integration was made from, as it is recorded beside it."""

from pathlib import Path

from omni_kit.documents import read_toml
from omni_kit.files import is_file
from omni_kit.upstream.diffusers.pipelines import INDEX

SCHEDULER = "_scheduler"
"""Of a toy's config: which scheduler its pipeline has, with its own config."""
ALONE = "_alone"
"""Of that: the scheduler is of the integration itself, and compared without a model, too."""
_ANSWERS = ".omni-kit.toml"


def recorded_source(path: Path) -> str:
    """A SOURCE: the directory of a pipeline as an absolute path, or a name as it was given; empty without a record."""
    try:
        recorded = read_toml((path / _ANSWERS).read_text(encoding="utf-8") if is_file(path / _ANSWERS) else "")
        given = str(recorded["answers"]["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(Path(given).resolve()) if given and Path(given, INDEX).is_file() else given
