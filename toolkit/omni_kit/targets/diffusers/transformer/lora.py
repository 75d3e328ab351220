"""The mixin by which a pipeline in the library's own tree loads LoRA: made as the library makes its own, by copies."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.targets.diffusers.checkout import PACKAGE
from omni_kit.targets.protocol import DefinitionEntry, Edit, ImportEntry, ItemEntry, KeyedEntry

_HOME, _ADAPTERS = "loaders/lora_pipeline.py", "loaders/peft.py"
_SCALES = "_SET_ADAPTER_SCALE_FN_MAPPING"
_COPIED = re.compile(r"#\s*Copied from \S+( with (?P<model>\w+)->\w+)?")
_LOADED = "_lora_loadable_modules"


@dataclass(frozen=True)
class LoraMixin:
    """A mixin to be added.

    Attributes:
        text: its definition.
        model: the transformer that it is for.
        scaled: the library has a table of what scales a model's adapters.
    """

    name: str
    text: str
    model: str
    scaled: bool

    def edits(self) -> Iterator[Edit]:
        """Yield its definition, both forms of lazy imports, and the model among those whose adapters are scaled."""
        loaders = f"{PACKAGE}/loaders/__init__.py"
        yield DefinitionEntry(f"{PACKAGE}/{_HOME}", self.name, self.text)
        yield KeyedEntry(loaders, "_import_structure", "lora_pipeline", self.name)
        yield ImportEntry(loaders, ".lora_pipeline", self.name)
        if self.scaled:
            yield ItemEntry(f"{PACKAGE}/{_ADAPTERS}", _SCALES, self.model, "lambda model_cls, weights: weights")


def lora_mixin(library: Library, prefix: str, model: str) -> LoraMixin | None:
    """Return the mixin for a new transformer: one of the library's that is copied in all its parts, for another model.

    None if the library has none that does no more than the others do.
    """
    home = library.root / _HOME
    if not home.is_file():
        return None
    source = read_source(library, home)
    adapters = library.root / _ADAPTERS
    scaled = adapters.is_file() and _SCALES in adapters.read_text(encoding="utf-8")
    for node in source.classes.values():
        if (other := _copied(source, node)) is not None and _loads_a_transformer(node):
            text = "\n".join(source.lines[node.lineno - 1 : node.end_lineno])
            lead = node.name.removesuffix("LoraLoaderMixin")
            names = {other: model, node.name: f"{prefix}LoraLoaderMixin", f"{lead}Pipeline": f"{prefix}Pipeline"}
            # only a text that tells of one pipeline alone is that of another one
            if not re.search(rf"\b{lead}(?!LoraLoaderMixin\b|Pipeline\b)", text.replace(other, "")):
                for old, new in names.items():
                    text = re.sub(rf"\b{old}\b", new, text)
                return LoraMixin(names[node.name], text, model, scaled)
    return None


def _copied(source: SourceFile, node: ast.ClassDef) -> str | None:
    """Return the model for which all methods of a class are copied; None if one is its own."""
    model = None
    for one in node.body:
        if not isinstance(one, ast.FunctionDef):
            continue
        first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
        above = "\n".join(source.lines[first - 2 : one.lineno])
        found = _COPIED.search(above)
        if found is None:
            return None
        model = model or (found["model"] and re.search(rf"{found['model']}->(\w+)", above)[1])  # type: ignore[index]
    return model or None


def _loads_a_transformer(node: ast.ClassDef) -> bool:
    assigned = (one for one in node.body if isinstance(one, ast.Assign))
    return any(
        getattr(one.targets[0], "id", "") == _LOADED and ast.unparse(one.value) == "['transformer']" for one in assigned
    )
