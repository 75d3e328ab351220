"""The values of calls in a constructor: torch and its modules, Auto classes, classes of the library."""

import ast
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from omni_kit.pysource.classes import ClassRef, ClassTable, FunctionRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.source import dotted
from omni_kit.upstream.construction.expressions import MAX_ITEMS, Expressions
from omni_kit.upstream.construction.layers import known_shape, layer_parameters
from omni_kit.upstream.construction.values import Config, Module, Tensor

_BUILTINS: dict[str, Callable[..., Any]] = {
    "int": int, "min": min, "max": max, "range": range, "list": list, "tuple": tuple, "sum": sum, "dict": dict,
    "enumerate": lambda x: list(enumerate(x)), "zip": lambda *x: list(zip(*x, strict=False)), "bool": bool,
    "str": str, "float": float, "round": round, "abs": abs, "set": set, "sorted": sorted, "any": any, "all": all,
    "len": lambda x: len(x.items() if isinstance(x, Module) else x), "reversed": lambda x: list(reversed(x)),
}  # fmt: skip
_PLAIN: dict[str, type] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple, "dict": dict,
    "numbers.Integral": int,
}  # fmt: skip
_MATH: dict[str, Callable[..., Any]] = {
    "prod": math.prod, "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "ceil": math.ceil, "floor": math.floor,
}  # fmt: skip
_SHAPED = {"torch.empty", "torch.zeros", "torch.ones", "torch.randn", "torch.rand", "torch.full"}


def _endless(value: Any) -> bool:
    """Whether going through a value would take for ever."""
    return isinstance(value, range) and len(value) > MAX_ITEMS


class Calls(Expressions):
    """Evaluates calls, too."""

    @abstractmethod
    def construct(self, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Module | Config:
        """The module, or the config, that calling a class gives."""

    @abstractmethod
    def run_function(self, function: FunctionRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What calling a function of the library gives; UNKNOWN where that cannot be told."""

    def from_table(self, table: ClassTable, key: Any) -> Any:
        """The class that a table holds, or the module that it makes; UNKNOWN for what the library does not define."""
        found = table.find(key)
        if found is None:
            return UNKNOWN
        cls, given = found
        if not table.makes:
            return cls if given is None else UNKNOWN
        return self.construct(cls, [], self.get_dict(given) if given is not None else {})

    def get_call(self, node: ast.Call) -> Any:
        """What a call gives: a module or tensor of torch, a built-in of its arguments, or an object of the library."""
        node = self.chosen(node)
        name = dotted(node.func) or ""
        args, kwargs = self.args(node), self.kwargs(node)
        if name in {"getattr", "hasattr"}:
            return self.attribute_call(name, args)
        if name in _BUILTINS and name not in self.scope:
            return UNKNOWN if UNKNOWN in args or any(map(_endless, args)) else _BUILTINS[name](*args)
        if name == "isinstance":
            return self.is_instance(node)
        package, _, function_name = name.partition(".")
        if package in {"math", "np", "numpy"} and function_name in _MATH:
            return UNKNOWN if UNKNOWN in args or any(map(_endless, args)) else _MATH[function_name](*args)
        if name == "torch.Size":
            return tuple(args[0])
        if name in {"copy.copy", "copy.deepcopy", "deepcopy"}:
            return args[0].copy() if isinstance(args[0], Config) else args[0]
        if name == "load_backbone":
            inner = args[0].get("backbone_config")
            return self.from_config("AutoBackbone", [inner], {})
        if name in _SHAPED:
            return self.shaped(name, args, kwargs)
        if name in {"nn.Parameter", "torch.nn.Parameter", "Parameter"}:
            shape = args[0].shape if args and isinstance(args[0], Tensor) else None
            return Tensor(shape, self.source.where(node))
        if name in {"nn.Buffer", "torch.nn.Buffer"}:
            kept = (args[1] if len(args) > 1 else kwargs.get("persistent", True)) is not False
            shape = args[0].shape if args and isinstance(args[0], Tensor) else None
            return Tensor(shape, self.source.where(node), buffer=True) if kept else None
        if name.startswith(("nn.", "torch.nn.")):
            return self.torch_module(name.rpartition(".")[2], args, kwargs, node)
        if name.endswith(("from_config", "from_pretrained")):
            return self.from_config(name.rpartition(".")[0], args, kwargs)
        imported = self.source.imports.get(name)
        if imported is not None and imported.module == "torch.nn" and imported.name:
            return self.torch_module(imported.name, args, kwargs, node)
        function = self.value(node.func)
        if isinstance(function, ClassRef):
            return self.construct(function, args, kwargs)
        if isinstance(function, FunctionRef):
            return self.run_function(function, args, kwargs)
        return self.method_call(node, args)

    def is_instance(self, node: ast.Call) -> Any:
        """Whether a plain value is of a type, or of one of several."""
        value, kinds = self.value(node.args[0]), node.args[1]
        names = [dotted(kind) for kind in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])]
        plain = value is None or isinstance(value, tuple(_PLAIN.values()))
        if not plain or not all(name in _PLAIN for name in names):
            return UNKNOWN
        return isinstance(value, tuple(_PLAIN[str(name)] for name in names))

    def chosen(self, node: ast.Call) -> ast.Call:
        """A call of an entry of one of the file's tables, `NORMS[config.norm](...)`, as a call of what stands there."""
        if not isinstance(node.func, ast.Subscript) or not isinstance(node.func.value, ast.Name):
            return node
        table, key = self.source.constants.get(node.func.value.id), self.value(node.func.slice)
        for name, entry in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
            if isinstance(name, ast.Constant) and name.value == key:
                return ast.copy_location(ast.Call(entry, node.args, node.keywords), node)
        return node

    def from_config(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """`AutoModelFor....from_config(c)` and `Class._from_config(c)`."""
        config = args[0] if args else kwargs.get("config", UNKNOWN)
        if not isinstance(config, Config):
            return UNKNOWN
        found = config.model_class(self.source, name)
        return self.construct(found, [config], {}) if found else UNKNOWN

    def method_call(self, node: ast.Call, args: list[Any]) -> Any:
        """Plain methods of values that are known: dict.get, str.startswith and the like."""
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            if isinstance(base, (dict, str, list, tuple)) and UNKNOWN not in args:
                return getattr(base, node.func.attr)(*args)
            if isinstance(base, Config) and node.func.attr == "get_text_config":
                inner = base.get("text_config")
                return inner if isinstance(inner, Config) else base
        return UNKNOWN

    def attribute_call(self, name: str, args: list[Any]) -> Any:
        """`getattr` and `hasattr` of a config."""
        if not args or not isinstance(args[0], Config) or not isinstance(args[1], str):
            return UNKNOWN
        if name == "hasattr":
            return args[0].has(args[1])
        return args[0].get(args[1]) if args[0].has(args[1]) else (args[2] if len(args) > 2 else UNKNOWN)

    def shaped(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """A tensor that a function of torch makes in a given size."""
        size: Any = args[:1] if name == "torch.full" else args
        if len(size) == 1 and isinstance(size[0], (list, tuple)):
            size = size[0]
        size = kwargs.get("size", size)
        return Tensor(known_shape(tuple(size)) if isinstance(size, (list, tuple)) else None)

    def torch_module(self, kind: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """A module of torch.nn: a container with its items, or a layer with its parameters."""
        if kind in {"ModuleList", "Sequential", "ModuleDict"}:
            module = Module(kind)
            first = args[0] if args else []
            items = args if kind == "Sequential" and not isinstance(first, dict) else first
            if items is UNKNOWN:
                module.unresolved["*"] = ast.unparse(node)
                return module
            pairs = items.items() if isinstance(items, dict) else enumerate(items)
            for key, item in pairs:
                module.attributes[str(key)] = [item]
            return module
        leaf = layer_parameters(kind, args, kwargs, self.source.where(node))
        if leaf is None:
            return UNKNOWN
        return Module(kind, leaf, uncertain={"bias"} if kwargs.get("bias") is UNKNOWN else set())
