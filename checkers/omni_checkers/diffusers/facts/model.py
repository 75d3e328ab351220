"""Facts about one integration: each function is a fact, named as rules request it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omni_checkers.diffusers.facts.sources import home_of, library_of, own_files
from omni_checkers.engine.facts import Facts, fact, facts_in, given
from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_all
from omni_kit.upstream.kinds import Kind


def model_facts(path: Path) -> tuple[Facts, list[File]]:
    """Return the facts about the integration at `path`, and its files."""
    path = home_of(path)
    files = {file: read_file(file) for file in own_files(path)}
    return Facts({"path": path, "files": files, "kinds": frozenset()}, facts_in(__package__)), list(files.values())


@given
def path() -> Path:
    """Return the directory of the integration."""
    raise NotImplementedError


@given
def files() -> dict[Path, File]:
    """Return the Python files of the integration."""
    raise NotImplementedError


@given
def kinds() -> frozenset[Kind]:
    """Empty: the rules ask for classes, not for kinds."""
    raise NotImplementedError


@given
def constructed() -> Mapping[str, Any]:
    """Return the results of `--level import` for each model."""
    raise NotImplementedError


@given
def shared() -> Mapping[str, str]:
    """The plan for sharing out tokens that runs of `--level toy` found, or the reason why there is none."""
    raise NotImplementedError


@fact
def library(path: Path) -> Library:
    """Return the packages that the integration belongs to and imports from."""
    return library_of(path)


@fact
def sources(library: Library, files: dict[Path, File]) -> list[SourceFile]:
    """Return the integration's own files, as far as they can be read."""
    return read_all(library, [path for path, file in files.items() if file.tree is not None])


@fact
def classes(sources: list[SourceFile]) -> list[ClassRef]:
    """Return the classes that the integration defines."""
    return [ClassRef(source, node) for source in sources for node in source.classes.values()]


@fact
def models(classes: list[ClassRef]) -> list[ClassRef]:
    """Return its models: classes that are saved and loaded."""
    return _some([cls for cls in classes if cls.derives("ModelMixin")], "model")


@fact
def attentions(classes: list[ClassRef]) -> list[ClassRef]:
    """Return its attention modules of the kind that leaves the computation to processors."""
    return _some([cls for cls in classes if cls.derives("AttentionModuleMixin")], "attention module")


@fact
def pipelines(classes: list[ClassRef]) -> list[ClassRef]:
    """Return its standard pipelines."""
    return _some([cls for cls in classes if cls.derives("DiffusionPipeline")], "pipeline")


@fact
def blocks(classes: list[ClassRef]) -> list[ClassRef]:
    """Return its blocks of modular pipelines."""
    return _some([cls for cls in classes if cls.derives("ModularPipelineBlocks")], "block")


@fact
def modulars(classes: list[ClassRef]) -> list[ClassRef]:
    """Return its modular pipelines."""
    own = [cls for cls in classes if cls.derives("ModularPipeline") and cls.node.name != "ModularPipeline"]
    return _some(own, "modular pipeline")


def _some(found: list[ClassRef], what: str) -> list[ClassRef]:
    if not found:
        raise NotApplicable(f"no {what} is defined here")
    return found
