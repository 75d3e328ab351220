"""The modules that classes hold: what constructors make, and what they get from those that call them."""

import ast
from collections.abc import Iterator, Mapping
from itertools import chain

from omni_kit.pysource.source import SourceFile
from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.upstream.repositories.constructed import constructs_base

_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
_INIT, _INITS = "__init__", ("__init__", "__post_init__")  # the latter of a dataclass
_NUMBER = r"\.(\d+)"
_NAME = r"\.(\w+)"
_OF_CALLER = "="  # before the name of an argument: whatever a function gets there
Held = dict[tuple[str, str], list[str]]
"""The attribute, and what stands between it and a module -> the classes of such modules."""
_Module = tuple[str, str]  # a class, and the part of a path that containers around it give
_Local = Mapping[str, list[_Module]]


def held_by(parts: Parts, others: Mapping[str, str]) -> dict[str, Held]:
    """Return the class, as it is called in the file -> the modules of the file that its attributes hold.

    Args:
        others: what classes of torch's are called in the file where another stands in their place.
    """
    reader = _Reader(parts, others)
    held = {part.name: reader.held(part.definition.node, part.name)
            for part in reversed(parts.parts) if part.cls is not None}  # fmt: skip
    for part in parts.parts:  # what a base makes, a class has, too
        for base in getattr(part.definition.node, "bases", []) if part.name in held else ():
            held[part.name] = held.get(reader.classes.get(last_name(base), ""), {}) | held[part.name]
    return held


class _Reader:
    """Reads classes of a file, each before those that it makes: what these get is known by then.

    Attributes:
        classes: what the authors call a class -> what it is called in the file.
        made: class, function or table -> the modules that a call of it gives.
    """

    def __init__(self, parts: Parts, others: Mapping[str, str]) -> None:
        self.classes = {part.definition.name: part.name for part in parts.parts if part.cls is not None}
        self.made: dict[str, list[_Module]] = {name: [(cls, "")] for name, cls in self.classes.items()}
        self.made |= {name: [(cls, "")] for name, cls in others.items()}
        self._lists = {*_CONTAINERS}
        self._named = {name: kind for part in parts.parts for name, kind in _containers(part.definition.source)}
        self._functions: dict[str, ast.FunctionDef] = {}
        self._inits: dict[str, tuple[str, ast.FunctionDef]] = {}  # with the class that defines it
        self._passed: dict[tuple[str, str], list[_Module]] = {}
        self._kinds: dict[tuple[str, str], list[str]] = {}
        for part in parts.parts:  # each after what it needs
            self._read(part.definition.node, part.definition.name)

    def _read(self, node: ast.stmt, name: str) -> None:
        """Note a definition: what a function returns, a table leads to, or a class is."""
        if isinstance(node, ast.FunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            local: _Local = {one.arg: [(f"{_OF_CALLER}{one.arg}", "")] for one in given}
            local = {**local, **self._variables([node], local)}
            values = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
            if made := list(dict.fromkeys(chain(*(self._modules(value, local) for value in values)))):
                self.made[name], self._functions[name] = made, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            made = [one for value in node.value.values for one in self.made.get(last_name(value), [])]
            self.made |= {name: list(dict.fromkeys(made))} if made else {}
        elif isinstance(node, ast.ClassDef):
            bases = {last_name(one) for one in node.bases}
            self._lists |= {name} if bases & self._lists - {"ModuleDict"} else set()
            inits = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == _INIT]
            above = [self._inits[base] for base in bases if base in self._inits]
            if inits or above:
                self._inits[name] = (self.classes.get(name, name), inits[0]) if inits else above[0]

    def held(self, node: ast.stmt, name: str) -> Held:
        """Return the attributes of a class that hold modules of the file, with what stands between, and the classes."""
        found: Held = {}
        inits = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and one.name in _INITS]
        before = self.made
        self.made = {**before, **self._classes_held(node, name)}
        local: _Local = {given: [*dict.fromkeys(one)] for (cls, given), one in self._passed.items() if cls == name}
        local = {**local, **self._variables(inits, local)}
        for one in ast.walk(node):
            attribute, value, between = "", None, ""
            if isinstance(one, ast.Assign | ast.AnnAssign):
                attribute, value = _own(one.targets[0] if isinstance(one, ast.Assign) else one.target), one.value
            elif isinstance(one, ast.Call) and (attribute := _own(grown) if (grown := _grown(one)) is not None else ""):
                value, between = one.args[-1], _NUMBER
            elif isinstance(one, ast.Call) and constructs_base(one) and isinstance(node, ast.ClassDef):
                for base in node.bases:
                    self._pass(last_name(base), one, local)
            if attribute and value is not None:
                for cls, inside in self._modules(value, local):
                    found.setdefault((attribute, between + inside), []).append(cls)
        self.made = before
        return {name: list(dict.fromkeys(classes)) for name, classes in found.items()}

    def _classes_held(self, node: ast.stmt, name: str) -> dict[str, list[_Module]]:
        """Return the variables, arguments and attributes that hold a class of the file, by their last name."""
        found: dict[str, list[_Module]] = {
            argument: [(one, "") for one in classes] for (cls, argument), classes in self._kinds.items() if cls == name
        }
        for one in (each for each in ast.walk(node) if isinstance(each, ast.Assign)):
            values = [one.value.body, one.value.orelse] if isinstance(one.value, ast.IfExp) else [one.value]
            names = {**self.made, **found}
            made = [made for value in values if isinstance(value, ast.Name) for made in names.get(value.id, [])]
            for target in one.targets if made else ():
                found.setdefault(last_name(target), []).extend(made)
        return found

    def _modules(self, value: ast.AST, local: _Local, inside: str = "") -> Iterator[_Module]:
        """Yield the classes of which a value makes modules, each with the part of its path that containers in it
        give.
        """
        if isinstance(value, ast.Call):
            kind = self._named.get(last_name(value.func), last_name(value.func))
            function = self._functions.get(kind)
            given = dict(_given(value, function)) if function is not None else {}
            for cls, more in self.made.get(kind, []):
                if not cls.startswith(_OF_CALLER):
                    yield cls, inside + more
                elif (argument := given.get(cls.removeprefix(_OF_CALLER))) is not None:
                    yield from self._modules(argument, local, inside + more)
            if function is not None:
                return
            if kind in self._inits and kind not in self._lists:
                self._pass(kind, value, local)
                return
            inside += _NAME if kind == "ModuleDict" else _NUMBER if kind in self._lists else ""
            lists = [one.value for one in value.args if isinstance(one, ast.Starred)]
            lists += value.args if kind == "ModuleList" else []
            spread = {one.id for one in lists if isinstance(one, ast.Name)}  # which give their modules to this one
            for name in spread:
                yield from ((cls, inside + more.removeprefix(_NUMBER)) for cls, more in local.get(name, []))
            local = {name: modules for name, modules in local.items() if name not in spread}
        elif isinstance(value, ast.Name):
            yield from ((cls, inside + more) for cls, more in local.get(value.id, []))
        elif isinstance(value, ast.Attribute):  # a number of a module, such as its width
            return
        method = value.func if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
        for one in ast.iter_child_nodes(value) if method is None else [method.value, *ast.iter_child_nodes(value)]:
            yield from self._modules(one, local, inside)

    def _pass(self, kind: str, call: ast.Call, local: _Local) -> None:
        """Note the modules, and the classes, that a class gets as arguments of its constructor."""
        if kind not in self._inits:
            return
        cls, init = self._inits[kind]
        for argument, value in _given(call, init, 1):
            modules = [one for one in self._modules(value, local) if not one[0].startswith(_OF_CALLER)]
            self._passed.setdefault((cls, argument), []).extend(modules)
            named = self.classes.get(last_name(value))
            self._kinds.setdefault((cls, argument), []).extend([named] if named is not None else [])

    def _variables(self, functions: list[ast.FunctionDef], local: _Local) -> dict[str, list[_Module]]:
        """Return the variables of functions that hold modules, which an attribute gets later."""
        found: dict[str, list[_Module]] = {}
        nodes = [one for function in functions for one in ast.walk(function) if isinstance(one, ast.Assign | ast.Call)]
        for one in sorted(nodes, key=lambda node: node.lineno):
            if isinstance(one, ast.Assign):
                variables, value = [target.id for target in one.targets if isinstance(target, ast.Name)], one.value
            elif isinstance(grown := _grown(one), ast.Name):
                variables, value = [grown.id], one.args[-1]
            else:
                continue
            made = [*self._modules(value, {**local, **found})] if variables else []
            for name in variables if made else ():
                found[name] = list(dict.fromkeys([*local.get(name, []), *found.get(name, []), *made]))
        return found


def _containers(source: SourceFile) -> Iterator[tuple[str, str]]:
    """Yield the names that a file has for containers of torch, each with the container: `mlist = nn.ModuleList`."""
    yield from ((name, last_name(value)) for name, value in source.constants.items() if last_name(value) in _CONTAINERS)
    yield from ((name, one.name) for name, one in source.imports.items() if one.name in _CONTAINERS)


def _given(call: ast.Call, function: ast.FunctionDef, bound: int = 0) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of a function that a call passes, those behind a `*` left out, each with its value.

    Args:
        bound: how many are passed implicitly.
    """
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][bound:]
    more = function.args.vararg.arg if function.args.vararg is not None else ""
    for at, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            yield from [(more, value.value)] if more else []
            break
        if name := names[at] if at < len(names) else more:
            yield name, value
    yield from ((one.arg, one.value) for one in call.keywords if one.arg)


def _grown(call: ast.Call) -> ast.expr | None:
    """Return the list that a call appends something to; None for other calls."""
    grows = isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "insert", "extend")
    return call.func.value if grows and call.args and isinstance(call.func, ast.Attribute) else None


def _own(node: ast.expr) -> str:
    own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def last_name(node: ast.expr) -> str:
    """Return the last part of a name; of an entry of a table that of the table."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
