"""A constructor that takes an object only to read its fields: the `args` of a command line, or a loaded config."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import field_read, literal
from omni_kit.pysource.signatures import passed, positional, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve

_HAS = "hasattr"


@dataclass(frozen=True)
class Read:
    """A field that is read.

    Attributes:
        where: file:line of one read.
        default: what `get` or `getattr` takes in its place; UNKNOWN if the field must be there.
        tested: `hasattr` asks whether it is there; by default it is not.
    """

    where: str
    default: Any = UNKNOWN
    tested: bool = False


@dataclass(frozen=True)
class Apart:
    """A field of a section that has the name of another section's, or of one outside them.

    Attributes:
        section: the name of the section.
        field: what it is called there.
        argument: what it is called here.
    """

    section: str
    field: str
    argument: str


@dataclass(frozen=True)
class Namespace:
    """Arguments of which the class, and the classes and functions that it passes them to, read fields by name.

    Attributes:
        arguments: the names that the constructor has for them; one object stands for all.
        fields: name -> its read.
        sections: names of parts that hold fields in their turn, as `model` of `config.model.width` or of
            `config["model"]["width"]`; each field has a name of its own, so that one flat object can stand for all.
        apart: fields that have a name of another one, by their reads in the constructor, as written.
        aliases: variables of the constructor that are a section.
        readers: functions and other classes that read a section, each with a name that it has for the object.
    """

    arguments: tuple[str, ...]
    fields: Mapping[str, Read]
    sections: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    readers: frozenset[tuple[str, str]] = frozenset()
    apart: Mapping[str, Apart] = field(default_factory=dict)

    @property
    def argument(self) -> str:
        """The first of them."""
        return self.arguments[0]

    def joined(self, other: "Namespace") -> "Namespace":
        """Return both as one."""
        return Namespace(
            (*self.arguments, *other.arguments), {**self.fields, **other.fields}, self.sections | other.sections,
            self.aliases | other.aliases, self.readers | other.readers, {**self.apart, **other.apart},
        )  # fmt: skip

    def is_apart(self, other: "Namespace") -> bool:
        """Return whether no name of a field of one is any name in the other."""
        fields, others = self.fields.keys(), other.fields.keys()
        return not fields & others and not fields & other.sections and not others & self.sections


def namespace_of(cls: ClassRef) -> Namespace | None:
    """Return the constructor's arguments that are namespaces, as one; None if it has none. They are required, or None
    by default, which has no field either.

    Fields are read as attributes, as items under a literal text, by `get` or by `getattr`. Any other use rules an
    argument out, and so does a field with the name of another argument.
    """
    found = cls.method("__init__")
    if found is None:
        return None
    init = found[1]
    positional = [one.arg for one in (*init.args.posonlyargs, *init.args.args)]
    defaults = [None] * (len(positional) - len(init.args.defaults)) + [*init.args.defaults]
    named = [*zip(positional, defaults, strict=True)][1:]
    named += zip((one.arg for one in init.args.kwonlyargs), init.args.kw_defaults, strict=True)
    required = [name for name, default in named if default is None or literal(default) is None]
    names = {*positional, *(one.arg for one in init.args.kwonlyargs)}
    joined: Namespace | None = None
    for argument in required:
        reader = _Reader(cls)
        plain = reader.follow(_Place(found[0].source, init, cls, found[0]), argument)
        if plain and reader.fields and not reader.fields.keys() & {*names, *reader.sections}:
            sections, aliases = frozenset(reader.sections), frozenset(reader.aliases)
            one = Namespace((argument,), reader.fields, sections, aliases, frozenset(reader.readers), reader.apart)
            if joined is None:
                joined = one
            elif joined.is_apart(one):
                joined = joined.joined(one)
    return joined


@dataclass(frozen=True)
class _Place:
    """A function, or a method of a class; `home` is the class whose body has the method."""

    source: SourceFile
    function: ast.FunctionDef
    cls: ClassRef | None = None
    home: ClassRef | None = None

    @property
    def name(self) -> str:
        return self.home.node.name if self.home is not None else self.function.name


@dataclass
class _Reader:
    """Collects the fields that are read of one object, wherever it is passed to; those in sections in `root`, and in
    functions.
    """

    root: ClassRef
    fields: dict[str, Read] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)
    readers: set[tuple[str, str]] = field(default_factory=set)
    apart: dict[str, Apart] = field(default_factory=dict)
    _paths: dict[str, str] = field(default_factory=dict)
    _seen: set[tuple[ast.AST, str]] = field(default_factory=set)

    def follow(self, place: _Place, argument: str) -> bool:
        """Return whether a function does nothing with an argument but read its fields, keep it, and pass it on."""
        if (place.function, argument) in self._seen:
            return True
        self._seen.add((place.function, argument))
        kept = {f"self.{attribute}" for attribute in _kept(place.function, argument)}
        holders = [(place, argument)]
        if kept and place.cls is not None:
            homes = [one for one in place.cls.mro if isinstance(one, ClassRef)]
            methods = [(one, item) for one in homes for item in one.node.body if isinstance(item, ast.FunctionDef)]
            holders += [
                (_Place(one.source, item, place.cls, one), holder) for holder in kept for one, item in methods
            ]  # fmt: skip
        return all(self._only_read(where, holder) for where, holder in holders)

    def _only_read(self, place: _Place, holder: str, path: str = "") -> bool:
        above = {child: node for node in ast.walk(place.function) for child in ast.iter_child_nodes(node)}
        mentions = [
            node for node in ast.walk(place.function)
            if isinstance(node, ast.Name | ast.Attribute) and dotted(node) == holder
            and isinstance(node.ctx, ast.Load)
        ]  # fmt: skip
        mentions.sort(key=lambda node: (node.lineno, node.col_offset))  # the first of two names stays as it is
        return all(self._is_read(place, node, holder, above, path) for node in mentions)

    def _is_read(self, place: _Place, node: ast.expr, holder: str, above: Mapping[ast.AST, ast.AST], path: str) -> bool:
        parent = above[node]
        if isinstance(parent, ast.Assign):
            return parent.value is node and all(_own(target) for target in parent.targets)
        if (asked := _asked(parent, node)) is not None:
            return self._found(place, parent, asked, ast.Constant(None), path)
        further = above.get(parent)
        called = isinstance(further, ast.Call) and further.func is parent
        read = further if called and further is not None else parent
        found = field_read(read, holder)
        if found is None:
            call = further if isinstance(parent, ast.keyword) else parent
            return isinstance(call, ast.Call) and node is not call.func and self._handed_on(place, call, node)
        if isinstance(read, ast.Attribute | ast.Subscript):
            items = isinstance(read, ast.Subscript) and isinstance(further, ast.Subscript)
            deeper = isinstance(further, ast.Attribute) or (items and isinstance(literal(further.slice), str))  # type: ignore[union-attr]
            if not isinstance(read.ctx, ast.Load):
                return False
            alias = _alias(place.function, read, further)
            if deeper and _is_method(further, above):  # of the field's value
                deeper = False
            deeper = deeper or _asked(further, read) is not None
            if deeper or alias:
                inner = f"{path}.{found[0]}"
                own = place.cls is self.root
                self.sections.add(found[0])
                self.readers |= set() if own else {(place.name, holder)}
                self.aliases |= {alias} if alias and own else set()
                if alias:
                    return self._only_read(place, alias, inner)
                return self._is_read(place, read, ast.unparse(read), above, inner)
        return self._found(place, read, *found, path)

    def _found(self, place: _Place, read: ast.AST, name: str, default: ast.expr | None, path: str) -> bool:
        """Note a read of a field; in the constructor a field of a section may have the name of another one."""
        if self._paths.setdefault(name, path) == path:
            return self._note(place, read, name, default)
        section = path.rpartition(".")[2]
        apart = Apart(section, name, f"{section}_{name}")
        if not section or place.cls is not self.root or place.function.name != "__init__":
            return False
        self.apart[ast.unparse(read)] = apart
        free = self._paths.setdefault(apart.argument, f"{path} apart") == f"{path} apart"
        return free and self._note(place, read, apart.argument, default)

    def _note(self, place: _Place, node: ast.AST, name: str, default: ast.expr | None) -> bool:
        known = self.fields.get(name, Read(place.source.where(node)))
        tested = known.tested or (isinstance(node, ast.Call) and dotted(node.func) == _HAS)
        value = literal(default) if known.default is UNKNOWN else known.default
        self.fields[name] = Read(known.where, value, tested)
        return name.isidentifier()

    def _handed_on(self, place: _Place, call: ast.Call, node: ast.expr) -> bool:
        """Return whether what a call goes to only reads it as well."""
        for callee, bound in _callees(place, call):
            order = positional(signature(callee.function))[bound:]
            given = passed(call, order) if not any(isinstance(one, ast.Starred) for one in call.args) else {}
            given |= {one.arg: one.value for one in call.keywords if one.arg}
            argument = next((name for name, value in given.items() if value is node), None)
            return argument is not None and self.follow(callee, argument)
        return False


def _asked(call: ast.AST | None, holder: ast.expr) -> str | None:
    """Return the field of which a call asks whether a holder has it; None for anything else."""
    match call:
        case ast.Call(func=ast.Name(id=name), args=[held, ast.Constant(value=str(field_name))]) if name == _HAS:
            return field_name if held is holder else None
    return None


def _is_method(node: ast.AST | None, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Return whether an attribute is a method that is called, other than one that reads a field."""
    called = above.get(node) if node is not None else None
    return (
        isinstance(node, ast.Attribute) and isinstance(called, ast.Call) and called.func is node and node.attr != "get"
    )


def _alias(function: ast.FunctionDef, node: ast.expr, assigned: ast.AST | None) -> str:
    """Return the variable that an assignment makes of a section, and of which only fields are read; empty for any
    other.
    """
    if not isinstance(assigned, ast.Assign) or assigned.value is not node or len(assigned.targets) != 1:
        return ""
    name = dotted(assigned.targets[0]) or ""
    above = {child: one for one in ast.walk(function) for child in ast.iter_child_nodes(one)}
    reads = [one for one in ast.walk(function) if field_read(one, name) is not None and not _is_method(one, above)]
    stored = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name
              and isinstance(one.ctx, ast.Store)]  # fmt: skip
    return name if name.isidentifier() and reads and len(stored) == 1 else ""


def _kept(function: ast.FunctionDef, argument: str) -> set[str]:
    """Return the attributes of `self` that a function sets to an argument itself."""
    nodes = (one for one in ast.walk(function) if isinstance(one, ast.Assign) and dotted(one.value) == argument)
    return {attribute for one in nodes for target in one.targets if (attribute := _own(target))}


def _own(target: ast.expr) -> str:
    """Return the name of an attribute of `self`; empty for anything else."""
    return target.attr if isinstance(target, ast.Attribute) and dotted(target.value) == "self" else ""


def _callees(place: _Place, call: ast.Call) -> Iterator[tuple[_Place, int]]:
    """Yield the authors' function that a call runs, and how many arguments are passed implicitly."""
    name = dotted(call.func) or ""
    if place.cls is not None and name.startswith("self.") and name.count(".") == 1:
        found = place.cls.method(name.removeprefix("self."))
        yield from [(_Place(found[0].source, found[1], place.cls, found[0]), 1)] if found is not None else []
    elif place.cls is not None and place.home is not None and _is_super(call.func, place.function.name):
        for one in place.cls.after(place.home):
            if isinstance(one, ClassRef) and (method := one.defines(place.function.name)) is not None:
                yield _Place(one.source, method, place.cls, one), 1
                return
    elif name and isinstance(meant := resolve(place.source, name), Defined):
        if isinstance(meant.node, ast.FunctionDef):
            yield _Place(meant.source, meant.node), 0
        elif isinstance(meant.node, ast.ClassDef):
            cls = ClassRef(meant.source, meant.node)
            made = cls.method("__init__")
            yield from [(_Place(made[0].source, made[1], cls, made[0]), 1)] if made is not None else []


def _is_super(function: ast.expr, method: str) -> bool:
    own = isinstance(function, ast.Attribute) and function.attr == method and isinstance(function.value, ast.Call)
    return own and dotted(function.value.func) == "super"  # type: ignore[attr-defined]
