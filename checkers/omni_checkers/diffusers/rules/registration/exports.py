"""Rules about a package's exports: DFU301, DFU302."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from omni_checkers.diffusers.examples import CONFIG_MIXIN
from omni_checkers.diffusers.facts.exports import Exports, exports_of
from omni_checkers.diffusers.facts.sources import PACKAGE
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source, read_text
from omni_kit.upstream.diffusers.package import package_root

_HEAD = """\
from typing import TYPE_CHECKING

from ...utils import DIFFUSERS_SLOW_IMPORT, OptionalDependencyNotAvailable, _LazyModule
from ...utils import get_objects_from_module, is_torch_available, is_transformers_available

_dummy_objects = {}
_import_structure = {"pipeline_output": ["LumenPipelineOutput"]}

try:
    if not (is_transformers_available() and is_torch_available()):
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from ...utils import dummy_torch_and_transformers_objects

    _dummy_objects.update(get_objects_from_module(dummy_torch_and_transformers_objects))
else:
    _import_structure["pipeline_lumen"] = ["LumenPipeline"]
if TYPE_CHECKING or DIFFUSERS_SLOW_IMPORT:
    from .pipeline_output import LumenPipelineOutput
"""
_TYPED = "    from .pipeline_lumen import LumenPipeline\n"
_PLACE, _TOP = "src/diffusers/pipelines/lumen", "src/diffusers/__init__.py"
_PARTS = {
    f"{_PLACE}/pipeline_lumen.py": "class LumenPipeline:\n    pass\n",
    f"{_PLACE}/pipeline_output.py": "class LumenPipelineOutput:\n    pass\n",
}
_PACKAGE = """\
_import_structure = {"models": ["LumenTransformer2DModel"]}

try:
    if not is_torch_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from .utils import dummy_pt_objects
else:
    _import_structure["pipelines"] = ["LumenPipeline"]
if TYPE_CHECKING:
    from .models import LumenTransformer2DModel
    from .pipelines import LumenPipeline
"""
_DUMMIES = "src/diffusers/utils/dummy_pt_objects.py"
_LIGHT = "class LumenPipeline(metaclass=DummyObject):\n    pass\n"


class ExportsAreInBothLists(Rule):
    """List every export in `_import_structure` and in the TYPE_CHECKING imports, and define it.

    Why: with `_import_structure` alone, editors and DIFFUSERS_SLOW_IMPORT do not see the class. With the import alone,
    `from diffusers import X` fails. A name that its module does not define fails only on first use.

    Fine when: the name exists for old callers and raises a deprecation warning.
    """

    id = "DFU301"
    name = "exports-are-in-both-lists"
    target = "diffusers"
    obligations = ("DIF-18", "DIF-19")
    BAD = (
        {**CONFIG_MIXIN, **_PARTS, _TOP: "", f"{_PLACE}/__init__.py": _HEAD},
        {
            **CONFIG_MIXIN,
            **_PARTS,
            _TOP: "",
            f"{_PLACE}/__init__.py": _HEAD + _TYPED.replace("Pipeline\n", "Pipelines\n"),
        },
    )
    GOOD = ({**CONFIG_MIXIN, **_PARTS, _TOP: "", f"{_PLACE}/__init__.py": _HEAD + _TYPED},)

    def check(self, sources: list[SourceFile]) -> Findings:
        for source in sources:
            exports = exports_of(source) if source.path.name == "__init__.py" else None
            if exports is not None:
                yield from _one_sided(source, exports)
                yield from _undefined(source, exports)


def _one_sided(source: SourceFile, exports: Exports) -> Iterator[Finding]:
    lazy, typed = ({name for _, name in found} for found in (exports.lazy, exports.typed))
    typed |= source.imports.keys() - {"*"}  # what the file itself needs is there in any case
    for (_, name), node in exports.lazy.items():
        if name not in typed and "*" not in typed and not name.startswith("_"):
            yield at(source, node, f"'{name}' is in _import_structure, but not imported under TYPE_CHECKING")
    for (module, name), statement in exports.typed.items():
        if name not in lazy and name != "*" and not name.startswith("_"):
            yield at(source, statement, f"'{name}' of {module} is imported for type checkers only")


def _undefined(source: SourceFile, exports: Exports) -> Iterator[Finding]:
    """Yield names of files of this folder that do not define them; packages say themselves what they export."""
    for (module, name), node in [*exports.lazy.items(), *exports.typed.items()]:
        file = source.path.parent.joinpath(*module.split(".")).with_suffix(".py")
        if file.is_file() and name != "*" and not _defines(source.library, file, name):
            yield at(source, node, f"{file.name} does not define '{name}'")


def _defines(library: Library, file: Path, name: str) -> bool:
    text = read_text(file)
    if f"class {name}" in text or f"def {name}" in text or f"\n{name} = " in text:
        return True
    try:
        found = read_source(library, file)
    except BadInput:
        return True  # that it is no Python is said elsewhere
    return name in {*found.classes, *found.functions, *found.constants, *found.imports}


class DummiesStandIn(Rule):
    """Add a dummy object for each class that diffusers exports conditionally.

    Why: without torch, `from diffusers import X` raises an ImportError that does not name the missing requirement.
    `make fix-copies` writes the dummies.

    Fine when: the name is not a class and nobody imports it directly.
    """

    id = "DFU302"
    name = "dummies-stand-in"
    target = "diffusers"
    obligations = ("DIF-19",)
    BAD = ({**CONFIG_MIXIN, _TOP: _PACKAGE, _DUMMIES: _LIGHT.replace("Lumen", "Flux")},)
    GOOD = ({**CONFIG_MIXIN, _TOP: _PACKAGE, _DUMMIES: _LIGHT},)

    def check(self, path: Path, sources: list[SourceFile]) -> Findings:
        root = package_root(path)
        for source in sources:
            if root is not None and source.path == root / "__init__.py":
                exports = exports_of(source)
                yield from _missing(source, exports.dummies if exports is not None else [])


def _missing(source: SourceFile, dummies: list[tuple[str, dict[str, ast.expr]]]) -> Iterator[Finding]:
    for module, names in dummies:
        file = source.path.parent / "utils" / f"{module}.py"
        known: Mapping[str, object] = {}
        if file.is_file():
            found = read_source(Library(PACKAGE, source.path.parent), file)
            known = {**found.classes, **found.functions}
        for name, node in names.items():
            if name not in known:
                yield at(source, node, f"{module} has no dummy for '{name}': run make fix-copies")
