"""A framework's own use of a library, which a newer version breaks: imports, assigned attributes, and calls."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.patchgen.imports import bound_by
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.patchgen.source import read_module
from omni_kit.pysource.signatures import misfit, signature
from omni_kit.pysource.source import dotted, parse_file, read_text
from omni_kit.upgrade.result import Leftover

_GENERATED = "generated"


def broken_uses(files: Iterable[Path], library: str, old: Path, new: Path, root: Path) -> list[Leftover]:
    """Return places where code uses names that the older version of a library has and the newer one lacks.

    Args:
        files: the framework's own files.
        old, new: the directories of both versions' packages.
        root: what the paths in the answer are relative to.
    """
    sides = _Version(library, old), _Version(library, new)
    found: list[Leftover] = []
    for file in files:
        try:
            text, tree = parse_file(file)
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
        if library in text:
            name = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
            found += [Leftover(name, line, what) for line, what in sorted(set(_broken(tree, *sides)))]
    return found


def own_files(root: Path) -> list[Path]:
    """Return a framework's Python files, without patch configs, generated files and tests."""
    files = files_matching(root, "**/*.py")
    return sorted(
        one
        for one in files
        if not {_GENERATED, "tests", "__pycache__"} & set(one.relative_to(root).parts[:-1])
        and not one.name.endswith("_patch_gen_config.py")
    )


class _Version:
    """One version of a library: which names its modules have, and how its functions are called."""

    def __init__(self, library: str, root: Path) -> None:
        self.library, self.root = library, root
        self.libraries = Libraries({library: root})

    def has_module(self, module: str) -> bool:
        return self.libraries.file_of(module) is not None

    @cache  # noqa: B019 - lives as long as one look
    def has(self, module: str, name: str) -> bool:
        """Return whether a module has a name; one that makes names at run time has all that it mentions."""
        path = self.libraries.file_of(module)
        if path is None:
            return False
        text = path.read_text(encoding="utf-8")
        bound = scopes_of(text)
        if name in bound.bound or bound.has_star or self.has_module(f"{module}.{name}"):
            return True
        if path.name == "__init__.py" and module == self.library:
            return self._anywhere(name)
        return "__getattr__" in bound.bound and name in text

    @cache  # noqa: B019
    def _anywhere(self, name: str) -> bool:
        """Return whether any module of the library defines a name that its package exports lazily."""
        needles = (f"class {name}(", f"class {name}:", f"def {name}(", f"{name} =", f'"{name}"')
        return any(needle in text for text in self._texts for needle in needles)

    @property
    def _texts(self) -> Iterator[str]:
        for file in files_matching(self.root, "**/*.py"):
            yield _read(file)

    @cache  # noqa: B019
    def function(self, module: str, name: str) -> ast.FunctionDef | None:
        path = self.libraries.file_of(module)
        try:
            definition = read_module(module, path).get(name) if path else None
        except BadInput:
            return None
        return definition.node if definition is not None and isinstance(definition.node, ast.FunctionDef) else None

    @cache  # noqa: B019
    def member(self, module: str, owner: str, name: str) -> bool:
        """Return whether a class has a member in its own body; True for classes defined elsewhere."""
        path = self.libraries.file_of(module)
        try:
            source = read_module(module, path) if path else None
        except BadInput:
            return True
        definition = source.get(owner) if source else None
        if source is None or definition is None or not isinstance(definition.node, ast.ClassDef):
            return True
        if source.get(f"{owner}.{name}") is not None:
            return True
        bound = {one.id for item in definition.node.body for one in ast.walk(item) if isinstance(one, ast.Name)}
        return name in bound


_read = lru_cache(maxsize=8192)(read_text)


def _broken(tree: ast.Module, old: _Version, new: _Version) -> Iterator[tuple[int, str]]:
    names: dict[str, tuple[str, str]] = {}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _of(node.module, old.library):
            yield from _imported(node, old, new, names, modules)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _of(alias.name, old.library):
                    modules[bound_by(alias, node)] = alias.name if alias.asname else old.library
                    if old.has_module(alias.name) and not new.has_module(alias.name):
                        yield node.lineno, f"imports {alias.name}, which {new.library} no longer has"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _attribute(node, names, modules, old, new)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield from _called(node, names[node.func.id], old, new)


def _of(module: str | None, library: str) -> bool:
    return bool(module) and (module or "").partition(".")[0] == library


def _imported(
    node: ast.ImportFrom, old: _Version, new: _Version, names: dict[str, tuple[str, str]], modules: dict[str, str]
) -> Iterator[tuple[int, str]]:
    module = node.module or ""
    if not old.has_module(module):
        return
    if not new.has_module(module):
        yield node.lineno, f"imports from {module}, which {new.library} no longer has"
        return
    for alias in node.names:
        if old.has_module(f"{module}.{alias.name}"):
            modules[bound_by(alias, node)] = f"{module}.{alias.name}"
        else:
            names[bound_by(alias, node)] = module, alias.name
        if old.has(module, alias.name) and not new.has(module, alias.name):
            yield node.lineno, f"imports {alias.name}, which {module} no longer has"


def _attribute(
    node: ast.Attribute, names: dict[str, tuple[str, str]], modules: dict[str, str], old: _Version, new: _Version
) -> Iterator[tuple[int, str]]:
    """Yield a name of a module, or a member of a class, that is read or replaced."""
    sets = isinstance(node.ctx, ast.Store)
    text = dotted(node.value)
    if text is None:
        return
    root, _, rest = text.partition(".")
    if root in modules:
        module = f"{modules[root]}.{rest}" if rest else modules[root]
        if old.has_module(module) and old.has(module, node.attr) and not new.has(module, node.attr):
            verb = "replaces" if sets else "uses"
            yield node.lineno, f"{verb} {module}.{node.attr}, which {new.library} no longer has"
    elif root in names and not rest:
        module, owner = names[root]
        if old.member(module, owner, node.attr) and not new.member(module, owner, node.attr):
            verb = "replaces" if sets else "uses"
            yield node.lineno, f"{verb} {owner}.{node.attr}, which {owner} no longer defines"


def _called(node: ast.Call, home: tuple[str, str], old: _Version, new: _Version) -> Iterator[tuple[int, str]]:
    was, now = old.function(*home), new.function(*home)
    if was is None or now is None or any(isinstance(one, ast.Starred) for one in node.args):
        return
    spread = any(one.arg is None for one in node.keywords)
    names = [one.arg for one in node.keywords if one.arg]
    why = misfit(signature(now), len(node.args), names, spread)
    if why and not misfit(signature(was), len(node.args), names, spread):
        yield node.lineno, f"calls {home[1]}: {why}"
