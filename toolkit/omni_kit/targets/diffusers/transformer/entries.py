"""Entries of a new model and its pipeline in a checkout of diffusers."""

from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.targets.diffusers.checkout import PACKAGE, TOCTREE
from omni_kit.targets.diffusers.porting.model_name import page_of
from omni_kit.targets.protocol import DefinitionEntry, Edit, ImportEntry, ItemEntry, KeyedEntry, PageEntry

_STRUCTURE = "_import_structure"
_DUMMY = """class {name}(metaclass=DummyObject):
    _backends = {backends}

    def __init__(self, *args, **kwargs):
        requires_backends(self, {backends})

    @classmethod
    def from_config(cls, *args, **kwargs):
        requires_backends(cls, {backends})

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        requires_backends(cls, {backends})
"""


@dataclass(frozen=True)
class Entered:
    """Values to enter.

    Attributes:
        name: the integration's.
        model, pipeline: the classes.
        convert: the function that converts a checkpoint, with its text.
        pages: the documentation lies there, too.
    """

    name: str
    model: str
    pipeline: str
    convert: str
    conversion: str
    pages: bool


def stand_in(name: str, backends: str) -> str:
    """Return the dummy that replaces a class where its dependencies are not installed."""
    return _DUMMY.format(name=name, backends=backends)


def entries(one: Entered) -> Iterator[Edit]:
    """Yield the edits: lazy imports in both of their forms at every level, stand-ins, the single-file loader, and
    pages.
    """
    yield from _imports(one)
    yield from _stand_ins(one)
    yield from _single_file(one)
    if one.pages:
        page = f"api/models/{page_of(one.name, one.model, one.pipeline.removesuffix('Pipeline'))}"
        yield PageEntry(TOCTREE, page, one.model, "api/models/")
        yield PageEntry(TOCTREE, f"api/pipelines/{one.name}", one.pipeline.removesuffix("Pipeline"), "api/pipelines/")


def scheduler_entries(one: Entered, scheduler: str) -> Iterator[Edit]:
    """Yield the edits for a scheduler of its own: lazy imports, a stand-in, and its page."""
    own, top = f"{PACKAGE}/schedulers/__init__.py", f"{PACKAGE}/__init__.py"
    yield KeyedEntry(own, _STRUCTURE, f"scheduling_{one.name}", scheduler)
    yield ImportEntry(own, f".scheduling_{one.name}", scheduler, made=True)
    yield KeyedEntry(top, _STRUCTURE, "schedulers", scheduler)
    yield ImportEntry(top, ".schedulers", scheduler)
    yield DefinitionEntry(f"{PACKAGE}/utils/dummy_pt_objects.py", scheduler, stand_in(scheduler, '["torch"]'))
    if one.pages:
        yield PageEntry(TOCTREE, f"api/schedulers/{one.name}", scheduler, "api/schedulers/")


def found_by_name(one: Entered) -> Iterator[Edit]:
    """Yield the edits for the table of pipelines that draw from texts: by it the modular one of a repository is
    found.
    """
    auto = f"{PACKAGE}/pipelines/auto_pipeline.py"
    yield ImportEntry(auto, f".{one.name}", one.pipeline, made=True)
    yield ItemEntry(auto, "AUTO_TEXT2IMAGE_PIPELINES_MAPPING", one.name, one.pipeline)


def _imports(one: Entered) -> Iterator[Edit]:
    module = f"transformer_{one.name}"
    yield ImportEntry(f"{PACKAGE}/models/transformers/__init__.py", f".{module}", one.model, made=True)
    models, pipelines = f"{PACKAGE}/models/__init__.py", f"{PACKAGE}/pipelines/__init__.py"
    yield KeyedEntry(models, _STRUCTURE, f"transformers.{module}", one.model)
    yield ImportEntry(models, ".transformers", one.model)
    yield KeyedEntry(pipelines, _STRUCTURE, one.name, one.pipeline)
    yield ImportEntry(pipelines, f".{one.name}", one.pipeline, made=True)
    top = f"{PACKAGE}/__init__.py"
    for folder, name in (("models", one.model), ("pipelines", one.pipeline)):
        yield KeyedEntry(top, _STRUCTURE, folder, name)
        yield ImportEntry(top, f".{folder}", name)


def _stand_ins(one: Entered) -> Iterator[Edit]:
    for file, name, backends in (
        ("dummy_pt_objects", one.model, '["torch"]'),
        ("dummy_torch_and_transformers_objects", one.pipeline, '["torch", "transformers"]'),
    ):
        yield DefinitionEntry(f"{PACKAGE}/utils/{file}.py", name, stand_in(name, backends))


def _single_file(one: Entered) -> Iterator[Edit]:
    loaders = f"{PACKAGE}/loaders"
    yield DefinitionEntry(f"{loaders}/single_file_utils.py", one.convert, one.conversion)
    yield ImportEntry(f"{loaders}/single_file_model.py", ".single_file_utils", one.convert)
    value = f'{{\n    "checkpoint_mapping_fn": {one.convert},\n    "default_subfolder": "transformer",\n}}'
    yield ItemEntry(f"{loaders}/single_file_model.py", "SINGLE_FILE_LOADABLE_CLASSES", one.model, value)
