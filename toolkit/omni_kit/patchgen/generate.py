"""From a loaded config to the raw generated text: locates with ast, splices by exact positions, loses nothing."""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from omni_kit.patchgen.apply import Applied, Patcher
from omni_kit.patchgen.diagnostics import Diagnostic, error
from omni_kit.patchgen.fragment import Fragment, NoSource, fragment_of
from omni_kit.patchgen.header import banner, header
from omni_kit.patchgen.imports import added_imports, import_edits, insertion_line
from omni_kit.patchgen.loader import LoadedConfig
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.source import Definition, SourceModule
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.spec import Origin
from omni_kit.patchgen.write import compiles


@dataclass
class Generated:
    """The raw text (not yet formatted), what became of each patch, and the helpers that were copied."""

    loaded: LoadedConfig
    source: SourceModule
    version: str
    text: str = ""
    applied: list[Applied] = field(default_factory=list)
    helpers: list[Fragment] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def upstream(self) -> str:
        """The library, its version and the file that was patched."""
        return f"{self.source.name.partition('.')[0]} {self.version} ({self.source.path})"

    @cached_property
    def module(self) -> SourceModule:
        """The text, parsed and indexed; its path is upstream's, which relative look-ups need."""
        return SourceModule(self.source.name, self.source.path, self.text)


def generate(loaded: LoadedConfig, source: SourceModule, libraries: Libraries) -> Generated:
    """Apply all patches of a config to its source module; faults of the config become diagnostics."""
    version = libraries.version_of(source.name.partition(".")[0])
    result = Generated(loaded, source, version)
    config = loaded.config
    patcher = Patcher(loaded, source, libraries)
    result.applied = [patcher.apply(patch) for patch in config.patches]
    result.diagnostics += patcher.diagnostics
    copy = _Copier(result, libraries)
    edits = [*import_edits(source, config.drop_imported_names), *patcher.edits()]
    edits += _exclusions(source, set(config.exclude), result.diagnostics, config.origin)
    edits.append(_behind_imports(source, added_imports(config) + copy.helpers()))
    edits += copy.positioned()
    result.diagnostics += _broken_blocks(loaded)
    records = [a.record for a in result.applied if a.done]
    edits.append(Edit(_top(source), _top(source), header(config, version, records)))
    try:
        result.text = splice(source.text, [edit for edit in edits if edit.text or edit.start < edit.end])
    except ValueError as clash:
        result.diagnostics.append(error("overlapping-patches", f"two patches change the same lines: {clash}"))
    return result


class _Copier:
    """Copies the config's helpers into the module."""

    def __init__(self, result: Generated, libraries: Libraries) -> None:
        self.result, self.libraries = result, libraries

    def helpers(self) -> str:
        blocks = [self._block(helper, self.result.loaded.config.origin) for helper in self.result.loaded.config.helpers]
        if not any(blocks):
            return ""
        return "\n\n" + "\n\n".join([banner("[HELPERS] Module-level helpers injected via config.add_helper"), *blocks])

    def positioned(self) -> list[Edit]:
        source = self.result.source
        by_target: dict[str, list[str]] = {}
        for helper in self.result.loaded.config.positioned_helpers:
            if source.get(helper.target) is None or helper.target in self.result.loaded.config.exclude:
                message = f"add_helper_after({helper.target!r}): the generated module has no such definition"
                self.result.diagnostics.append(error("missing-target", message, helper.origin, [helper.target]))
                continue
            by_target.setdefault(helper.target, []).append(self._block(helper.helper, helper.origin))
        edits = []
        for target, blocks in by_target.items():
            definition = source.get(target)
            assert definition is not None
            at = source.line_start(definition.last_line + 1)
            edits.append(Edit(at, at, "\n\n" + "\n\n".join([banner(f"[HELPERS AFTER] {target}"), *blocks]) + "\n"))
        return edits

    def _block(self, helper: Any, origin: Origin | None) -> str:
        loaded = self.result.loaded
        try:
            fragment = fragment_of(helper, loaded.registrations, self.libraries)
        except NoSource as why:
            self.result.diagnostics.append(error("no-source", f"a helper cannot be copied: {why}", origin))
            return ""
        self.result.helpers.append(fragment)
        return fragment.block()


def _exclusions(
    source: SourceModule, names: set[str], diagnostics: list[Diagnostic], origin: Origin | None
) -> list[Edit]:
    edits, found = [], set()
    for node in source.tree.body:
        for name in _defines(node) & names:
            found.add(name)
            edits.append(_removal(source, node))
        if names and _is_literal_all(node):
            edits += _all_edits(source, node, names)
    for name in sorted(names - found):
        guarded = [d for d in source.candidates(name) if d.owner is None]
        if guarded:
            edits += [_guarded_removal(source, definition) for definition in guarded]
            continue
        message = f"exclude_from_output({name!r}): {source.name} defines no such top-level name"
        diagnostics.append(error("missing-target", message, origin, [name]))
    return edits


def _defines(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {node.name}
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return {node.targets[0].id} - {"__all__"}
    return set()


def _removal(source: SourceModule, node: ast.stmt) -> Edit:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    while first > 1 and source.lines[first - 2].startswith("#"):
        first -= 1
    return Edit(source.line_start(first), source.line_start((node.end_lineno or first) + 1), "")


def _guarded_removal(source: SourceModule, definition: Definition) -> Edit:
    """A definition under an if or try goes, its branch stays."""
    start, end = source.line_start(definition.first_line), source.line_start(definition.last_line + 1)
    return Edit(start, end, " " * definition.node.col_offset + "pass\n")


def _is_literal_all(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple()):
            return True
    return False


def _all_edits(source: SourceModule, node: Any, names: set[str]) -> list[Edit]:
    """Take the excluded names out of `__all__`, each with the comma behind it."""
    edits = []
    elements = node.value.elts
    for index, element in enumerate(elements):
        if isinstance(element, ast.Constant) and element.value in names:
            start, end = source.start_of(element), source.end_of(element)
            rest = source.text[end : source.start_of(elements[index + 1]) if index + 1 < len(elements) else None]
            comma = len(rest) - len(rest.lstrip()) if rest.lstrip().startswith(",") else None
            edits.append(Edit(start, end + comma + 1 if comma is not None else end, ""))
    return edits


def _broken_blocks(loaded: LoadedConfig) -> Iterator[Diagnostic]:
    """Post-import blocks that are no Python, each with its number and line."""
    origins = {block: origin for one in loaded.siblings.values() for block, origin in one.block_origins.items()}
    for number, block in enumerate(loaded.config.post_import_blocks, 1):
        text = textwrap.dedent(block)
        if (wrong := compiles(text, "block")) is not None:
            line = (text.splitlines() or [""])[min(wrong.lineno or 1, len(text.splitlines())) - 1].strip()
            message = f"line {wrong.lineno} of post-import block {number} is not Python: {wrong.msg}: {line}"
            yield error("invalid-python", message, origins.get(block, loaded.config.origin))


def _behind_imports(source: SourceModule, text: str) -> Edit:
    at = source.line_start(insertion_line(source) + 1)
    return Edit(at, at, f"{text}\n" if text else "")


def _top(source: SourceModule) -> int:
    """Return the position of the header: the top, but after a #! or coding line, which only works there."""
    line = 1
    while line <= 2 and source.lines[line - 1].startswith("#") and _is_magic(source.lines[line - 1]):
        line += 1
    return source.line_start(line)


def _is_magic(line: str) -> bool:
    return line.startswith("#!") or ("coding:" in line or "coding=" in line)
