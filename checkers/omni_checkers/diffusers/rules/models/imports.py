"""A rule about what files of an integration import: DFU135."""

import ast
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.diffusers.requirements import importable

_HEAD = "import torch\n"
_FORWARD = "encoder_hidden_states, return_dict: bool = True):\n"
_PROJECT = "pyproject.toml"
_OF_PIPELINES = "tqdm"  # which the base class of diffusers' pipelines imports itself
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


class ImportsAreDeclared(Rule):
    """Import only the standard library, torch, diffusers, its requirements, and declared dependencies.

    Imports inside functions count. The rule ignores imports of the integration's own package, and optional imports:
    those under an `if`, or under a `try` that catches their error.

    Why: the import works only on machines that have the package. On others the model cannot be loaded. An integration
    that imports the authors' code also passes every comparison with it.

    Fine when: the dependency is declared somewhere else than in a pyproject.toml above the file.
    """

    id = "DFU135"
    name = "imports-are-declared"
    target = "diffusers"
    BAD = (
        changed(TRANSFORMER, (_HEAD, f"{_HEAD}from lumen_authors.attention import attend\n")),
        changed(TRANSFORMER, (_FORWARD, f"{_FORWARD}        from lumen_authors.attention import attend\n")),
    )
    GOOD = (
        {TRANSFORMER: LUMEN[TRANSFORMER]},
        changed(
            TRANSFORMER,
            (_HEAD, f"{_HEAD}try:\n    import lumen_kernels\nexcept ImportError:\n    lumen_kernels = None\n"),
        ),
    )

    def check(self, classes: list[ClassRef]) -> Findings:
        for source in dict.fromkeys(cls.source for cls in classes):
            known = {
                *importable(),
                _OF_PIPELINES,
                *_declared(source.path),
                source.module.partition(".")[0],
                *_packages(source.path),
            }
            for node, name in _plain_imports(source.tree):
                if name not in known:
                    yield at(source, node, f"'{name}' is not a requirement of diffusers or of this project")


def _plain_imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield every import that is not optional, with the package that it is of."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node, node.module.partition(".")[0]
        elif isinstance(node, ast.Import):
            yield from ((node, alias.name.partition(".")[0]) for alias in node.names)
        elif not isinstance(node, ast.Try | ast.If):
            yield from _plain_imports(node)


def _packages(file: Path) -> set[str]:
    """Return the packages that a file is in."""
    return {folder.name for folder in file.parents if (folder / "__init__.py").is_file()}


def _declared(file: Path) -> frozenset[str]:
    project = next((folder / _PROJECT for folder in file.parents if (folder / _PROJECT).is_file()), None)
    return _dependencies(project) if project is not None else frozenset()


@cache
def _dependencies(project: Path) -> frozenset[str]:
    with suppress(OSError, ValueError):
        said = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("dependencies", [])
        found = (match[0] for one in said if isinstance(one, str) and (match := _NAME.match(one)))
        return frozenset(name.lower().replace("-", "_") for name in found)
    return frozenset()
