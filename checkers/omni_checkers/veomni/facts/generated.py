"""The generated modeling files of a directory, and the patch configs that make them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import File, within
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Call, Evaluator, Oracle, Program, Raised
from omni_checkers.veomni.facts.upstream import config_of
from omni_kit.errors import BadInput
from omni_kit.patchgen.header import written_by_omni_kit
from omni_kit.patchgen.importing import CONFIG_SUFFIX
from omni_kit.patchgen.loader import read_config
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.pysource.equality import same_code, same_statement
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.transformers.configs import ConfigClass

_SOURCE = re.compile(r"^#\s+Source:\s*([\w.]+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class PatchConfigFile:
    """A patch config: what it patches, and the file that it makes."""

    file: File
    line: int
    source_module: str | None
    target_file: str | None

    @property
    def output(self) -> Path | None:
        """Path of the generated file; None if the config does not name it."""
        return self.file.path.parent / "generated" / self.target_file if self.target_file else None


@dataclass(frozen=True)
class Generated:
    """A generated modeling file.

    Attributes:
        source_module: the upstream module that it was made from; None if neither header nor config says.
        ours: omni-kit's generator wrote it, not VeOmni's.
    """

    file: File
    source: SourceFile
    source_module: str | None
    config: PatchConfigFile | None
    ours: bool

    @cached_property
    def theirs(self) -> SourceFile | None:
        """Upstream's file; None if it is not known, or not installed."""
        file = self.source.library.module_file(self.source_module) if self.source_module else None
        return read_source(self.source.library, file) if file is not None else None

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes of the file, by name."""
        return self.source.classes

    @cached_property
    def patched(self) -> list[tuple[str, ast.FunctionDef]]:
        """(class, method), or ("", function), of everything that differs from upstream's code of the same name."""
        return list(_patched(self))

    def config_class(self, class_name: str) -> ConfigClass | None:
        """Return the config class of a model class, see `config_of`."""
        return config_of(self.source, class_name)


def exported(item: Generated) -> dict[str, int]:
    """Return the names in a literal `__all__`, with their lines."""
    node = item.source.constants.get("__all__")
    elements = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    return {e.value: e.lineno for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)}


@fact
def patch_configs(program: Program, files: dict[Path, File]) -> list[PatchConfigFile]:
    """Return every patch config of the directory, read without running it."""
    found = []
    for path, file in files.items():
        if file.tree is None or "generated" in path.relative_to(program.root).parts:
            continue
        own = list(_configs(program, file)) if "PatchConfig" in file.text else []
        found += own or ([_layer(file)] if path.stem.endswith(CONFIG_SUFFIX) else [])
    return found


@fact
def generated(
    program: Program, files: dict[Path, File], patch_configs: list[PatchConfigFile], transformers: Library
) -> list[Generated]:
    """Return every generated modeling file."""
    makers = {config.output: config for config in patch_configs if config.output}
    found = []
    for path, file in files.items():
        match = _SOURCE.search(file.text[:4000])
        config = makers.get(path)
        if (
            file.tree is None
            or path.name == "__init__.py"
            or not (config or (match and path.parent.name == "generated"))
        ):
            continue
        module = ".".join([program.name, *path.relative_to(program.root).with_suffix("").parts])
        source = SourceFile(transformers, module, path, file.text, file.tree)
        said = config.source_module if config and config.source_module else (match.group(1) if match else None)
        found.append(Generated(file, source, said, config, written_by_omni_kit(file.text)))
    if not found:
        raise NotApplicable("the directory has no generated modeling file")
    return found


def _configs(program: Program, file: File) -> Iterator[PatchConfigFile]:
    """Yield the top-level values of a file that are PatchConfig(...)."""
    parts = file.path.relative_to(program.root).with_suffix("").parts
    module = program.module(".".join([program.name, *parts]))
    if module is None or file.tree is None:
        return
    evaluator = Evaluator(program, Oracle([]))
    scope = evaluator.names_of(module)
    for name, statements in program.bindings(module).items():
        first = statements[0]
        if not isinstance(first, (ast.Assign, ast.AnnAssign)) or not isinstance(first.value, ast.Call):
            continue
        try:
            value = scope.names.get(name)
        except Raised:
            continue
        if isinstance(value, Call) and value.calls("PatchConfig"):
            source_module, target = value.argument(0, "source_module"), value.argument(1, "target_file")
            yield PatchConfigFile(
                file,
                first.lineno,
                source_module if isinstance(source_module, str) else None,
                target if isinstance(target, str) else None,
            )


def _layer(file: File) -> PatchConfigFile:
    """Return a config that makes none of its own: it continues with another file's, or cannot be read."""
    try:
        config = read_config(file.path, Libraries(roots=(package_of(file.path)[0],))).config
    except BadInput:
        return PatchConfigFile(file, 1, None, None)
    return PatchConfigFile(file, 1, config.source_module, config.target_file)


def _patched(item: Generated) -> Iterator[tuple[str, ast.FunctionDef]]:
    theirs = item.theirs
    for name, node in item.classes.items():
        upstream = theirs.classes.get(name) if theirs is not None else None
        own = {f.name: f for f in (upstream.body if upstream else ()) if isinstance(f, ast.FunctionDef)}
        for function in node.body:
            if isinstance(function, ast.FunctionDef) and not _same(item, function, theirs, own.get(function.name)):
                yield name, function
    for name, function in item.source.functions.items():
        if not _same(item, function, theirs, theirs.functions.get(name) if theirs is not None else None):
            yield "", function


def _same(item: Generated, function: ast.FunctionDef, theirs: SourceFile | None, other: ast.FunctionDef | None) -> bool:
    if theirs is None or other is None:
        return False
    return same_statement(function, item.source.lines, other, theirs.lines)


def upstream_function(item: Generated, owner: str, name: str) -> ast.FunctionDef | None:
    """Return upstream's own method, or function where `owner` is empty, of this name; None if it has none."""
    theirs = item.theirs
    if theirs is None:
        return None
    return theirs.method(owner, name) if owner else theirs.functions.get(name)


def upstream_class_of(item: Generated, name: str) -> ast.ClassDef | None:
    """Return upstream's own class of this name; None if it has none."""
    return item.theirs.classes.get(name) if item.theirs is not None else None


def upstream_strings(item: Generated) -> set[str]:
    """Return every string in upstream's file."""
    nodes = within(item.theirs.tree, ast.Constant) if item.theirs is not None else ()
    return {node.value for node in nodes if isinstance(node.value, str)}


def upstream_own(item: Generated, node: ast.ClassDef) -> bool:
    """Return whether a class of a generated file is upstream's, word for word, docstrings and decorators aside."""
    theirs = upstream_class_of(item, node.name)
    return theirs is not None and same_code(_bare(theirs), _bare(node))


def _bare(node: ast.ClassDef) -> list[ast.stmt]:
    return [item for item in node.body if not isinstance(item, ast.Expr)]


def architectures(generated: list[Generated], key: str | None) -> set[str]:
    """Return the model classes that the generated files export for configs of this model_type."""
    found = set()
    for item in generated:
        for name in exported(item):
            if name in item.classes and "PreTrainedModel" not in name:
                config = item.config_class(name)
                if config is not None and config.model_type == key:
                    found.add(name)
    return found
