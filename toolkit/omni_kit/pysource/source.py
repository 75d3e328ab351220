"""An index of one Python source file: its classes, functions, imports and constants, by ast."""

import ast
import gc
import re
import stat
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path

from omni_kit.errors import BadInput, reason
from omni_kit.pysource.library import Library

_STAR = "*"
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_REQUIRES = re.compile(r"(?:requires-python|python_requires)\s*=\s*[\"']?\s*[>~=]=\s*(\d+)\.(\d+)")


@dataclass(frozen=True)
class Imported:
    """The origin of an imported name: `module` is absolute, `name` is None for a plain module import."""

    module: str
    name: str | None


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One parsed module of a library; equal to itself alone, so that it is quick to look up."""

    library: Library
    module: str
    path: Path
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @cached_property
    def lines(self) -> list[str]:
        """The text by lines, without line ends."""
        return self.text.split("\n")

    @cached_property
    def code(self) -> str:
        """The text as ast writes it: without comments, each statement on one line."""
        return ast.unparse(self.tree)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes at the top level, by name; those under `if` and `try` count, and of two the later one."""
        return {node.name: node for node in _top_level(self.tree.body) if isinstance(node, ast.ClassDef)}

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """The functions at the top level, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """Top-level names that are assigned once, with the expression."""
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
        return found

    @property
    def package(self) -> str:
        """The package that relative imports of this file start from."""
        return self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]

    @cached_property
    def imports(self) -> dict[str, Imported]:
        """Names bound by imports anywhere at the top level, guarded ones included; relative ones before others."""
        nodes = [*_top_level(self.tree.body)]
        relative = [one for one in nodes if isinstance(one, ast.ImportFrom) and one.level]
        return dict(self._bound(nodes)) | dict(self._bound(relative))

    @cached_property
    def inner_imports(self) -> dict[str, Imported]:
        """Names bound by imports inside functions alone, each by one and the same import throughout the file."""
        ways = {name: ways for name, ways in self.every_import.items() if len(ways) == 1 and name not in self.imports}
        return {name: next(iter(one)) for name, one in ways.items()}

    @cached_property
    def every_import(self) -> dict[str, set[Imported]]:
        """Names bound by imports, also inside functions, with all that each may mean somewhere in the file."""
        found: dict[str, set[Imported]] = {}
        for name, imported in self._bound(ast.walk(self.tree)):
            found.setdefault(name, set()).add(imported)
        return found

    def _bound(self, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Imported]]:
        """Yield the names that imports bind, and to what."""
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                module = absolute_module(self.package, node)
                yield from ((alias.asname or alias.name, Imported(module, alias.name)) for alias in node.names)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.asname or alias.name.partition(".")[0], Imported(alias.name, None)

    def origin(self, node: ast.AST) -> str:
        """Return the full name of a dotted name: `F.pad` is "torch.nn.functional.pad"; unchanged if it is not
        imported."""
        name = dotted(node) or ""
        first, _, rest = name.partition(".")
        imported = self.imports.get(first)
        if imported is None:
            return name
        home = imported.module if imported.module.partition(".")[0] != first else first  # `import a.b` binds a
        if imported.name is not None:
            home = f"{imported.module}.{imported.name}"
        return f"{home}.{rest}" if rest else home

    def where(self, node: ast.AST) -> str:
        """`file:line` of a node, as evidence."""
        return f"{self._shown}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def _shown(self) -> str:
        return self.library.show(self.path)

    def bases(self, node: ast.ClassDef) -> list[str]:
        """Return the base classes as written, dotted names only."""
        return [name for base in node.bases if (name := dotted(base))]

    def lineage(self, class_name: str) -> Iterator[ast.ClassDef]:
        """Yield a class and those above it in this file, nearest first, each once: names may lead back."""
        todo, seen = [class_name], set()
        while todo:
            node = self.classes.get(todo.pop(0))
            if node is not None and node.name not in seen:
                seen.add(node.name)
                yield node
                todo += self.bases(node)

    def method(self, class_name: str, method: str) -> ast.FunctionDef | None:
        """Return a method as the class itself or, failing that, a base in this file defines it."""
        for node in self.lineage(class_name):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    return item
        return None

    def resolve_function(self, name: str) -> "tuple[SourceFile, ast.FunctionDef] | None":
        """Return the function that `name` means in this file, followed through imports within the library."""
        if name in self.functions:
            return self, self.functions[name]
        home = self._home(name)
        return home[0].resolve_function(home[1]) if home is not None else None

    def resolve_constant(self, name: str) -> "tuple[SourceFile, ast.expr] | None":
        """Return the value assigned to `name` at the top level, here or in the library's file that defines it."""
        if name in self.constants:
            return self, self.constants[name]
        home = self._home(name)
        return home[0].resolve_constant(home[1]) if home is not None else None

    def resolve_class(self, name: str) -> "tuple[SourceFile, ast.ClassDef] | None":
        """Return the class that `name` means in this file, followed through imports within the library."""
        if name not in self._resolved:
            self._resolved[name] = None  # for files that import a name from each other
            self._resolved[name] = self._resolve(name)
        return self._resolved[name]

    @cached_property
    def _resolved(self) -> "dict[str, tuple[SourceFile, ast.ClassDef] | None]":
        return {}

    def _resolve(self, name: str) -> "tuple[SourceFile, ast.ClassDef] | None":
        if name in self.classes:
            return self, self.classes[name]
        home = self._home(name)
        return home[0].resolve_class(home[1]) if home is not None else None

    def _home(self, name: str) -> "tuple[SourceFile, str] | None":
        """Return the file of the library that a name is imported from, and what it is called there."""
        imported = self.imports.get(name)
        if imported is not None:
            return self.home_of(imported)
        return next(((one, name) for one in self._starred if one._binds(name, {self.path})), None)

    @cached_property
    def _starred(self) -> "list[SourceFile]":
        """The files of the library of which this one imports every name, the last one first."""
        nodes = (one for one in self.tree.body if isinstance(one, ast.ImportFrom) and one.names[0].name == _STAR)
        files = (self.library.module_file(absolute_module(self.package, one)) for one in nodes)
        return read_all(self.library, [one for one in files if one is not None and one != self.path])[::-1]

    def _binds(self, name: str, seen: set[Path]) -> bool:
        """Return whether `from ... import *` of this file brings a name."""
        if name.startswith("_") or self.path in seen:
            return False
        seen.add(self.path)
        own = name in self.classes or name in self.functions or name in self.constants or name in self.imports
        return own or any(one._binds(name, seen) for one in self._starred)

    def home_of(self, imported: Imported) -> "tuple[SourceFile, str] | None":
        """Return the library's file that defines an imported name, and its name there; None for a module."""
        if imported.name is None:
            return None
        file = self.library.module_file(imported.module)
        if file is None or file == self.path:
            return None
        return read_source(self.library, file), imported.name


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements outside of functions and classes, those under `if`, `try` and `with` included."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _top_level(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from _top_level(handler.body)


def absolute_module(package: str, node: ast.ImportFrom) -> str:
    """Return the absolute module of a from-import that stands in `package`."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a chain of names, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return None


@cache
def read_source(library: Library, file: Path) -> SourceFile:
    """Parses a file of a library; cached for the run.

    Raises:
        BadInput: the file cannot be read or is not valid Python.
    """
    try:
        text, tree = parse_file(file)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        newer = _newer_python(file) if isinstance(error, SyntaxError) else ""
        why = f"{reason(error)}; its project requires Python {newer}" if newer else reason(error)
        raise BadInput(f"cannot read {file}: {why}", "use an environment with that Python" if newer else "") from error
    return SourceFile(library, library.module_name(file), file, text, tree)


def _newer_python(file: Path) -> str:
    """Return the Python that the project of a file requires, if this one is older; else an empty string."""
    for folder in file.parents:
        for name in _PROJECT_FILES:
            with suppress(OSError):
                found = _REQUIRES.search(read_text(folder / name))
                least = (int(found[1]), int(found[2])) if found is not None else (0, 0)
                if found is not None:
                    return f"{least[0]}.{least[1]}" if least > sys.version_info[:2] else ""
    return ""


def read_all(library: Library, files: Sequence[Path]) -> list[SourceFile]:
    """Return the files that this interpreter can parse; others are another Python's, or templates."""
    found = []
    for file in files:
        try:
            found.append(read_source(library, file))
        except BadInput:
            continue
    return found


def read_text(path: Path) -> str:
    """Return the text of a Python file to search, in the encoding that it declares, without what cannot be decoded.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (LookupError, UnicodeError, SyntaxError):
        return path.read_text(encoding="utf-8", errors="replace")


def parse_file(path: Path) -> tuple[str, ast.Module]:
    """Return the text and the tree of a file; an unchanged file is parsed once.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        SyntaxError: it is not Python that this interpreter can parse, or nested too deeply for it.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a pipe waits for somebody who writes into it
        raise OSError(f"{path.name} is not a regular file")
    return _parsed(path, found.st_mtime_ns)


@lru_cache(maxsize=512)
def _parsed(path: Path, mtime_ns: int) -> tuple[str, ast.Module]:
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except UnicodeDecodeError:
        raise
    except (LookupError, UnicodeError) as error:  # an encoding that is none of text, as rot13, or that fails otherwise
        raise SyntaxError(str(error)) from error
    try:
        return text, ast.parse(text)
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deeply to be parsed") from None
    except ValueError as error:
        raise SyntaxError(str(error)) from error


@contextmanager
def without_collection() -> Iterator[None]:
    """Without the cyclic garbage collector: it finds little in syntax trees, and costs a third of the time.

    Freezing keeps it from walking all of them at the end of the process. It never frees frozen cycles, so a process
    that enters many times collects whenever the memory in use has doubled.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            _frozen.bound()
            gc.enable()


class _Frozen:
    """Bound on the memory blocks in use before frozen garbage is collected; the first call sets it."""

    most = 0

    def bound(self) -> None:
        """Collect what is frozen where it is more than that; counting frozen objects would walk all of them."""
        if self.most and sys.getallocatedblocks() <= self.most:
            return
        if self.most:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        self.most = max(2 * sys.getallocatedblocks(), _FEW)


_FEW = 5_000_000  # blocks, which take about 400 MB
_frozen = _Frozen()
