"""A config and its siblings, read."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.patchgen.importing import CONFIG_SUFFIX, Session
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.reader.frame import Frame
from omni_kit.patchgen.reader.values import Scope, Unreadable, Written
from omni_kit.patchgen.source import read_module
from omni_kit.patchgen.spec import ImportSpec, Origin, Patch, PatchConfig, PositionedHelper
from omni_kit.patchgen.standins import StandIn

_STEPS = 200_000


class Reader(Session):
    """Reads configs; nothing of theirs is run."""

    def __init__(self, libraries: Libraries) -> None:
        super().__init__(libraries)
        self.position: Origin | None = None
        self.depth = 0
        self._left = _STEPS

    def spend(self) -> None:
        """Takes one step off the budget.

        Raises:
            Unreadable: it is spent.
        """
        self._left -= 1
        if self._left < 0:
            raise Unreadable("goes on for too long")

    def standard(self, name: str, names: tuple[str, ...]) -> Any:
        """A stand-in: the standard library can do anything."""
        return StandIn(name) if names else StandIn(name.partition(".")[0])

    def fill(self, module: ModuleType, path: Path) -> None:
        """Goes through the statements of a file.

        Raises:
            Unreadable: the effect of one of them cannot be told, or it is no Python.
        """
        before = self.position
        try:
            frame = Frame(self, path, module.__name__, Scope(vars(module)), at_module=True)
            frame.run(read_module(path.stem, path).tree.body)
        except BadInput as error:
            raise Unreadable(f"is no Python: {error.message}") from error
        except RecursionError as error:
            raise Unreadable("is nested too deeply") from error
        finally:
            self.position = before

    def run(self, path: Path) -> ModuleType:
        """The module of a file; of one that has nothing to do with configs, the definitions are enough.

        Raises:
            Unreadable: the effect of a config cannot be told.
        """
        try:
            return super().run(path)
        except Unreadable:
            if self._may_register(path):
                raise
        module = self.modules[path]
        frame = Frame(self, path, module.__name__, Scope(vars(module)))
        for node in read_module(path.stem, path).tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                vars(module).setdefault(node.name, Written(node, path, module.__name__, frame.scope))
        return module

    def _may_register(self, path: Path) -> bool:
        """Whether a file could add to a config: it is one, it imports one or the DSL, or it cannot be parsed."""
        if path.stem.endswith(CONFIG_SUFFIX):
            return True
        try:
            text = read_module(path.stem, path).text
        except BadInput:
            return True
        return "patchgen" in text or CONFIG_SUFFIX in text


def settled(config: PatchConfig) -> PatchConfig:
    """A config that was read, whose texts and names are all known.

    Raises:
        Unreadable: one of them comes from elsewhere; the message says which.
    """
    for value, what, origin in _said(config):
        if not isinstance(value, (str, bool, type(None))):
            unreadable = Unreadable(f"takes {what} from what is not known")
            unreadable.origin = origin
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
