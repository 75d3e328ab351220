"""Config fields that a model's code reads, and their uses: read from its source."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal

_OWNER, _CONFIG_CLASS = "config", "Config"
# Names of the number of a layer.
_LAYER = ("idx", "layer", "index")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Use(StrEnum):
    """Use of a field's value in code."""

    looked_up = "looked up in a table"
    contains = "asked whether it contains a layer"
    stride = "divides the number of a layer"
    threshold = "compared with the number of a layer"
    by_layer = "has an entry for each layer"
    optional = "may be None"
    switch = "decides a branch"


@dataclass
class ConfigField:
    """One field of a config.

    Attributes:
        uses: what the code does with it.
        tables: the names of the tables in which it is looked up.
        constants: the strings that it is compared with.
        default: what `getattr` returns where the config lacks the field; UNKNOWN without such a default.
    """

    name: str
    uses: set[Use] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    default: Any = UNKNOWN


@dataclass(frozen=True)
class FieldsRead:
    """Config fields that code reads.

    Attributes:
        pairs: fields that one condition depends on together.
        strings: every string constant of the code.
    """

    fields: Mapping[str, ConfigField]
    pairs: frozenset[tuple[str, str]]
    strings: frozenset[str]


def fields_read(trees: Iterable[ast.AST]) -> FieldsRead:
    """Return the fields that code reads from anything that is called a config, and what it does with each."""
    found: dict[str, ConfigField] = {}
    pairs: set[tuple[str, str]] = set()
    strings: set[str] = set()
    for tree in trees:
        reader = _Reader(tree, found)
        reader.read()
        pairs |= reader.pairs
        strings |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return FieldsRead(found, frozenset(pairs), frozenset(strings))


class _Reader:
    """Notes the fields that one tree reads.

    Args:
        found: what is known of each field; grows.
    """

    def __init__(self, tree: ast.AST, found: dict[str, ConfigField]) -> None:
        self._tree, self._found = tree, found
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._aliases: dict[tuple[ast.AST | None, str], str] = {}
        self.pairs: set[tuple[str, str]] = set()

    def read(self) -> None:
        """Note every read, directly or by another name, then what each condition depends on."""
        for node in ast.walk(self._tree):
            if name := self._direct(node):
                self._name_again(node, name)
        for node in ast.walk(self._tree):
            if name := self._direct(node) or self._alias(node):
                self._note(node, self._found[name])
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.If, ast.IfExp, ast.While)):
                self._meet(node)

    def _direct(self, node: ast.AST) -> str:
        """Return the field that an expression reads from a config; empty if it reads none."""
        match node:
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()) if _is_config(owner):
                called = isinstance(parent := self._parents.get(node), ast.Call) and parent.func is node
                return "" if called else self._field(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *default]):
                if _is_config(owner):
                    self._field(name, default[0] if default else None)
                    return name
            case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str(name))]) if _is_config(
                owner
            ):
                return self._field(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()) if self._of_config_class(node):
                called = isinstance(parent := self._parents.get(node), ast.Call) and parent.func is node
                return "" if called else self._field(name)
        return ""

    def _of_config_class(self, node: ast.AST) -> bool:
        around = self._around(node, (ast.ClassDef,))
        return isinstance(around, ast.ClassDef) and around.name.endswith(_CONFIG_CLASS)

    def _field(self, name: str, default: ast.expr | None = None) -> str:
        one = self._found.setdefault(name, ConfigField(name))
        if default is not None:
            one.default = literal(default) if one.default is UNKNOWN else one.default
            if isinstance(default, ast.Constant) and default.value is None:
                one.uses.add(Use.optional)
        return name

    def _name_again(self, node: ast.AST, name: str) -> None:
        """Other names under which a class or a function keeps a field."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.Assign) and parent.value is node:
            for target in parent.targets:
                match target:
                    case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                        self._aliases[self._around(node, (ast.ClassDef,)), f"self.{attribute}"] = name
                    case ast.Name(id=local):
                        self._aliases[self._around(node, _FUNCTIONS), local] = name

    def _alias(self, node: ast.AST) -> str:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Load()):
                return self._aliases.get((self._around(node, (ast.ClassDef,)), f"self.{attribute}"), "")
            case ast.Name(id=local, ctx=ast.Load()):
                return self._aliases.get((self._around(node, _FUNCTIONS), local), "")
        return ""

    def _around(self, node: ast.AST, kinds: tuple[type, ...]) -> ast.AST | None:
        above = self._parents.get(node)
        while above is not None and not isinstance(above, kinds):
            above = self._parents.get(above)
        return above

    def _note(self, node: ast.AST, one: ConfigField) -> None:
        """Note the use of a value in the expression around its read."""
        match self._parents.get(node):
            case ast.Subscript(value=ast.Name(id=table), slice=index) if index is node:
                if table.isupper() or table.upper() == table:
                    one.uses.add(Use.looked_up)
                    one.tables.add(table)
            case ast.Subscript(value=value, slice=index) if value is node and _is_layer(index):
                one.uses.add(Use.by_layer)
            case ast.BinOp(op=ast.Mod(), left=left, right=right) if right is node and _is_layer(left):
                one.uses.add(Use.stride)
            case ast.Compare() as compare:
                self._compared(compare, node, one)
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.If() | ast.IfExp():
                one.uses.add(Use.switch)

    def _compared(self, compare: ast.Compare, node: ast.AST, one: ConfigField) -> None:
        sides = [compare.left, *compare.comparators]
        others = [side for side in sides if side is not node]
        operation = compare.ops[0]
        constants = [part.value for side in others for part in ast.walk(side) if isinstance(part, ast.Constant)]
        if isinstance(operation, (ast.In, ast.NotIn)) and compare.left is not node:
            one.uses.add(Use.contains)
        elif isinstance(operation, (ast.Is, ast.IsNot)) and None in constants:
            one.uses.add(Use.optional)
        elif isinstance(operation, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and any(_is_layer(side) for side in others):
            one.uses.add(Use.threshold)
        one.constants |= {value for value in constants if isinstance(value, str)}

    def _meet(self, node: ast.If | ast.IfExp | ast.While) -> None:
        names = self._names(node if isinstance(node, ast.IfExp) else node.test)
        above = self._around(node, (ast.If, *_FUNCTIONS))
        if isinstance(above, ast.If):
            names |= self._names(above.test)
        self.pairs |= set(combinations(sorted(names), 2))

    def _names(self, node: ast.AST) -> set[str]:
        return {self._direct(part) or self._alias(part) for part in ast.walk(node)} - {""}


def _is_config(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr.endswith(_OWNER)
    return isinstance(node, ast.Name) and node.id.endswith(_OWNER)


def _is_layer(node: ast.AST) -> bool:
    """Return whether an expression counts layers: it contains a name such as `layer_idx`, or `i` alone."""
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    names = [part.id if isinstance(part, ast.Name) else part.attr for part in parts]
    return any(name == "i" or any(word in name for word in _LAYER) for name in names)
