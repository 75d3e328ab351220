"""Attributes in which a converter keeps tensors, and those that its finalize checks."""

import ast
from collections.abc import Iterator, Mapping

from omni_checkers.engine.files import walked
from omni_checkers.veomni.facts.conversion import ConverterClass

_KEEPERS = {"append", "extend", "add", "update", "setdefault", "insert", "__setitem__"}
_LOOSE = {"get", "setdefault", "pop", "items", "values", "keys", "copy"}


def unchecked_buffers(converter: ConverterClass) -> tuple[list[str], list[str]]:
    """(buffers that finalize neither returns nor raises for, all buffers), both as attribute names."""
    kept = sorted(_buffers(converter.methods))
    finalize = converter.methods.get("finalize")
    if finalize is None:
        return kept, kept
    return [name for name in kept if not _Checked(converter.methods, name).by(finalize)], kept


def _buffers(methods: Mapping[str, ast.FunctionDef]) -> set[str]:
    """Return attributes into which the tensor that `convert` is given flows, from one to the next, too."""
    tensors = frozenset(arg.arg for arg in methods["convert"].args.args[2:3])
    found: set[str] = set()
    known: set[str] | None = None
    while found != known:  # a buffer that one round finds may fill another in the next
        known = set(found)
        _follow_calls(methods, tensors, found)
    return found


def _follow_calls(methods: Mapping[str, ast.FunctionDef], tensors: frozenset[str], found: set[str]) -> None:
    """Add the buffers that `convert` and the methods that it calls fill, starting from these parameters."""
    todo = [("convert", tensors)]
    seen = set()
    while todo:
        name, carried = todo.pop()
        if (name, carried) in seen:
            continue
        seen.add((name, carried))
        flow = _Flow(carried, found)
        flow.follow(methods[name])
        for call in flow.calls:
            callee = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if callee in methods:
                todo.append((callee, frozenset(_bound_tensors(methods[callee], call, flow))))


def _bound_tensors(callee: ast.FunctionDef, call: ast.Call, flow: "_Flow") -> Iterator[str]:
    """Yield parameters of a method that a call gives a tensor to."""
    names = [arg.arg for arg in callee.args.args][1:]
    for name, value in zip(names, call.args, strict=False):
        if flow.carries(value):
            yield name
    for keyword in call.keywords:
        if keyword.arg and flow.carries(keyword.value):
            yield keyword.arg


class _Flow:
    """Flow of tensors inside one method."""

    def __init__(self, tensors: frozenset[str], buffers: set[str]) -> None:
        self.tensors = set(tensors)
        self.roots: dict[str, str] = {}
        self.buffers = buffers
        self.calls: list[ast.Call] = []

    def follow(self, function: ast.FunctionDef) -> None:
        for _ in range(2):  # an alias may be used above the line that makes it, inside a loop
            for node in walked(function):
                self._visit(node)

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and self.root(node.iter):
            self.roots[node.target.id] = self.root(node.iter) or ""
        elif isinstance(node, ast.Call):
            self._call(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if root := self.root(value):
                self.roots[target.id] = root
            elif self.carries(value):
                self.tensors.add(target.id)
        elif isinstance(target, (ast.Attribute, ast.Subscript)) and self.carries(value) and (root := self.root(target)):
            self.buffers.add(root)

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute):
            return
        root = self.root(node.func.value)
        given = any(self.carries(value) for value in (*node.args, *(k.value for k in node.keywords)))
        if root and node.func.attr in _KEEPERS and given:
            self.buffers.add(root)
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
            self.calls.append(node)

    def carries(self, node: ast.AST) -> bool:
        """Return whether an expression may hold a tensor: it mentions one, and does not just measure it."""
        if isinstance(node, ast.Name):
            return node.id in self.tensors or self.roots.get(node.id) in self.buffers
        if isinstance(node, ast.Compare):
            return False
        if isinstance(node, ast.Attribute) and node.attr in {"shape", "dtype", "device", "ndim", "name"}:
            return False
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"len", "str", "isinstance"}
        ):
            return False
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"size", "numel", "dim"}
        ):
            return False
        if self.root(node) in self.buffers:
            return True
        return any(self.carries(child) for child in ast.iter_child_nodes(node))

    def root(self, node: ast.AST) -> str | None:
        """Return the attribute of self that an expression leads into."""
        while True:
            if isinstance(node, ast.Attribute):
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    return node.attr
                node = node.value
            elif isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOSE:
                node = node.func.value
            else:
                return self.roots.get(node.id) if isinstance(node, ast.Name) else None


class _Checked:
    """True if one attribute is accounted for, through conditions, collected messages and helper methods."""

    def __init__(self, methods: Mapping[str, ast.FunctionDef], attribute: str) -> None:
        self.methods = methods
        self.attribute = attribute
        self.tainted: set[str] = set()
        self._inside: set[str] = set()

    def by(self, function: ast.FunctionDef) -> bool:
        """Return whether a raise of the method depends on the attribute, or what it returns does."""
        returned = (node.value for node in walked(function) if isinstance(node, ast.Return) and node.value is not None)
        return self.raises(function) or any(self._about(value) for value in returned)

    def raises(self, function: ast.FunctionDef) -> bool:
        """Return whether calling the method raises because of the attribute."""
        if function.name in self._inside:
            return False
        self._inside.add(function.name)
        try:
            passes = [self._block(function.body, False) for _ in range(2)]  # a name may be tainted below its use
            return any(passes)
        finally:
            self._inside.discard(function.name)

    def _block(self, body: list[ast.stmt], guarded: bool) -> bool:
        return any(self._statement(statement, guarded) for statement in body)

    def _statement(self, node: ast.stmt, guarded: bool) -> bool:
        if isinstance(node, ast.Raise):
            return guarded
        if isinstance(node, ast.Assert):
            return self._about(node.test)
        if isinstance(node, (ast.If, ast.While)):
            inner = guarded or self._about(node.test)
            return self._block(node.body, inner) or self._block(node.orelse, inner)
        if isinstance(node, (ast.For, ast.AsyncFor)):
            inner = guarded or self._about(node.iter)
            if inner:
                self._taint(node.target)
            return self._block(node.body, inner) or self._block(node.orelse, inner)
        if isinstance(node, ast.Try):
            swallowed = any(not _raises_again(handler) for handler in node.handlers)
            inside = self._block(node.body, guarded) and not swallowed
            return inside or self._block(node.orelse, guarded) or self._block(node.finalbody, guarded)
        if isinstance(node, ast.With):
            return self._block(node.body, guarded)
        if isinstance(node, ast.Match):
            inner = guarded or self._about(node.subject)
            return any(self._block(case.body, inner) for case in node.cases)
        return self._simple(node, guarded)

    def _simple(self, node: ast.stmt, guarded: bool) -> bool:
        """Assignments and calls: names become tainted; a helper may raise."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and (guarded or self._about(node)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._taint(target)
        for call in (item for item in walked(node) if isinstance(item, ast.Call)):
            if not isinstance(call.func, ast.Attribute):
                continue
            if guarded or any(self._about(value) for value in (*call.args, *(k.value for k in call.keywords))):
                self._taint(call.func.value)
            callee = self.methods.get(call.func.attr) if _is_self(call.func.value) else None
            if callee is not None and (self.raises(callee) or (guarded and _may_raise(callee))):
                return True
        return False

    def _taint(self, target: ast.expr) -> None:
        for item in walked(target):
            if isinstance(item, ast.Name) and item.id != "self":
                self.tainted.add(item.id)

    def _about(self, node: ast.AST) -> bool:
        """Return whether an expression depends on the attribute."""
        for item in walked(node):
            if isinstance(item, ast.Name) and item.id in self.tainted:
                return True
            own = item.attr if isinstance(item, ast.Attribute) and _is_self(item.value) else None
            if own is not None and (own == self.attribute or self._helper_about(own)):
                return True
        return False

    def _helper_about(self, name: str) -> bool:
        """Return whether a method or property of the class reads the attribute."""
        helper = self.methods.get(name)
        if helper is None or name in self._inside:
            return False
        self._inside.add(name)
        try:
            return any(self._about(statement) for statement in helper.body)
        finally:
            self._inside.discard(name)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _may_raise(function: ast.FunctionDef) -> bool:
    return any(isinstance(item, ast.Raise) for item in walked(function))


def _raises_again(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(item, ast.Raise) for item in walked(handler))
