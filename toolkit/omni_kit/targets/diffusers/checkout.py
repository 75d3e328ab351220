"""diffusers' own package on disk: where its parts go, and whether it is of a version whose conventions are known."""

import ast
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library, find_library
from omni_kit.pysource.source import parse_file

PACKAGE = "src/diffusers"
TOCTREE = "docs/source/en/_toctree.yml"
_RULES, _RUFF = "pyproject.toml", "[tool.ruff"
_TESTERS = "tests/models/testing_utils/__init__.py"
# What a new model is entered into, and a text that each has in versions whose conventions are known.
_ENTERED = {
    "__init__.py": '_import_structure["models"]',
    "models/__init__.py": "_import_structure",
    "models/transformers/__init__.py": "is_torch_available",
    "models/attention_dispatch.py": "def dispatch_attention_fn",
    "models/attention.py": "class AttentionModuleMixin",
    "pipelines/__init__.py": "_import_structure",
    "utils/dummy_pt_objects.py": "DummyObject",
    "utils/dummy_torch_and_transformers_objects.py": "DummyObject",
    "loaders/single_file_model.py": "SINGLE_FILE_LOADABLE_CLASSES",
    "loaders/single_file_utils.py": "def convert_",
}


@dataclass(frozen=True)
class Checkout:
    """A checkout of diffusers.

    Attributes:
        root: the folder with `src`.
        library: its package, to be read.
    """

    root: Path
    library: Library

    @property
    def has_pages(self) -> bool:
        """Return whether its documentation lies there, too."""
        return (self.root / TOCTREE).is_file()

    @property
    def rules(self) -> Path | None:
        """The file that says how its Python is formatted; None if none does."""
        file = self.root / _RULES
        return file if file.is_file() and _RUFF in file.read_text(encoding="utf-8") else None

    @property
    def testers(self) -> frozenset[str]:
        """The classes that its tests of models are made of; none if its tests do not lie there."""
        file = self.root / _TESTERS
        if not file.is_file():
            return frozenset()
        _, tree = parse_file(file)
        imported = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
        return frozenset(alias.asname or alias.name for alias in imported)


def find_checkout(root: Path) -> Checkout | None:
    """Return the checkout whose root is `root`; None if there is none."""
    package = root / PACKAGE
    return Checkout(root, find_library("diffusers", package)) if (package / "__init__.py").is_file() else None


def checkout_at(root: Path) -> Checkout:
    """Return the checkout at `root`, of a version whose conventions are known.

    Raises:
        BadInput: there is none, or it enters models otherwise.
    """
    found = find_checkout(root)
    if found is None:
        raise BadInput(f"{root} is not a checkout of diffusers: it has no {PACKAGE}", "pass its root with --into")
    for place, text in _ENTERED.items():
        file = found.library.root / place
        if not file.is_file() or text not in file.read_text(encoding="utf-8"):
            what = f"no {place}" if not file.is_file() else f"no {text} in {place}"
            raise BadInput(
                f"{root} is a checkout of another version of diffusers ({found.library.version}): it has {what}",
                "take 0.37, or --style plugin",
            )
    return found
