"""Imports: names that are not where they are imported from, and names that two imports bind."""

import ast
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, info, warning
from omni_kit.patchgen.importing import DSL
from omni_kit.patchgen.imports import absolute, bound_by, import_line
from omni_kit.patchgen.loader import LoadedConfig
from omni_kit.patchgen.locate import Libraries, is_installed, package_of
from omni_kit.patchgen.source import SourceModule, read_module
from omni_kit.patchgen.spec import Origin
from omni_kit.pysource.source import read_text

_Binding = dict[str, str]


def missing(facts: Facts) -> Iterator[Diagnostic]:
    """Yield an added import names a module or a name that is not there: the generated file fails on import."""
    added = [(import_line(spec), spec.origin) for spec in facts.config.additional_imports]
    for text, origin in [*added, *((block, facts.config.origin) for block in facts.config.post_import_blocks)]:
        for node in _top_imports(text):
            yield from _absent(node, facts.libraries, "missing-import", origin)
    for applied in facts.applied:
        if applied.patch.replacement_source:
            module, _, name = applied.patch.replacement_source.rpartition(".")
            node = ast.ImportFrom(module, [ast.alias(name)], 0)
            yield from _absent(node, facts.libraries, "missing-import", applied.patch.origin)


def config_imports(facts: Facts) -> Iterator[Diagnostic]:
    """Report missing modules that the config itself imports: loading it imports nothing, so nobody would notice."""
    yield from absent_imports(facts.made.loaded, facts.libraries, facts.source)


def absent_imports(loaded: LoadedConfig, libraries: Libraries, source: SourceModule) -> Iterator[Diagnostic]:
    """Yield an error for each module or name that a config imports and that is not installed.

    Args:
        source: upstream's module; where one of its own imports is missing, no generated file runs.
    """
    path = loaded.path
    libraries = Libraries(libraries.unpacked, (package_of(path)[0], *libraries.roots))
    expected = loaded.frameworks | {module.split(".")[0] for module in _upstream_bindings(source).values()}
    for node in read_module(path.stem, path).tree.body:
        origin = Origin(str(path), getattr(node, "lineno", 0))
        for top in dict.fromkeys(module.split(".")[0] for module in _modules(node)):
            if not (
                libraries.has(top) or is_installed(top) or top in expected or (path.parent / f"{top}.py").is_file()
            ):
                message = f"the config imports {top}, which is not installed: fix the name, or install it"
                yield error("config-import", message, origin, [top])
            elif top in _UPSTREAM and isinstance(node, ast.ImportFrom):
                yield from _absent(node, libraries, "config-import", origin)


def collisions(facts: Facts) -> Iterator[Diagnostic]:
    """Yield one name from two places: the later one silently wins."""
    dropped = facts.config.drop_imported_names
    upstream = {n: source for n, source in _upstream_bindings(facts.source).items() if n not in dropped}
    own: _Binding = {}
    for spec in facts.config.additional_imports:
        own.update(_bindings(_top_imports(import_line(spec))))
    for block in facts.config.post_import_blocks:
        own.update(_bindings(_top_imports(block)))
        own.update(dict.fromkeys(_assigned(block), "a post-import block"))
    for name in sorted(set(own) & set(upstream)):
        if own[name] != upstream[name]:
            message = (
                f"{name} comes from {upstream[name]} upstream and from {own[name]} here; drop_import_names({name!r})"
            )
            yield warning("import-collision", message, facts.config.origin, [name])
    for helper in facts.made.helpers:
        mentioned = helper.name in facts.source.text  # scopes take longer, and few helpers have a name of upstream's
        if mentioned and helper.name in facts.upstream_scopes.bound - facts.excluded - dropped:
            message = (
                f"helper {helper.name} and upstream's {helper.name} collide, and one silently replaces the other: "
                "rename it, or leave upstream's out by exclude_from_output or drop_import_names"
            )
            yield error("import-collision", message, Origin(str(helper.path), helper.line), [helper.name])
    unknown = sorted(dropped - set(_upstream_bindings(facts.source)))
    if unknown:
        message = f"drop_import_names: upstream does not import {', '.join(unknown)}"
        yield info("nothing-dropped", message, facts.config.origin, unknown)


def _modules(node: ast.stmt) -> list[str]:
    """Return the modules of an absolute import, without those of the DSL."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
    return [name for name in names if not DSL.fullmatch(name)]


_UPSTREAM = ("transformers", "diffusers")


def _absent(node: ast.stmt, libraries: Libraries, code: str, origin: Origin | None) -> Iterator[Diagnostic]:
    if not isinstance(node, ast.ImportFrom) or node.level:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            if libraries.has(module.split(".")[0]) and not _is_module(module, libraries):
                yield error(code, f"there is no module {module}", origin, [module])
        return
    module = node.module or ""
    if not libraries.has(module.split(".")[0]):
        return
    if not _is_module(module, libraries):
        yield error(code, f"there is no module {module}", origin, [module])
        return
    path = libraries.file_of(module)
    gone = [a.name for a in node.names if a.name != "*" and path and not _may_have(path, a.name)]
    if gone:
        yield error(code, f"{module} has no {', '.join(gone)}", origin, gone)


def _is_module(module: str, libraries: Libraries) -> bool:
    """Return a file, or something that no look at files can deny: a builtin, an extension, a namespace package."""
    import sys

    return (
        module.split(".")[0] in sys.stdlib_module_names
        or libraries.file_of(module) is not None
        or libraries.is_binary_or_namespace(module)
    )


@lru_cache(maxsize=2048)
def _may_have(path: Path, name: str) -> bool:
    """Return whether a module can have a name: its text speaks of it, it is a submodule, or it makes names at run
    time.
    """
    text = _text(path)
    if name in text or "import *" in text or "__getattr__" in text or "globals()" in text:
        return True
    return path.name == "__init__.py" and any(path.parent.glob(f"{name}*"))


_text = lru_cache(maxsize=128)(read_text)


def _top_imports(text: str) -> list[ast.stmt]:
    try:
        return [n for n in ast.parse(textwrap.dedent(text)).body if isinstance(n, (ast.Import, ast.ImportFrom))]
    except SyntaxError:
        return []


def _assigned(block: str) -> list[str]:
    try:
        body = ast.parse(textwrap.dedent(block)).body
    except SyntaxError:
        return []
    return [t.id for node in body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)]


def _bindings(nodes: list[ast.stmt]) -> _Binding:
    bound: _Binding = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            bound.update({bound_by(a, node): f"{node.module}.{a.name}" for a in node.names})
        elif isinstance(node, ast.Import):
            bound.update({bound_by(a, node): a.name if a.asname else a.name.split(".")[0] for a in node.names})
    return bound


def _upstream_bindings(source: SourceModule) -> _Binding:
    is_package = source.path.name == "__init__.py"
    bound: _Binding = {}
    for outer in source.tree.body:
        if isinstance(outer, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(outer):
            if isinstance(node, ast.ImportFrom):
                module = absolute(node, source.name, is_package)
                bound.update({bound_by(a, node): f"{module}.{a.name}" for a in node.names})
            elif isinstance(node, ast.Import):
                bound.update(_bindings([node]))
    return bound
