"""A modular pipeline in a checkout of diffusers: where it lies, and what it is entered into."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.pysource.source import parse_file
from omni_kit.targets.diffusers.checkout import PACKAGE, TOCTREE, Checkout, checkout_at
from omni_kit.targets.diffusers.transformer.entries import stand_in
from omni_kit.targets.protocol import (
    DefinitionEntry,
    Edit,
    ImportEntry,
    ItemEntry,
    KeyedEntry,
    PageEntry,
    Request,
    Todo,
)
from omni_kit.upstream.diffusers.classes import MODULAR

_STRUCTURE = "_import_structure"
_FILE, _TESTER = "modular_pipeline.py", "ModularPipelineTesterMixin"
_TESTS = "tests/modular_pipelines"
_PAGES = "api/modular_diffusers/"


@dataclass(frozen=True)
class Placed:
    """The places of one modular pipeline.

    Attributes:
        beside: the folder of the integration that it belongs to, which has the record; its own without one.
    """

    request: Request
    prefix: str
    beside: str = ""

    @cached_property
    def checkout(self) -> Checkout:
        """The checkout that it is written into."""
        return checkout_at(self.request.into)

    @cached_property
    def base(self) -> str:
        """Its folder.

        Raises:
            BadInput: there is one of that name, which is not ours.
        """
        base = f"{PACKAGE}/{MODULAR}/{self.request.name}"
        own = self.checkout.root / base
        recorded = self.checkout.root / self.beside if self.beside else own
        if own.is_dir() and not (recorded / ".omni-kit.toml").is_file():
            raise BadInput(f"this checkout has {base} already", "choose another name")
        return base

    @property
    def tests(self) -> str:
        """The folder of its tests."""
        return f"{_TESTS}/{self.request.name}"

    @property
    def page(self) -> str:
        """The file of its page."""
        return f"docs/source/en/{_PAGES}{self.request.name}.md"

    @cached_property
    def tester(self) -> str:
        """The module of the checkout's own tester; empty if its tests do not lie there."""
        for file in files_matching(self.checkout.root / _TESTS, "*.py"):
            if f"class {_TESTER}" in file.read_text(encoding="utf-8"):
                return file.stem
        return ""

    @property
    def names(self) -> tuple[str, str]:
        """Exported names."""
        return f"{self.prefix}Blocks", f"{self.prefix}ModularPipeline"

    def edits(self) -> Iterator[Edit]:
        """Lazy imports in both of their forms, stand-ins, the table of pipelines, and the page."""
        own, top = f"{PACKAGE}/{MODULAR}/__init__.py", f"{PACKAGE}/__init__.py"
        for name in self.names:
            yield KeyedEntry(own, _STRUCTURE, self.request.name, name)
            yield ImportEntry(own, f".{self.request.name}", name, made=True)
            yield KeyedEntry(top, _STRUCTURE, MODULAR, name)
            yield ImportEntry(top, f".{MODULAR}", name)
            text = stand_in(name, '["torch", "transformers"]')
            yield DefinitionEntry(f"{PACKAGE}/utils/dummy_torch_and_transformers_objects.py", name, text)
        table, value = self._table()
        yield ItemEntry(f"{PACKAGE}/{MODULAR}/{_FILE}", table, self.request.name, value)
        if self.checkout.has_pages and self._has_siblings:
            yield PageEntry(TOCTREE, f"{_PAGES}{self.request.name}", f"{self.prefix}ModularPipeline", _PAGES)

    @property
    def _has_siblings(self) -> bool:
        return f"local: {_PAGES}" in (self.checkout.root / TOCTREE).read_text(encoding="utf-8")

    def todo(self) -> tuple[Todo, ...]:
        """Return the steps that no edit can do."""
        listed = self.checkout.has_pages and self._has_siblings
        return () if listed else (Todo(TOCTREE, 1, "add its page to the table of contents"),)

    def _table(self) -> tuple[str, str]:
        """Return the table that says which pipeline runs a model, and an entry as its others are.

        Raises:
            BadInput: this version has none.
        """
        file: Path = self.checkout.library.root / MODULAR / _FILE
        _, tree = parse_file(file)
        for node in tree.body:
            name = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Assign) and isinstance(name, ast.Name) and name.id.endswith("MAPPING"):
                made = [one.func.id for one in ast.walk(node.value) if isinstance(one, ast.Call) and len(one.args) == 1
                        and isinstance(one.func, ast.Name) and isinstance(one.args[0], ast.Constant)]  # fmt: skip
                shown = f'"{self.names[1]}"'
                return name.id, f"{max(made, key=made.count)}({shown})" if made else shown
        raise BadInput(f"{file} has no modular-pipeline mapping", "take --style plugin")
