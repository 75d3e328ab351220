"""A repository as a library to be read: modules are found below its root, whatever they are called."""

import ast
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.machinery import PathFinder
from itertools import takewhile
from pathlib import Path

from omni_kit.files import files_matching
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import dotted, parse_file

REPOSITORY = "repository"
_OF_PROJECTS = ("setup.py", "pyproject.toml")
_EXTENSIONS = ("CUDAExtension", "CppExtension")
_OF_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "README.md", "LICENSE", "environment.yml")
_RELATIVE = re.compile(rb"^[ \t]*from[ \t]+(\.+)([\w.]*)[ \t]+import\b(.*)", re.MULTILINE)
_DEEPEST = 8  # folders between a file and its repository's root
_MOST_FILES, _MOST_BYTES = 2000, 1_000_000  # that are searched for imports of a file
_NEAR = 64  # files of one folder that are looked at
_COMMANDS = (".md", ".sh")
_DOCUMENTS = (".yaml", ".yml", ".json")
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class Repository(Library):
    """The files of a model's authors.

    Attributes:
        name: always "repository".
        root: its folder; modules are named from there, or from `src` below it.
        own: the package in it that is the authors', where others lie next to it; all of it without one.
        script_folder: the folder of the file that is read: a program imports modules next to it by their plain names.
    """

    own: Path | None = None
    script_folder: Path | None = None

    @cached_property
    def version(self) -> str:
        """Authors' code is read as it lies there."""
        return "unknown"

    @cached_property
    def places(self) -> tuple[Path, ...]:
        """The folders that imports start from, as somebody who runs the code would have them on the path."""
        return tuple(place for place in (self.root, self.root / "src") if place.is_dir())

    @cached_property
    def outermost(self) -> Path:
        """The folder at which the authors' project begins: the root of imports, or one above it."""
        return _outermost(self.root)

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Every file of Python in it, in order; links that lead out of it, and what is built or hidden, left out."""
        return tuple(file for file in self._everything if file.suffix == ".py")

    @cached_property
    def documents(self) -> tuple[Path, ...]:
        """Its files of YAML and JSON, in order, YAML first."""
        found = (file for file in self._everything if file.suffix in _DOCUMENTS)
        return tuple(sorted(found, key=lambda file: (_DOCUMENTS.index(file.suffix), file)))

    @cached_property
    def commands(self) -> tuple[Path, ...]:
        """Its documentation and scripts of a shell, in order: what tells people how to run it."""
        return tuple(file for file in self._everything if file.suffix.lower() in _COMMANDS)

    @cached_property
    def _everything(self) -> tuple[Path, ...]:
        """Its regular files; an environment in it is not walked through."""
        folder, found = self.own or self.root, list[Path]()
        for place, inner, names in os.walk(folder) if folder.resolve().is_relative_to(self.root) else ():
            inner[:] = [name for name in inner if name not in _SKIPPED and not name.startswith(".")]
            found += [Path(place, name) for name in names if not name.startswith(".")]
        within = (file for file in found if not file.is_symlink() or file.resolve().is_relative_to(self.root))
        return tuple(sorted(filter(Path.is_file, within)))

    def module_file(self, module: str) -> Path | None:
        """Return the file of a dotted module below one of the places; None of what the authors did not write."""
        places = [*self.places]
        head = module.partition(".")[0]
        near = self.script_folder
        if near is not None and not is_importable(head) and not any(map(near.is_relative_to, self.folders(head))):
            places.append(near)
        for place in places:
            base = place.joinpath(*module.split("."))
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if module and candidate.is_file() and candidate.resolve().is_relative_to(self.root):
                    return candidate
        return self._brought_along(module)

    def _brought_along(self, module: str) -> Path | None:
        """Return the file of a package that people install from a folder of the repository, if it is not installed."""
        head, *parts = module.split(".")
        if head not in self._projects or is_importable(head):
            return None
        base = self._projects[head].joinpath(*parts)
        return next((one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None)

    @cached_property
    def _projects(self) -> dict[str, Path]:
        """Packages of projects within the repository -> their folders; none of those that stand in several."""
        found: dict[str, set[Path]] = {}
        for file in self._everything:
            if file.name in _OF_PROJECTS and file.parent != self.root:
                for package in (*file.parent.glob("*/__init__.py"), *file.parent.glob("src/*/__init__.py")):
                    found.setdefault(package.parent.name, set()).add(package.parent)
        return {name: places.pop() for name, places in found.items() if len(places) == 1}

    @cached_property
    def extensions(self) -> dict[str, str]:
        """Modules in C++ or CUDA that a project in the repository compiles when it is installed -> file:line."""
        found: dict[str, str] = {}
        for file in [one for one in self.files if one.name == _OF_PROJECTS[0]]:
            with suppress(OSError, SyntaxError, UnicodeDecodeError):
                for call in ast.walk(parse_file(file)[1]):
                    if isinstance(call, ast.Call) and (dotted(call.func) or "").endswith(_EXTENSIONS):
                        named = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "name")]
                        names = [one.value for one in named if isinstance(one, ast.Constant)]
                        found |= {str(name): f"{self.show(file)}:{call.lineno}" for name in names}
        return found

    def has(self, name: str) -> bool:
        """Return whether a file or a folder of code in it has this name: pip installs something else by it."""
        places = (file.relative_to(self.own or self.root).with_suffix("").parts for file in self.files)
        return any(name in parts for parts in places)

    def folders(self, module: str) -> list[Path]:
        """Return the folders of a dotted package that has no file of its own, below the places."""
        found = [place.joinpath(*module.split(".")) for place in self.places]
        return [one for one in found if module and one.is_dir() and not (one / "__init__.py").is_file()]

    def module_name(self, file: Path) -> str:
        """Return the dotted name of a file, from the innermost of the places."""
        place = next(place for place in reversed(self.places) if file.is_relative_to(place))
        parts = file.relative_to(place).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def is_importable(module: str) -> bool:
    """Return whether a top-level module is installed: a program's own file does not take its place."""
    try:
        return module in sys.stdlib_module_names or PathFinder.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def repository_of(file: Path, within: Path | None = None) -> Repository:
    """Return the repository that a file belongs to, with the root that most of its imports start from, or, where
    several do alike, that most imports of the file start from.

    That is the folder above its outermost package, or one above that, up to where the repository itself begins, or one
    within the package from which more imports start; a repository whose root has an `__init__.py` is no package, unless
    relative imports start above it.

    Args:
        within: no folder above this one.
    """
    near = files_matching(file.resolve().parent, "*.py")[:_NEAR]
    depth = max(map(_relative_depth, (file, *near)))  # a package needs no __init__.py to be one
    package = file.resolve().parent
    while (package / "__init__.py").is_file() and package != package.parent:
        if _begins(package) and len(file.resolve().relative_to(package).parts) > depth:
            break
        package = package.parent
    ends = within.resolve() if within is not None else _outermost(package)
    above = [package, *(one for one in package.parents if one.is_relative_to(ends))]
    inside = [one for one in file.resolve().parents if one != package and one.is_relative_to(package)]
    wanted = _imported(file)
    candidates, found = list[Repository](), list[int]()
    for roots in (above, inside):  # a package's own folder is the root only where that resolves more
        deep = [one for one in roots if len(file.resolve().relative_to(one).parts) > depth] or above
        some = [Repository(REPOSITORY, _without_src(root)) for root in deep]
        counts = [sum(one.module_file(name) is not None for name in wanted) for one in some]
        if max(counts) > max(found, default=-1):
            candidates, found = some, counts
    best = [one for one, count in zip(candidates, found, strict=True) if count == max(found)]
    found_root = best[0] if len(best) == 1 else max(best, key=_importers(best[-1], file.resolve()))
    return replace(found_root, script_folder=file.resolve().parent)


def _begins(folder: Path) -> bool:
    """Return whether a repository begins at a folder: git's, or one with several files that roots have."""
    return (folder / ".git").exists() or sum((folder / name).is_file() for name in _OF_ROOTS) > 1


def _importers(whole: Repository, file: Path) -> Callable[[Repository], int]:
    """Return a counter of the largest repository's files that import a file by its name in another one, or relatively
    from within that one.
    """
    files = [one for one in whole.files[:_MOST_FILES] if one.stat().st_size <= _MOST_BYTES]
    texts = {one: one.read_bytes().replace(b"\r", b"\n") for one in files}  # some have no other ends of lines
    relative = [(one.resolve(), level) for one, text in texts.items() for level in _relative_imports(one, text, file)]

    def count(one: Repository) -> int:
        name = one.module_name(file).encode()
        imports = re.compile(rb"^[ \t]*(?:from|import)[ \t]+" + re.escape(name) + rb"\b", re.MULTILINE)
        deep = sum(place.is_relative_to(one.root) and len(place.relative_to(one.root).parts) > level
                   for place, level in relative)  # fmt: skip
        return deep + sum(name in text and bool(imports.search(text)) for text in texts.values())  # `in` is faster

    return count


def _relative_imports(importer: Path, text: bytes, file: Path) -> Iterator[int]:
    """Yield the dots of each import in a file that means another one, from a folder above that one's own."""
    if file.stem.encode() not in text or importer.resolve().parent == file.parent:
        return
    for dots, module, names in _RELATIVE.findall(text):
        place = importer.resolve().parents[len(dots) - 1].joinpath(*filter(None, module.decode().split(".")))
        within = place == file.parent and file.stem.encode() in re.findall(rb"\w+", names)  # from .modules import unet
        if within or place == file.with_suffix(""):
            yield len(dots)


def _without_src(root: Path) -> Path:
    return root.parent if root.name == "src" else root


def _outermost(folder: Path) -> Path:
    """Return the root of a repository: git's, or else the outermost of a few folders that look like one."""
    ends = {Path.home(), Path(tempfile.gettempdir()).resolve(), Path(folder.anchor)}  # what lies there is everybody's
    near = [*takewhile(lambda one: one not in ends, [folder, *folder.parents])][:_DEEPEST]
    if (of_git := next((one for one in near if (one / ".git").exists()), None)) is not None:
        return of_git
    return next((one for one in reversed(near) if any((one / name).is_file() for name in _OF_ROOTS)), folder)


def _relative_depth(file: Path) -> int:
    """Return how many folders must enclose a file for its relative imports to resolve; 0 if it has none."""
    with suppress(OSError, SyntaxError, UnicodeDecodeError):
        return max(
            (node.level for node in ast.walk(parse_file(file)[1]) if isinstance(node, ast.ImportFrom)), default=0
        )
    return 0


def _imported(file: Path) -> set[str]:
    """Return the modules that a file, and those next to it, import by absolute names."""
    found: set[str] = set()
    for one in files_matching(file.parent, "*.py")[:_NEAR]:
        with suppress(OSError, SyntaxError, UnicodeDecodeError):
            for node in ast.walk(parse_file(one)[1]):
                if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    found.add(node.module)
                elif isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}
