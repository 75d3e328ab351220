"""Targets of the calls inside a generated file: functions, methods and modules of the same file."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from omni_checkers.engine.files import within
from omni_kit.pysource.signatures import misfit, positional, required, signature, widened
from omni_kit.pysource.source import SourceFile, dotted

_OPEN = {"can_return_tuple", "capture_outputs", "check_model_inputs", "merge_with_config_defaults"}
_RENAMING = "deprecate_kwarg"
_PLAIN = {"staticmethod", "classmethod", "torch.no_grad", "auto_docstring", "dynamic_rope_update", "lru_cache"}


@dataclass(frozen=True)
class Callee:
    """The target of a call.

    Attributes:
        bound: parameters that the call does not give: 1 for a method of an instance.
    """

    name: str
    node: ast.FunctionDef
    bound: int

    def misfit(self, call: ast.Call, passed: Collection[str] = (), made: Collection[str] = ()) -> str:
        """Return why the call fails; empty if it succeeds or if that is unknown.

        Args:
            passed: names that it gives by `**`.
            made: locals of who calls, which no `**` of its own can hold.
        """
        decorators = {_decorator(item) for item in self.node.decorator_list}
        if decorators - _OPEN - _PLAIN - {_RENAMING}:
            return ""
        taken = widened(signature(self.node, bound=self.bound > 0), self._former(), bool(decorators & _OPEN))
        given = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
        if wrong := misfit(taken, len(given), (), partial=True):
            return wrong
        names = [arg.id if isinstance(arg, ast.Name) else "" for arg in given]
        own = positional(taken)
        if crossed := [(a, b) for a, b in zip(own, names, strict=False) if _crossed(a, b, own, names)]:
            return "'{}' and '{}' are swapped".format(*crossed[0])
        named = {keyword.arg for keyword in call.keywords if keyword.arg}.union(passed)
        if wrong := misfit(taken, len(given), sorted(named), partial=True):
            return wrong
        if any(keyword.arg is None for keyword in call.keywords):
            named |= {name for name in required(taken) if name not in made and name not in own[: len(given)]}
        return misfit(taken, len(given), sorted(named), partial=len(given) != len(call.args))

    def _former(self) -> set[str]:
        """Return names that it took in an earlier release, and takes still."""
        calls = [item for item in self.node.decorator_list if isinstance(item, ast.Call)]
        renaming = [call for call in calls if _decorator(call) == _RENAMING]
        named = [keyword.value for call in renaming for keyword in call.keywords if keyword.arg == "old_name"]
        old = [*named, *(call.args[0] for call in renaming if call.args)]
        return {one.value for one in old if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def spread(function: ast.FunctionDef, call: ast.Call) -> frozenset[str]:
    """Return the names that a call inside a function gives by `**` of a dict that is written out once in it."""
    found: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Name):
            name = keyword.value.id
            stores = [n for n in within(function, ast.Name) if n.id == name and not _reads(n)]
            made = [n.value for n in within(function, ast.Assign) if stores[:1] == n.targets]
            if len(stores) == 1 and made and isinstance(made[0], ast.Dict):
                found |= {
                    key.value for key in made[0].keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
    return frozenset(found)


class Callees:
    """Resolves the calls inside one function.

    Attributes:
        made: its locals and parameters that it puts into no dict under their name.
    """

    def __init__(self, source: SourceFile, owner: str, function: ast.FunctionDef, modules: Mapping[str, str]) -> None:
        self.source = source
        self.owner = owner
        self.local = {node.id for node in within(function, ast.Name) if not _reads(node)}
        self.local |= {node.arg for node in within(function, ast.arg)}
        self.local |= {node.name for node in within(function, ast.FunctionDef) if node is not function}
        self.made = self.local - set(_keys(function))
        self.modules = modules
        self.loops = dict(_loops(function, self.modules))

    def of(self, call: ast.Call) -> Callee | None:
        """Return the target of a call; None if it is not in the file, or uncertain."""
        name = dotted(call.func) or ""
        first, _, rest = name.partition(".")
        if name in self.loops:
            return self._method(self.loops[name], "forward")
        if first in self.local and first != "self":
            return None
        if first == "self":
            return self._of_self(rest)
        if not rest:
            return self._named(name)
        return self._static(first, rest)

    def _of_self(self, rest: str) -> Callee | None:
        if not self.owner or "." in rest or not rest:
            return None
        if rest in self.modules:
            made = self.modules[rest]
            return self._method(made, "forward") if made and "[" not in made else None
        return self._method(self.owner, rest)

    def _named(self, name: str) -> Callee | None:
        function = self.source.functions.get(name)
        if function is not None and self._only(name):
            return Callee(name, function, 0)
        node = self.source.classes.get(name)
        return self._method(name, "__init__") if node is not None and not node.decorator_list else None

    def _static(self, owner: str, method: str) -> Callee | None:
        """`Class.method(...)`, which is given the instance, too."""
        found = self._method(owner, method) if owner in self.source.classes and "." not in method else None
        if found is None or any(_decorator(item) == "classmethod" for item in found.node.decorator_list):
            return None
        return Callee(found.name, found.node, 0)

    def _method(self, owner: str, method: str) -> Callee | None:
        node = own_method(self.source, owner, method)
        if node is None:
            return None
        static = any(_decorator(item) == "staticmethod" for item in node.decorator_list)
        if any(_decorator(item) in {"property", "cached_property"} for item in node.decorator_list):
            return None
        return Callee(f"{owner}.{method}", node, 0 if static else 1)

    def _only(self, name: str) -> bool:
        """Return whether the module gives the name one meaning."""
        bound = [node for node in self.source.tree.body if getattr(node, "name", None) == name]
        return len(bound) == 1 and name not in self.source.imports and name not in self.source.constants


def own_method(source: SourceFile, owner: str, method: str) -> ast.FunctionDef | None:
    """Return a method that a class has for sure: its own, or that of its first base, all in this file."""
    node, seen = source.classes.get(owner), set[ast.ClassDef]()
    while node is not None and node not in seen:
        seen.add(node)
        found = [item for item in node.body if getattr(item, "name", None) == method]
        if found:
            return found[-1] if isinstance(found[-1], ast.FunctionDef) else None
        bases = source.bases(node)
        node = source.classes.get(bases[0]) if bases else None
    return None


def modules_of(source: SourceFile, owner: str) -> Iterator[tuple[str, str]]:
    """Attribute -> class in this file of a module that `__init__` makes; "" where it is not known, K[] for a list."""
    initialiser = own_method(source, owner, "__init__") if owner else None
    found: dict[str, set[str]] = {}
    written: list[ast.Assign | ast.AnnAssign] = []
    if initialiser is not None:
        written = [*within(initialiser, ast.Assign), *within(initialiser, ast.AnnAssign)]
    for node in written:
        if node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = dotted(target) or ""
                if name.startswith("self.") and name.count(".") == 1:
                    found.setdefault(name[5:], set()).add(_made(source, node.value))
    for name, classes in found.items():
        yield name, classes.pop() if len(classes) == 1 else ""


def _made(source: SourceFile, value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return ""
    name = dotted(value.func) or ""
    if name in source.classes:
        return name
    if name.rpartition(".")[2] == "ModuleList" and value.args and isinstance(value.args[0], ast.ListComp):
        inner = _made(source, value.args[0].elt)
        return f"{inner}[]" if inner else ""
    return ""


def _loops(function: ast.FunctionDef, modules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Loop variable -> class, of loops over a list of modules; a name that means anything else, too, is left out."""
    stores: dict[str, int] = {}
    for name in within(function, ast.Name):
        if not _reads(name):
            stores[name.id] = stores.get(name.id, 0) + 1
    for node in within(function, ast.For):
        over, target = node.iter, node.target
        if isinstance(over, ast.Call) and dotted(over.func) == "enumerate" and isinstance(target, ast.Tuple):
            over, target = over.args[0], target.elts[1]
        if isinstance(over, ast.Subscript):
            over = over.value
        made = modules.get((dotted(over) or "").removeprefix("self."), "")
        if made.endswith("[]") and isinstance(target, ast.Name) and stores.get(target.id) == 1:
            yield target.id, made.removesuffix("[]")


def _crossed(own: str, name: str, parameters: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a parameter gets what is called as another one, which gets what is called as this."""
    return name != own and (name, own) in zip(parameters, names, strict=False)


def _keys(function: ast.FunctionDef) -> Iterator[object]:
    """Yield the keys that a function puts into dicts."""
    for node in (*within(function, ast.Subscript), *within(function, ast.Dict)):
        match node:
            case ast.Subscript(_, ast.Constant(key), ast.Store()):
                yield key
            case ast.Dict(keys):
                yield from (key.value for key in keys if isinstance(key, ast.Constant))


def _reads(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _decorator(node: ast.expr) -> str:
    name = dotted(node.func if isinstance(node, ast.Call) else node) or "?"
    return name if name.startswith("torch.") else name.rpartition(".")[2]
