"""A model class of a repository, as SOURCE names it: `PATH::Class`, or `package.module:Class`."""

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN, Domain, Unsupported, evaluate
from omni_kit.pysource.eval.python import plain_items
from omni_kit.pysource.reads import items_read, literal
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import SourceFile, dotted, read_all, read_source
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.places import path_of, refuse_other_formats
from omni_kit.upstream.repositories.adapted import adapted
from omni_kit.upstream.repositories.closure import Closure, closure_of
from omni_kit.upstream.repositories.config_readers import with_plain_reads
from omni_kit.upstream.repositories.constructed import (
    constructs_base,
    forwarded_to,
    self_contained,
    with_constructor,
    with_forward,
    with_one_base_call,
)
from omni_kit.upstream.repositories.helpers import without_helpers
from omni_kit.upstream.repositories.library_bases import with_library_bases
from omni_kit.upstream.repositories.names import Defined, resolve, unpacked
from omni_kit.upstream.repositories.namespace import Namespace, namespace_of
from omni_kit.upstream.repositories.passed_arguments import required_keys
from omni_kit.upstream.repositories.pretrained import config_class, with_torch_base
from omni_kit.upstream.repositories.published import Published, fields, options, published
from omni_kit.upstream.repositories.repository import REPOSITORY, Repository, repository_of
from omni_kit.upstream.repositories.settings import Settings, settings_of
from omni_kit.upstream.repositories.shared import Shared, with_settings_passed
from omni_kit.upstream.repositories.trained_modules import with_plain_module

BETWEEN = "::"
_MOST_FILES = 5000
_ROOTS = ("Module", "ModelMixin")  # what a class that ends there is: of torch, or of a library's own
_PIPELINE = "DiffusionPipeline"
_PLAIN = (ast.Constant, ast.List, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)


@dataclass(frozen=True)
class Reference:
    """A model as its authors wrote it.

    Attributes:
        given: as typed.
        repository: their files.
        cls: the class, with the file that defines it.
        loop: the function that samples with it, where it is said which.
        shared: the mapping of a module that the constructor reads, and gets as its first argument here.
        forwards: the method to which the authors' forward passes all on, and which is forward here; empty without one.
        config: the class whose object the constructor reads as its namespace, where it takes no other.
    """

    given: str
    repository: Repository
    cls: ClassRef
    loop: str = ""
    shared: Shared | None = None
    forwards: str = ""
    config: ClassRef | None = None

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.cls.node.name

    @property
    def where(self) -> str:
        """file:line of the class."""
        return self.cls.source.where(self.cls.node)

    @cached_property
    def settings(self) -> Settings | None:
        """The dataclass that the constructor takes; None if it takes plain arguments."""
        return settings_of(self.cls)

    @cached_property
    def namespace(self) -> Namespace | None:
        """The argument of which the class only reads fields; None if it has none."""
        return namespace_of(self.cls) if self.settings is None else None

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """Arguments to make one: the constructor's with those it passes on, and the fields of its settings."""
        return {**self._own, **self.handed_on}

    @cached_property
    def _own(self) -> Mapping[str, Argument]:
        if self.settings is not None:
            return {**self.settings.fields, **self.settings.others}
        own = _with_constants(self.cls, arguments(self.cls))
        if self.namespace is None:
            return own
        given = options(self.repository, self.namespace.fields)
        values = {name: read.default for name, read in self.namespace.fields.items() if read.default is not UNKNOWN}
        made = _with_constants(self.config, arguments(self.config)) if self.config is not None else {}
        values |= {name: one.default for name, one in made.items()
                   if name in self.namespace.fields and one.default is not UNKNOWN}  # fmt: skip
        values |= given.values if given is not None else {}
        found = fields(self.repository, self.namespace.fields.keys() - values.keys())
        values |= found.values if found is not None else {}
        choices = given.choices if given is not None else {}
        annotations = {name: f"Literal[{', '.join(map(repr, listed))}]" for name, listed in choices.items()}
        read = {
            name: Argument(name, values.get(name, UNKNOWN), name not in values, annotations.get(name, ""), one.where)
            for name, one in self.namespace.fields.items()
        }
        return {**read, **{name: one for name, one in own.items() if name not in self.namespace.arguments}}

    @cached_property
    def published(self) -> Published | None:
        """Published config of the repository for the model."""
        names = {**self._own, **self._of_base}
        inner = self._inner if self.hands_on else frozenset[str]()
        return published(self.repository, self.made_as, names, inner, self._of_others - {*names, *inner})

    @property
    def config_file(self) -> str:
        """The file of the published config; empty without one."""
        return self.published.where.partition(":")[0] if self.published is not None else ""

    @cached_property
    def _of_others(self) -> frozenset[str]:
        """The arguments of the constructors of the other classes in the file: variants of a model have it in common."""
        source = self.cls.source
        others = (ClassRef(source, one) for name, one in source.classes.items() if name != self.class_name)
        return frozenset(name for one in others for name in arguments(one))

    @property
    def made_as(self) -> str:
        """The class that is called with the values: the dataclass, or the config, where the constructor takes one."""
        made = self.settings.cls if self.settings is not None else self.config
        return made.node.name if made is not None else self.class_name

    @cached_property
    def hands_on(self) -> str:
        """Name of the constructor's `**` parameter; empty if it has none."""
        found = self.cls.method("__init__") if self.settings is None else None
        return found[1].args.kwarg.arg if found is not None and found[1].args.kwarg is not None else ""

    @cached_property
    def handed_on(self) -> Mapping[str, Argument]:
        """Arguments of the base class, and those of inner classes from the published config, a command line or a
        mapping, which the constructor passes on; null for a key that is read and that none of these has.
        """
        if not self.hands_on or self._only_to_base:
            return self._of_base
        keys = required_keys(self.cls, self.hands_on)
        missing = {name: None for name, needed in keys.items() if needed}
        said = [
            Published(missing, self.where),
            published(self.repository, self.made_as, keys) if keys else None,
            options(self.repository, self._looked_up) if self._looked_up else None,
            self.published,
        ]
        own = {*self._own, *(self.namespace.arguments if self.namespace is not None else ())}
        given = {name: Argument(name, value, False, "", one.where) for one in filter(None, said)
                 for name, value in one.values.items() if name not in own}  # fmt: skip
        return {**given, **self._of_base}

    @cached_property
    def _only_to_base(self) -> bool:
        """Return whether the `**` mapping goes to the base's constructor alone, and ends there: it has no `**`."""
        found = self.cls.method("__init__")
        if found is None or not self._of_base:
            return False
        home, init = found
        above = (one for one in self.cls.after(home) if isinstance(one, ClassRef))
        base = next((made for one in above if (made := one.defines("__init__")) is not None), None)
        reads = sum(isinstance(one, ast.Name) and one.id == self.hands_on for one in ast.walk(init))
        return reads == 1 and base is not None and base.args.kwarg is None

    @cached_property
    def _of_base(self) -> Mapping[str, Argument]:
        """The arguments of the base class's constructor that `super().__init__(**kwargs)` passes on."""
        found = self.cls.method("__init__") if self.hands_on else None
        if found is None:
            return {}
        home, init = found
        calls = [one for one in ast.walk(init) if isinstance(one, ast.Call) and constructs_base(one)]
        spread = [one for one in calls if any(word.arg is None and dotted(word.value) == self.hands_on
                                              for word in one.keywords)]  # fmt: skip
        above = (one for one in self.cls.after(home) if isinstance(one, ClassRef) and one.defines("__init__"))
        base = next(above, None)
        rest = f"*{init.args.vararg.arg}" if init.args.vararg is not None else ""  # empty: a config's values have names
        if len(spread) != 1 or any(ast.unparse(one) != rest for one in spread[0].args) or base is None:
            return {}
        passed = {word.arg for word in spread[0].keywords}
        return {name: one for name, one in _with_constants(base, arguments(base)).items()
                if name not in passed and name not in self._own}  # fmt: skip

    @cached_property
    def _inner(self) -> frozenset[str]:
        """The arguments of the constructors of all classes that the model needs."""
        classes = [one for one in self.closure.definitions if isinstance(one.node, ast.ClassDef)]
        inner = (ClassRef(one.source, one.node) for one in classes if isinstance(one.node, ast.ClassDef))
        return frozenset(name for one in inner for name in arguments(one)) | self._looked_up

    @cached_property
    def _looked_up(self) -> frozenset[str]:
        """Names that constructors require from their `**kwargs`."""
        nodes = [one.node for one in self.closure.definitions if isinstance(one.node, ast.ClassDef)]
        made = [
            one for node in nodes for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
        ]
        return frozenset(name for init in made if init.args.kwarg for name in _keys(init, init.args.kwarg.arg))

    @cached_property
    def forward(self) -> Mapping[str, Argument]:
        """Arguments of forward. A mapping read by literal keys alone counts as one argument a key: `cond{text}`."""
        own = self.cls.method("forward")
        found: dict[str, Argument] = {}
        for name, one in arguments(self.cls, "forward").items():
            items = items_read(own[1], name) if own is not None else {}
            for key, needed in items.items():
                part = f"{name}{{{key}}}"
                found[part] = Argument(part, None, needed, "", one.where)
            if not items:
                found[name] = one
        return found

    @cached_property
    def closure(self) -> Closure:
        """Everything that the authors wrote and that the class needs."""
        return closure_of(Defined(self.cls.source, self.class_name, self.cls.node), silent=True)


def _with_constants(cls: ClassRef, own: Mapping[str, Argument]) -> dict[str, Argument]:
    """Return the constructor's arguments, those with their value that are by default a constant of the file, or
    arithmetic.
    """
    found = cls.method("__init__")
    if found is None:
        return {**own}
    home, init = found
    usual = {name: value for name, value in defaults(signature(init)).items() if value is not None}
    values = {name: _constant(resolve(home.source, named)) if (named := dotted(usual[name])) else _plain(usual[name])
              for name, one in own.items()
              if one.default is UNKNOWN and not one.required and name in usual}  # fmt: skip
    return {name: replace(one, default=values.get(name, one.default)) for name, one in own.items()}


def _constant(meant: Defined | str | None) -> Any:
    """Return the literal that a name of the authors' stands for; UNKNOWN for anything else."""
    node = meant.node if isinstance(meant, Defined) else None
    if not isinstance(node, ast.Assign | ast.AnnAssign) or unpacked(node):
        return UNKNOWN
    return _plain(node.value)


def _plain(node: ast.expr | None) -> Any:
    """Return the value of a literal in which numbers may be written as arithmetic, `[1 / 2, -(2**3)]`; UNKNOWN for
    any other expression.
    """
    if node is None or not all(isinstance(one, _PLAIN) for one in ast.walk(node)):
        return literal(node)
    try:
        return plain_items(evaluate(node, Domain()))
    except Unsupported:
        return UNKNOWN


def _keys(function: ast.FunctionDef, mapping: str) -> list[str]:
    """Return the names under which a function reads a mapping, those that it asks for with a default left out."""
    reads = [one for one in ast.walk(function) if isinstance(one, ast.Subscript) and dotted(one.value) == mapping]
    return [
        one.slice.value for one in reads if isinstance(one.slice, ast.Constant) and isinstance(one.slice.value, str)
    ]


def names_reference(given: str) -> bool:
    """Return whether SOURCE is spelled as a class of a repository."""
    if BETWEEN in given:
        return True
    module, between, name = given.partition(":")
    dotted_name = all(part.isidentifier() for part in module.split("."))
    return bool(between) and dotted_name and name.isidentifier() and module != "diffusers"


def find_reference(given: str) -> Reference:
    """Return the class that SOURCE names: `PATH::Class`, `PATH::Class::function` where it is said what samples with it,
    or `package.module:Class`. It is read where it lies; nothing of it is imported.

    Raises:
        BadInput: there is no such path, module or class; several classes have the name; it is not an nn.Module.
    """
    place, _, name = given.partition(BETWEEN) if BETWEEN in given else given.rpartition(":")
    name, _, loop = name.partition(BETWEEN)
    if not name.isidentifier():
        raise BadInput(f"'{given}' names no class", f"write PATH{BETWEEN}Class, or package.module:Class")
    repository, sources = _by_path(place) if BETWEEN in given else _by_module(place)
    found = _defined(sources, name)
    if not found:
        raise BadInput(f"{place} has no class '{name}'", _meant(sources, name))
    if len(found) > 1:
        files = ", ".join(repository.show(one.source.path) for one in found[:3])
        raise BadInput(f"{place} has {len(found)} classes '{name}': {files}", f"write FILE{BETWEEN}{name}")
    if BETWEEN in given and repository.own is None:  # imports may start further in
        repository = repository_of(found[0].source.path, repository.root)
        source = read_source(repository, found[0].source.path)
        found = [ClassRef(source, source.classes[found[0].node.name])]
    own = with_plain_module(with_torch_base(with_library_bases(with_constructor(found[0]))))
    cls = self_contained(with_one_base_call(with_forward(own)))
    cls = adapted(without_helpers(with_plain_reads(cls)))
    cls, shared = with_settings_passed(cls)
    return _checked(Reference(given, repository, cls, loop, shared, forwarded_to(found[0]), config_class(found[0])))


def _by_path(place: str) -> tuple[Repository, list[SourceFile]]:
    path = path_of(place)
    if path is None:
        raise BadInput(f"{place} does not exist", "pass a repository's folder, or one of its files")
    if path.is_dir():
        repository = Repository(REPOSITORY, path.resolve())
        if (path / "__init__.py").is_file():  # a package: imports of its own name start beside it
            repository = repository_of(path.resolve() / "__init__.py")
        files = [file for file in repository.files if file.is_relative_to(path.resolve())]
        if not files:
            raise BadInput(f"{place} contains no Python files", "pass a repository's folder, or one of its files")
        if len(files) > _MOST_FILES:
            raise BadInput(f"{place} holds {len(files)} Python files", "pass the file that has the class")
        return repository, read_all(repository, files)
    if path.suffix != ".py":
        refuse_other_formats(path, place)
        raise BadInput(f"{place} is not a Python file", "pass a repository's folder, or one of its files")
    repository = repository_of(path)
    return repository, [read_source(repository, path.resolve())]


def _by_module(module: str) -> tuple[Repository, list[SourceFile]]:
    """Return a module that could be imported from here: its outermost package is found without importing anything."""
    head = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(head)
    except (ImportError, ValueError):
        spec = None
    beside = Path(head).is_dir() or Path(f"{head}.py").is_file()
    origins = [*(spec.submodule_search_locations or ()), spec.origin] if spec is not None else []
    root = Path() if beside else next((Path(one).parent for one in origins if one and Path(one).exists()), None)
    if root is None:
        raise BadInput(f"there is no module '{head}' to read", f"write PATH{BETWEEN}Class for what is not installed")
    package = root.resolve() / head
    repository = Repository(REPOSITORY, root.resolve(), package if package.is_dir() else None)
    file = repository.module_file(module)
    if file is None:
        raise BadInput(f"{head} has no module '{module}'", "pass the module that has the class")
    return repository, [read_source(repository, file.resolve())]


def _defined(sources: list[SourceFile], name: str) -> list[ClassRef]:
    """Return the classes of that name in these files; those that one alone imports count where it is the only file."""
    own = [ClassRef(one, one.classes[name]) for one in sources if name in one.classes]
    if own or len(sources) != 1:
        return own
    meant = resolve(sources[0], name)
    known = isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef)
    return [ClassRef(meant.source, meant.node)] if known else []  # type: ignore[union-attr, arg-type]


def _meant(sources: list[SourceFile], name: str) -> str:
    close = get_close_matches(name, [cls for one in sources for cls in one.classes], n=3)
    return f"did you mean {', '.join(close)}?" if close else "pass the file that defines it"


def _checked(found: Reference) -> Reference:
    if _derives_from(found.cls, (_PIPELINE,)):
        what = f"{found.class_name} is a pipeline outside diffusers: {found.where}"
        raise BadInput(what, "pass FILE::Class of a class that has __call__, or the class of this pipeline's denoiser")
    if not is_module(found.cls):
        if outside := next(_bases_outside(found.cls), ""):
            what = f"{found.class_name} derives from {outside}, which the repository does not contain: {found.where}"
            hint = "add that class to a copy of the authors' files, and pass the class there"
            raise BadInput(what, f"{hint}; or pass another class of the model")
        raise BadInput(f"{found.class_name} is not an nn.Module: {found.where}", "pass the class of the model itself")
    if found.cls.method("forward") is None:
        hint = (
            "pass the class of the model itself; if code calls its parts one by one, write a class whose forward does"
        )
        raise BadInput(f"{found.class_name} has no forward: {found.where}", f"{hint}, in a copy of the authors' files")
    return found


def _bases_outside(cls: ClassRef) -> Iterator[str]:
    """Yield the bases of a class, and of its bases, that are of other packages than Python's own."""
    bases = ((one, base) for one in cls.mro if isinstance(one, ClassRef) for base in map(dotted, one.node.bases))
    meant = (resolve(one.source, base) for one, base in bases if base)
    outside = (one for one in meant if isinstance(one, str) and "." in one)
    yield from (one for one in outside if one.partition(".")[0] not in sys.stdlib_module_names)


def is_module(cls: ClassRef) -> bool:
    """Return whether a class is a module of torch, by its bases."""
    return _derives_from(cls, _ROOTS)


def _derives_from(cls: ClassRef, roots: tuple[str, ...]) -> bool:
    """Return whether a base of a class, or of its bases, resolves to one of these names of another library."""
    found = ((entry, base) for entry in cls.mro if isinstance(entry, ClassRef) for base in entry.node.bases)
    meanings = ((resolve(entry.source, name), name) for entry, base in found if (name := dotted(base)))
    return any(one.endswith(roots) for meant, name in meanings for one in _imported_as(meant, name))


def _imported_as(meant: Defined | str | None, name: str) -> Iterator[str]:
    """Yield the absolute names that a name may have; several where a `try` imports it from one of several places."""
    if isinstance(meant, str):
        yield meant
    elif meant is not None and isinstance(meant.node, ast.Try | ast.If):
        for node in ast.walk(meant.node):
            if isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{one.name}" for one in node.names if (one.asname or one.name) == name)
