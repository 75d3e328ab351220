"""The worked examples that travel with the package: finished integrations, to read and to copy."""

import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from omni_kit.errors import BadInput
from omni_kit.files import inside, plain_name, whole_directory
from omni_kit.resources import resource_dir
from omni_kit.targets.protocol import package_of
from omni_kit.targets.registry import targets

FOLDER = "reference_models"


@dataclass(frozen=True)
class Example:
    """One finished integration.

    Attributes:
        target: the framework that it is integrated into.
        path: its directory in this installation.
    """

    model: str
    target: str
    path: Path

    @property
    def name(self) -> str:
        """Name as typed: `<folder of the target>/<model>`."""
        return f"{self.path.parent.name}/{self.model}"

    @property
    def files(self) -> list[str]:
        """Its files, relative to its directory, ordered."""
        found = (path for path in self.path.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return sorted(path.relative_to(self.path).as_posix() for path in found)

    def read(self, file: str) -> str:
        """Return the text of one file.

        Raises:
            BadInput: it has no such file.
        """
        if file not in self.files:
            near = get_close_matches(PurePosixPath(file).name, self.files, 1, 0.3)
            raise BadInput(f"{self.name} has no file '{file}'", f"did you mean {near[0]}?" if near else "")
        return inside(self.path, file).read_text(encoding="utf-8")


def examples() -> list[Example]:
    """Return every worked example of this installation, ordered by target and model."""
    root = resource_dir(FOLDER)
    folders = {name: root / package_of(target) for name, target in targets().items()}
    return [
        Example(path.name, name, path)
        for name, folder in folders.items()
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.is_dir() and not path.name.startswith((".", "_"))
    ]


def find_example(name: str) -> Example:
    """Return the example of that name: `<model>`, `<target>/<model>`, or with `reference_models/` before it.

    Raises:
        BadInput: there is none, or several.
    """
    wanted = name.strip("/").removeprefix(f"{FOLDER}/")
    found = [example for example in examples() if wanted in (example.name, example.model)]
    if not found:
        names = [example.name for example in examples()]
        raise BadInput(f"no reference model named '{name}'", f"one of {', '.join(names)}" if names else "")
    if len(found) > 1:
        raise BadInput(f"several targets have a worked example '{name}'", f"one of {', '.join(e.name for e in found)}")
    return found[0]


def copy_example(example: Example, into: Path) -> Path:
    """Copy an example to `into/<model>`, and return that directory.

    Raises:
        BadInput: something is there already, or it cannot be written; then nothing is.
    """
    place = into / plain_name(example.model, "the example")
    with whole_directory(place) as folder:
        shutil.copytree(example.path, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return place
