"""Importing what a model's authors wrote, file by file.

No package's `__init__` runs, and missing packages do not matter until something of them is used.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from omni_kit.errors import MissingRequirement
from omni_kit.isolation.failures import install
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import read_source
from omni_kit.standins import stand_ins
from omni_kit.targets.references.old_numpy import restore_old_names
from omni_kit.targets.references.trained_module import TrainedModule
from omni_kit.upstream.repositories.adapted import adapted
from omni_kit.upstream.repositories.constructed import blanked, conversions_of, loading_defaults
from omni_kit.upstream.repositories.helpers import helpers_of
from omni_kit.upstream.repositories.logs import logger_of
from omni_kit.upstream.repositories.names import Defined, lacks_alternative, resolve
from omni_kit.upstream.repositories.pins import other_versions
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.repository import Repository
from omni_kit.upstream.repositories.trained_modules import IS_TRAINED
from omni_kit.upstream.repositories.traits import ENDS, HALVES, IS_HALF, NEEDS_GPU, foreign

_INSTEAD = "__omni_kit_instead__"  # how a module of the authors calls `Authors.instead`
_FAILED = "__omni_kit_failed__"  # how one calls `Authors.failed`
_PRECISION = "__omni_kit_precision__"  # how one calls `Authors.precision_of`
_TORCH = "__omni_kit_torch__"
_CASTS = ("to", "type")
_STAND_INS = "omni_kit.standins"
_OF_KERNELS = "triton."  # what decorates functions that no call runs: `kernel[grid](x)`
_APART = "the authors' own extension, or optional"


class Missing:
    """Placeholder of a failed import. It raises only when it is used, and names the missing packages.

    While files are still being imported a call gives another of these, and a decorator gives what it decorates, unless
    that is a kernel. What logs may be called at any time, and does nothing. A class that derives from the module of a
    training framework is a module of torch.
    """

    def __init__(self, name: str, authors: "Authors") -> None:
        self._name = name
        self._authors = authors

    def __getattr__(self, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}", self._authors)

    def __getitem__(self, key: Any) -> "Missing":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep nothing: what files put into a table of a package is read by that package alone."""

    def __iter__(self) -> Iterator[Any]:
        """Return no items: `__getitem__` alone has one for every number."""
        return iter(())

    def __or__(self, other: Any) -> "Missing":
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False

    def __instancecheck__(self, one: Any) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        missing, name = self._authors, self._name
        if IS_TRAINED.match(name):
            missing.used[name.partition(".")[0]] = None
            return (TrainedModule,)

        class Base:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                raise missing.lacking(name)

        return (Base,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if logger_of(self._name):
            return None
        if not self._authors.importing:
            raise self._authors.lacking(self._name)
        decorates = len(args) == 1 and not kwargs and (inspect.isclass(args[0]) or inspect.isfunction(args[0]))
        return args[0] if decorates and not self._name.startswith(_OF_KERNELS) else self


class Authors(importlib.abc.MetaPathFinder):
    """Imports a repository's files for one class.

    Attributes:
        importing: files are being imported: nothing of the model runs yet.
        used: the packages of which a stand-in was imported.
        left_out: the attributes that the class is made without.
        precision: the dtype of the model whose forward runs; None before any does.
    """

    def __init__(self, reference: Reference) -> None:
        restore_old_names()
        self._reference = reference
        self.repository: Repository = reference.repository
        self.importing = False
        self.used: dict[str, None] = {}
        self.left_out: dict[str, None] = {}
        self.precision: torch.dtype | None = None
        self._why: dict[str, str] = {}

    def get(self, module: str, name: str) -> Any:
        """Return what a module of theirs defines."""
        with self.importing_files():
            return getattr(importlib.import_module(module), name)

    @contextmanager
    def importing_files(self) -> Iterator[None]:
        """Let imports find their modules; nothing of the model runs within."""
        if self not in sys.meta_path:
            for other in [one for one in sys.meta_path if isinstance(one, Authors)]:
                other.forget()
            sys.meta_path.insert(0, self)
        self.importing = True
        try:
            yield
        finally:
            self.importing = False

    def forget(self) -> None:
        """Drop every module of theirs: another repository may have modules of the same names."""
        sys.meta_path.remove(self)
        for name, module in [*sys.modules.items()]:
            if getattr(getattr(module, "__loader__", None), "authors", None) is self:
                del sys.modules[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `MetaPathFinder`: the authors' own modules, and folders of theirs."""
        file = self.repository.module_file(fullname)
        if file is not None:
            package = [str(file.parent)] if file.name == "__init__.py" else None
            loader = _Package(self, fullname, file) if package else _Module(self, fullname, str(file))
            return importlib.util.spec_from_file_location(
                fullname, file, loader=loader, submodule_search_locations=package
            )
        folders = [str(one) for one in self.repository.folders(fullname)]
        if not folders or importlib.machinery.PathFinder.find_spec(fullname, path) is not None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec

    def text_of(self, file: Path) -> bytes | str:
        """Return the text of a file; that of the class without the helpers that need what is not installed, without
        conversions of a config that has all fields already, and with switches off that its constructor does not set.
        """
        if file != self._reference.cls.source.path:
            return file.read_bytes()
        source = read_source(self.repository, file)
        given = ClassRef(source, source.classes[self._reference.class_name])
        cls = adapted(given)
        found = helpers_of(cls)
        self.left_out |= {f"self.{one.name}, which needs {one.package}": None for one in found}
        unused = [*conversions_of(cls), *(one for helper in found for one in helper.statements)]
        return blanked(cls.source.text, unused) if unused or cls is not given else file.read_bytes()

    @cached_property
    def loading(self) -> frozenset[str]:
        """Return the defaults of the class for which its authors load a model by its name, as they are written."""
        source = read_source(self.repository, self._reference.cls.source.path)
        cls = ClassRef(source, source.classes[self._reference.class_name])
        return frozenset(ast.unparse(default) for _, default, _ in loading_defaults(cls))

    def instead(self, error: Exception, module: str, name: str = "") -> Any:
        """Return what stands for something that could not be imported."""
        package = module.partition(".")[0]
        if package in stand_ins() and (name or _not_installed(package)):
            with suppress(ImportError, AttributeError):
                found: Any = importlib.import_module(f"{_STAND_INS}.{module}")
                if name:
                    found = getattr(found, name)
                self.used[package] = None
                return found
        if name and not _not_installed(package):  # a library moves what it still has
            with suppress(ImportError, AttributeError):
                return getattr(importlib.import_module(package), name)
        whole = f"{module}.{name}" if name else module
        self._why.setdefault(whole, f"{type(error).__name__}: {error}")
        return Missing(whole, self)

    def failed(self, error: Exception, module: str, name: str) -> Any:
        """Return what stands for a value that a module could not make as it was imported."""
        self._why.setdefault(whole := f"{module}.{name}", f"{type(error).__name__}: {error}")
        return Missing(whole, self)

    def precision_of(self, cast: Any) -> Any:
        """Return what a cast to half precision casts to: that, or float32 in a model that has it.

        Authors write such casts for models that they run in half precision alone. In another, what follows would raise.
        """
        half = cast in (torch.float16, torch.bfloat16)
        return torch.float32 if half and self.precision is torch.float32 else cast

    def lacking(self, name: str) -> Exception:
        """Return the error of a use: one list of all packages that the class needs and that are not there."""
        package = name.partition(".")[0]
        if not package or not _not_installed(package):
            why = next((text for whole, text in self._why.items() if name.startswith(whole)), "")
            pinned = other_versions(self.repository, foreign(self._reference))
            more = f"; its authors require {pinned}: compare in an environment with that version" if pinned else ""
            return ImportError(f"{name} cannot be imported: {why}{more}", name=package)
        needed = [one for one in foreign(self._reference) if one not in stand_ins() and _not_installed(one)]
        optional = self._reference.closure.optional()
        every = dict.fromkeys([package, *needed])
        apart = [one for one in every if one in optional or self.repository.has(one)]
        wanted, left = [one for one in every if one not in apart], ", ".join(apart)
        if not wanted:
            return MissingRequirement(f"{self._reference.class_name} uses {left}: {_APART}. Build what it needs of it")
        more = f" ({left}: {_APART})" if apart else ""
        return MissingRequirement(
            f"{self._reference.class_name} needs packages that are not installed: {', '.join(wanted)}{more}. "
            f"Install them: {install(*wanted)}"
        )


def _not_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except (ImportError, ValueError):
        return True


class _Module(importlib.machinery.SourceFileLoader):
    """A file in which every plain import of a package that may be missing has something to fall back on."""

    def __init__(self, authors: Authors, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self.authors = authors

    def get_code(self, fullname: str) -> CodeType:
        """See `SourceFileLoader`: never from a cache, whose code is that of the file as it is."""
        tree = ast.parse(self.authors.text_of(Path(self.path)), self.path)
        guarded = ast.fix_missing_locations(_Guarded(tree, self.authors.loading).visit(tree))
        return compile(guarded, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`; functions import files, too, while a model runs."""
        vars(module).update({_INSTEAD: self.authors.instead, _FAILED: self.authors.failed})
        vars(module).update({_TORCH: torch, _PRECISION: self.authors.precision_of})
        before, self.authors.importing = self.authors.importing, True
        try:
            super().exec_module(module)
        finally:
            self.authors.importing = before


class _Package(_Module):
    """A package whose `__init__` runs only where something is asked for that cannot be found without."""

    def __init__(self, authors: Authors, fullname: str, file: Path) -> None:
        super().__init__(authors, fullname, str(file))

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        whole = super().exec_module
        ran: list[bool] = []

        def found(name: str) -> Any:
            if name.startswith("__") and name != "__all__":
                raise AttributeError(name)
            source = read_source(self.authors.repository, Path(self.path))
            meant = resolve(source, name)
            if isinstance(meant, Defined) and meant.source is not source:  # also where a module has the same name
                vars(module)[name] = getattr(importlib.import_module(meant.source.module), meant.name)
                return vars(module)[name]
            with suppress(ModuleNotFoundError):
                inner = f"{self.name}.{name}"
                if self.authors.repository.module_file(inner) or self.authors.repository.folders(inner):
                    return importlib.import_module(inner)
            if not ran:
                ran.append(True)
                whole(module)
            if name in vars(module):
                return vars(module)[name]
            if (theirs := vars(module)["__getattr__"]) is not found:  # the package imports its parts when asked
                return theirs(name)
            raise AttributeError(f"module {self.name!r} has no attribute {name!r}")

        vars(module)["__getattr__"] = found


class _Guarded(ast.NodeTransformer):
    """Puts plain imports under a `try`, and values that a module makes of calls; those for which the authors have an
    alternative stay as they are.

    Args:
        loading: defaults that are null, as nothing is loaded; as they are written.
    """

    def __init__(self, tree: ast.Module, loading: Collection[str] = ()) -> None:
        self._tree = tree
        self._loading = loading
        self._halves: list[str] = []

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Guard values that a module makes for others: settings of a model that has changed since may fail."""
        self.generic_visit(node)
        node.body = [_made(one) if isinstance(one, ast.Assign) else one for one in node.body]
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """The body is guarded already; without an alternative, what it imports is needed."""
        if lacks_alternative(node, self._tree):
            return self.generic_visit(node)
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.generic_visit(part)
        node.orelse = [inner for one in node.orelse for inner in self._listed(one)]
        return node

    def _listed(self, node: ast.stmt) -> list[ast.stmt]:
        changed = self.visit(node) if isinstance(node, ast.Import | ast.ImportFrom) else node
        return changed if isinstance(changed, list) else [changed]

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """Remove conditions on a GPU, and on the half precision that its kernels need."""
        node.test = _AnyDevice().visit(node.test)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Raise where the authors end the process, as `exit()` does for what they do not support."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.Call) or ast.unparse(node.value.func) not in ENDS:
            return node
        raised = ast.Call(ast.Name("ValueError", ast.Load()), node.value.args, [])
        return ast.copy_location(ast.Raise(raised, None), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Note the arguments that are half precision by default."""
        before = self._halves
        given = node.args
        defaults = zip(given.args[len(given.args) - len(given.defaults) :], given.defaults, strict=True)
        pairs = [
            *defaults,
            *((one, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value),
        ]
        given.defaults = [self._loaded(one) for one in given.defaults]
        given.kw_defaults = [self._loaded(one) if one is not None else None for one in given.kw_defaults]
        self._halves = [*before, *(one.arg for one, value in pairs if IS_HALF.match(ast.unparse(value)))]
        changed = self.generic_visit(node)
        self._halves = before
        return changed

    def _loaded(self, node: ast.expr) -> ast.expr:
        """Return null for a default that loads a model, any other as it is."""
        loads = self._loading and ast.unparse(node) in self._loading
        return ast.copy_location(ast.Constant(None), node) if loads else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """A field of a config with such a default."""
        node.value = self._loaded(node.value) if node.value is not None else None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """`x.to(torch.bfloat16)` and `x.half()`, in the precision of the model that runs."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in HALVES:
                half = ast.Attribute(ast.Name(_TORCH, ast.Load()), HALVES[name], ast.Load())
                node.func.attr, node.args = "to", [_in_precision(node, half)]  # type: ignore[attr-defined]
            case ast.Call(func=ast.Attribute(attr=name)) if name in _CASTS:
                node.args = [self._precise(one) for one in node.args]
                for one in node.keywords:
                    one.value = self._precise(one.value)
        return node

    def _precise(self, node: ast.expr) -> ast.expr:
        """Return a half precision as the running model has it; anything else as it is."""
        text = ast.unparse(node)
        return _in_precision(node, node) if IS_HALF.match(text) or text in self._halves else node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """Return each alias by itself."""
        return [_tried(node, ast.Import([one]), _bound(one), one.name, whole=not one.asname) for one in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """Return each name by itself; stars as they are."""
        if node.module == "__future__" or node.names[0].name == "*":
            return node
        module = "." * node.level + (node.module or "")
        return [
            _tried(node, ast.ImportFrom(node.module, [one], node.level), one.asname or one.name, module, one.name)
            for one in node.names
        ]


class _AnyDevice(ast.NodeTransformer):
    """Takes it for true that a tensor is on a GPU, and of half precision where nothing else would do."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`x.device.type == "cuda"`, and `x.dtype in (torch.float16, torch.bfloat16)`."""
        return ast.copy_location(ast.Constant(True), node) if NEEDS_GPU.search(ast.unparse(node)) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`x.is_cuda`."""
        return ast.copy_location(ast.Constant(True), node) if node.attr == "is_cuda" else node


def _in_precision(place: ast.expr, dtype: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(_PRECISION, ast.Load()), [dtype], []), place)


def _head(alias: ast.alias) -> str:
    return alias.name.partition(".")[0]


def _bound(alias: ast.alias) -> str:
    return alias.asname or _head(alias)


def _tried(old: ast.stmt, new: ast.stmt, bound: str, module: str, name: str = "", whole: bool = False) -> ast.stmt:
    """`try: import a` with `a = instead(error, "a")` where it cannot be imported, on the line of the old statement.

    Args:
        whole: the name is bound to the module's outermost package.
    """
    head = module.partition(".")[0]
    calls = [f"{bound} = {_INSTEAD}(_omni_kit_error, {module!r}, {name!r})"]
    if whole and head != module:
        calls.append(f"{bound} = {_INSTEAD}(_omni_kit_error, {head!r}, '')")
    return _with_fallback(old, new, calls)


def _made(old: ast.Assign) -> ast.stmt:
    """`try: a = call()` with `a = failed(error, __name__, "a")` where that raises; any other assignment as it is."""
    names = [one.id for one in old.targets if isinstance(one, ast.Name)]
    if not isinstance(old.value, ast.Call) or len(names) != len(old.targets):
        return old
    return _with_fallback(old, old, [f"{name} = {_FAILED}(_omni_kit_error, __name__, {name!r})" for name in names])


def _with_fallback(old: ast.stmt, new: ast.stmt, calls: Sequence[str]) -> ast.Try:
    fallback = ast.parse("\n".join(calls)).body
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), "_omni_kit_error", fallback)
    made = ast.Try([new], [handler], [], [])
    for one in ast.walk(made):
        if isinstance(one, ast.stmt | ast.expr | ast.ExceptHandler | ast.alias):
            one.lineno = one.end_lineno = old.lineno
            one.col_offset = one.end_col_offset = old.col_offset
    return made
