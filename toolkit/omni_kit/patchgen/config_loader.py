"""A config and its siblings, read: nothing of theirs is run."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.patchgen.dsl import AT_MODULE, ConfigValues
from omni_kit.patchgen.importing import CONFIG_SUFFIX, Session
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.source import read_module
from omni_kit.patchgen.spec import ImportSpec, Origin, Patch, PatchConfig, PositionedHelper
from omni_kit.patchgen.standins import StandIn
from omni_kit.pysource.eval import Frame, Function, Scope, Unsupported


class Reader(Session):
    """Reads configs."""

    def __init__(self, libraries: Libraries) -> None:
        super().__init__(libraries)
        self._values = ConfigValues(self)

    def standard(self, name: str, names: tuple[str, ...]) -> Any:
        """Return a stand-in: the standard library can do anything."""
        return StandIn(name) if names else StandIn(name.partition(".")[0])

    def fill(self, module: ModuleType, path: Path) -> None:
        """Goes through the statements of a file.

        Raises:
            Unsupported: the file is not valid Python, or the effect of a statement cannot be determined.
        """
        before = self._values.position
        try:
            frame = Frame(self._values, path, module.__name__, Scope(vars(module)), AT_MODULE)
            frame.run(read_module(path.stem, path).tree.body)
        except BadInput as error:
            raise Unsupported(f"is not valid Python: {error.message}") from error
        except RecursionError as error:
            raise Unsupported("is nested too deeply") from error
        finally:
            self._values.position = before

    def run(self, path: Path) -> ModuleType:
        """Return the module of a file; of one that has nothing to do with configs, the definitions are enough.

        Raises:
            Unsupported: the effect of a config cannot be determined.
        """
        try:
            return super().run(path)
        except Unsupported:
            if _may_register(path):
                raise
        module = self.modules[path]
        for node in read_module(path.stem, path).tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                function = Function(node, path, module.__name__, Scope(vars(module)))
                vars(module).setdefault(node.name, function)
        return module


def _may_register(path: Path) -> bool:
    """Return whether a file could add to a config: it is one, it imports one or the DSL, or it cannot be parsed."""
    if path.stem.endswith(CONFIG_SUFFIX):
        return True
    try:
        text = read_module(path.stem, path).text
    except BadInput:
        return True
    return "patchgen" in text or CONFIG_SUFFIX in text


def settled(config: PatchConfig) -> PatchConfig:
    """Return a config that was read, whose texts and names are all known.

    Raises:
        Unsupported: one of them comes from elsewhere; the message says which.
    """
    for value, what, origin in _said(config):
        if not isinstance(value, (str, bool, type(None))):
            unreadable = Unsupported(f"takes {what} from an unknown value")
            if origin is not None:
                unreadable.path, unreadable.line = Path(origin.path), origin.line
            raise unreadable
    return config


def _said(config: PatchConfig) -> Iterator[tuple[Any, str, Origin | None]]:
    """(value, what it is, line) of everything in a config that has to be known."""
    for name in ("source_module", "target_file", "description", "transformers_version", "strict", "optional"):
        yield getattr(config, name), name, config.origin
    for text in (*config.post_import_blocks, *config.exclude, *config.drop_imported_names):
        yield text, "a post-import block or a name to leave out", config.origin
    for patch in (one for one in config.patches if isinstance(one, Patch)):
        mapped = patch.name_map if isinstance(patch.name_map, dict) else {"": patch.name_map}
        for value in (patch.target, patch.description, patch.replacement_source, *mapped, *mapped.values()):
            yield value, f"the patch of {patch.target}", patch.origin
    for added in (one for one in config.additional_imports if isinstance(one, ImportSpec)):
        for value in (added.module, added.alias, *(added.names or ())):
            yield value, "an import", added.origin
    for helper in (one for one in config.positioned_helpers if isinstance(one, PositionedHelper)):
        yield helper.target, "a helper's place", helper.origin
