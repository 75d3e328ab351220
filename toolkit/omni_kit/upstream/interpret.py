"""A small interpreter of `__init__` methods: values of configs, shapes of tensors, trees of modules.

Only what module constructors do is understood. Everything else becomes UNKNOWN, never a guess.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.upstream.autoclasses import auto_class
from omni_kit.upstream.configs import ConfigClass, ModelConfig, config_class
from omni_kit.upstream.source import SourceFile, dotted

_MAX_ITEMS = 4096


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


class _Return(Exception):
    pass


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int | None, ...] | None
    where: str = ""
    buffer: bool = False


@dataclass
class Module:
    """A module instance: attribute -> alternatives, one unless a condition could not be decided."""

    class_name: str
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    unresolved: dict[str, str] = field(default_factory=dict)
    pretrained: bool = False

    def items(self) -> list[Any]:
        """The elements of a list-like module."""
        return [alternatives[-1] for name, alternatives in self.attributes.items() if name.isdigit()]


@dataclass(frozen=True)
class ClassRef:
    source: SourceFile
    node: ast.ClassDef


# class attributes of configs that are not part of config.json
_NOT_SAVED = {
    "attribute_map", "sub_configs", "keys_to_ignore_at_inference", "default_theta", "base_config_key",
    "ignore_keys_at_rope_validation", "has_no_defaults_at_init", "is_composition",
}  # fmt: skip


class ConfigView:
    """A config as a constructor sees it: given values over defaults, after the class's own `__post_init__`.

    Nested config dicts are views too.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._values = {self._real(name): default.value for name, default in config.cls.defaults.items()}
        self._values |= {self._real(name): value for name, value in config.given.items()}
        self._values.setdefault("_attn_implementation", "eager")
        self._properties = _properties(config.cls)
        self._post_init()

    def get(self, name: str) -> Any:
        name = self._real(name)
        if name in self._values:
            value = self._values[name]
            return (
                _nested(self.config, name, value) if isinstance(value, Mapping) and name.endswith("config") else value
            )
        if name in self._properties:
            return self._run_property(self._properties[name])
        return UNKNOWN

    def has(self, name: str) -> bool:
        return self._real(name) in self._values or name in self._properties

    def as_dict(self) -> dict[str, Any]:
        """The config as plain values, as `to_dict()` of the built config gives them.

        Left out: values that could not be read, None by default, and what only the base class of all configs says.
        """
        return {
            name: value
            for name, value in self._values.items()
            if _known(value) and name not in _NOT_SAVED and not name.startswith(("_", "base_model_"))
            if name in self.config.given or (value is not None and not self._of_base_class(name, value))
        } | {"model_type": self.config.model_type}

    def _of_base_class(self, name: str, value: Any) -> bool:
        default = self.config.cls.defaults.get(name)
        return default is not None and "configuration_utils.py" in default.evidence and value == default.value

    def set(self, name: str, value: Any, certain: bool) -> None:
        name = self._real(name)
        if certain or self._values.get(name) == value:
            self._values[name] = value
        elif name not in self.config.given:
            self._values[name] = UNKNOWN

    def _real(self, name: str) -> str:
        return self.config.cls.attribute_map.get(name, name)

    def _post_init(self) -> None:
        cls = self.config.cls
        node = cls.source.classes.get(cls.name)
        post_init = cls.source.method(cls.name, "__post_init__")
        if node is not None and post_init is not None:
            kwargs = {name: value for name, value in self.config.given.items() if name not in cls.defaults}
            _Frame(ClassRef(cls.source, node), self, {"self": self, "kwargs": kwargs}).run(post_init.body)
            for name, value in kwargs.items():  # the base class keeps what is left over
                self._values.setdefault(name, value)

    def _run_property(self, node: ast.FunctionDef) -> Any:
        source = self.config.cls.source
        frame = _Frame(ClassRef(source, source.classes[self.config.cls.name]), self, {"self": self})
        frame.run(node.body)
        return frame.returned


def _known(value: Any) -> bool:
    return value is not UNKNOWN and not (isinstance(value, (list, tuple)) and any(item is UNKNOWN for item in value))


def _properties(cls: ConfigClass) -> dict[str, ast.FunctionDef]:
    node = cls.source.classes.get(cls.name)
    return {
        item.name: item
        for item in (node.body if node is not None else [])
        if isinstance(item, ast.FunctionDef) and any(dotted(d) == "property" for d in item.decorator_list)
    }


def _nested(parent: ModelConfig, name: str, value: Mapping[str, Any]) -> Any:
    model_type = value.get("model_type")
    if not isinstance(model_type, str):
        return UNKNOWN
    cls = config_class(parent.cls.source.library, model_type)
    return ConfigView(ModelConfig(cls, dict(value), f"{parent.origin}: {name}"))


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "int": int, "len": len, "min": min, "max": max, "range": range, "list": list, "tuple": tuple, "sum": sum,
    "enumerate": lambda x: list(enumerate(x)), "zip": lambda *x: list(zip(*x, strict=False)), "bool": bool,
    "str": str, "float": float, "round": round, "abs": abs, "set": set, "any": any, "all": all,
}  # fmt: skip
_SHAPED = {"torch.empty", "torch.zeros", "torch.ones", "torch.randn", "torch.rand", "torch.full"}


class Interpreter:
    """Builds modules from the classes that one modeling file can see."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source

    def build(self, class_name: str, args: list[Any], kwargs: dict[str, Any]) -> Module:
        """The module that calling `class_name` gives.

        Raises:
            BadInput: the file neither defines nor imports the class.
        """
        found = self.source.resolve_class(class_name)
        if found is None:
            raise BadInput(f"{self.source.path.name} has no class {class_name}")
        return _construct(ClassRef(*found), args, kwargs)


def _construct(cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Module:
    module = Module(cls.node.name)
    _initialise(cls, module, args, kwargs)
    return module


def _initialise(cls: ClassRef, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    init = next((i for i in cls.node.body if isinstance(i, ast.FunctionDef) and i.name == "__init__"), None)
    if init is not None:
        _Frame(cls, module, _bind(init, module, args, kwargs)).run(init.body)
        return
    _initialise_bases(cls, module, args, kwargs)


def _initialise_bases(cls: ClassRef, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    for base in cls.source.bases(cls.node):
        if base in {"nn.Module", "torch.nn.Module"}:
            continue
        if base == "PreTrainedModel":
            module.pretrained = True
            module.attributes.setdefault("config", [args[0] if args else kwargs.get("config", UNKNOWN)])
            continue
        if base.rpartition(".")[0] in {"nn", "torch.nn"}:
            module.attributes.update(_leaf(base.rpartition(".")[2], args, kwargs, cls.source.where(cls.node)) or {})
            continue
        resolved = cls.source.resolve_class(base)
        if resolved is not None and resolved[1] is not cls.node:
            _initialise(ClassRef(*resolved), module, args, kwargs)


def _bind(init: ast.FunctionDef, module: Module, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [arg.arg for arg in (*init.args.posonlyargs, *init.args.args)]
    scope: dict[str, Any] = dict.fromkeys([*names, *(a.arg for a in init.args.kwonlyargs)], UNKNOWN)
    defaults = [*zip(names[len(names) - len(init.args.defaults) :], init.args.defaults, strict=True)]
    defaults += [(a.arg, d) for a, d in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True) if d]
    for name, node in defaults:
        scope[name] = node.value if isinstance(node, ast.Constant) else UNKNOWN
    scope.update(zip(names, [module, *args], strict=False))
    scope.update({k: v for k, v in kwargs.items() if k in scope})
    return scope


def _leaf(kind: str, args: list[Any], kwargs: dict[str, Any], where: str) -> dict[str, list[Any]] | None:
    """Parameters of a torch.nn class; None when the class is not known."""

    def take(index: int, name: str, default: Any = UNKNOWN) -> Any:
        return args[index] if len(args) > index else kwargs.get(name, default)

    def tensors(**shapes: tuple[Any, ...]) -> dict[str, list[Any]]:
        return {name: [Tensor(_shape(shape), where)] for name, shape in shapes.items()}

    if kind == "Linear":
        rows, columns, bias = take(1, "out_features"), take(0, "in_features"), take(2, "bias", True)
        return tensors(weight=(rows, columns), **({} if bias is False or bias is None else {"bias": (rows,)}))
    if kind == "Embedding":
        return tensors(weight=(take(0, "num_embeddings"), take(1, "embedding_dim")))
    if kind in {"LayerNorm", "RMSNorm"}:
        size = take(0, "normalized_shape")
        shape = tuple(size) if isinstance(size, (list, tuple)) else (size,)
        if kwargs.get("elementwise_affine") is False:
            return {}
        wants_bias = kind == "LayerNorm" and kwargs.get("bias", True) is not False
        return tensors(weight=shape, **({"bias": shape} if wants_bias else {}))
    if kind in {"Conv1d", "Conv2d", "Conv3d"}:
        out, channels, groups = take(1, "out_channels"), take(0, "in_channels"), kwargs.get("groups", 1)
        size, rank = take(2, "kernel_size"), int(kind[4])
        kernel = tuple(size) if isinstance(size, (list, tuple)) else (size,) * rank
        inner = channels // groups if isinstance(channels, int) and isinstance(groups, int) and groups else UNKNOWN
        bias = {} if kwargs.get("bias", True) is False else {"bias": (out,)}
        return tensors(weight=(out, inner, *kernel), **bias)
    if kind == "MultiheadAttention":
        size, bias = take(0, "embed_dim"), kwargs.get("bias", True) is not False
        wide = 3 * size if isinstance(size, int) else UNKNOWN
        inner = Module("Linear", tensors(weight=(size, size), **({"bias": (size,)} if bias else {})))
        biases = {"in_proj_bias": (wide,)} if bias else {}
        return {**tensors(in_proj_weight=(wide, size), **biases), "out_proj": [inner]}
    if kind in {"Identity", "Dropout", "SiLU", "GELU", "ReLU", "Sigmoid", "Tanh", "Softmax", "Softplus", "Module"}:
        return {}
    return None


def _shape(values: tuple[Any, ...]) -> tuple[int | None, ...]:
    return tuple(v if isinstance(v, int) and not isinstance(v, bool) else None for v in values)


def _may_be_module(call: ast.Call) -> bool:
    """Whether an expression that could not be read may have made a module: `Name(...)`, `CLASSES[...](...)`."""
    if isinstance(call.func, ast.Subscript):
        return True
    last = (dotted(call.func) or "").rpartition(".")[2]
    return last[:1].isupper() or last.endswith("from_config")


class _Frame:
    """The execution of one `__init__` body."""

    def __init__(self, cls: ClassRef, owner: "Module | ConfigView", scope: dict[str, Any]) -> None:
        self.cls = cls
        self.source = cls.source
        self.owner = owner
        self.scope = scope
        self.uncertain = 0
        self.returned: Any = UNKNOWN

    def run(self, body: list[ast.stmt]) -> None:
        try:
            self.block(body)
        except _Return:
            return

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            handler = getattr(self, f"do_{type(statement).__name__.lower()}", None)
            if handler is not None:
                handler(statement)

    # statements

    def do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value, node.value)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value), node.value)

    def do_augassign(self, node: ast.AugAssign) -> None:
        self.store(node.target, UNKNOWN, node.value)

    def do_if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if test is UNKNOWN:
            self.uncertain += 1
            self.block(node.body)
            self.block(node.orelse)
            self.uncertain -= 1
        else:
            self.block(node.body if test else node.orelse)

    def do_for(self, node: ast.For) -> None:
        items = self.value(node.iter)
        if isinstance(items, Module):
            items = items.items()
        if items is UNKNOWN or not isinstance(items, (list, tuple, range)):
            return
        for item in list(items)[:_MAX_ITEMS]:
            self.store(node.target, item, node.iter)
            self.block(node.body)

    def do_with(self, node: ast.With) -> None:
        self.block(node.body)

    def do_return(self, node: ast.Return) -> None:
        if not self.uncertain:
            self.returned = self.value(node.value) if node.value is not None else None
            raise _Return

    def do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            return
        call = node.value
        if self.is_super_init(call) and isinstance(self.owner, Module):
            _initialise_bases(self.cls, self.owner, self.args(call), self.kwargs(call))
            return
        name = dotted(call.func) or ""
        if name == "self.register_buffer":
            self.register_buffer(call)
        elif name in {"self.add_module", "self.register_module", "self.register_parameter", "setattr"}:
            args = self.args(call)[-2:]
            if len(args) == 2 and isinstance(args[0], str):
                self.set_attribute(args[0], args[1], call)
        elif name.startswith("self.") and name.endswith(".append"):
            target = self.value(call.func.value) if isinstance(call.func, ast.Attribute) else UNKNOWN
            item = self.args(call)[0] if call.args else UNKNOWN
            if isinstance(target, Module):
                target.attributes[str(len(target.attributes))] = [item]
            elif isinstance(target, list):
                target.append(item)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            target = self.value(call.func.value)
            if isinstance(target, list) and call.args:
                target.append(self.value(call.args[0]))
        else:
            self.value(call)

    def is_super_init(self, call: ast.Call) -> bool:
        func = call.func
        return (
            isinstance(func, ast.Attribute)
            and func.attr == "__init__"
            and isinstance(func.value, ast.Call)
            and dotted(func.value.func) == "super"
        )

    def register_buffer(self, call: ast.Call) -> None:
        args, kwargs = self.args(call), self.kwargs(call)
        name = args[0] if args else kwargs.get("name", UNKNOWN)
        persistent = args[2] if len(args) > 2 else kwargs.get("persistent", True)
        tensor = args[1] if len(args) > 1 else kwargs.get("tensor", UNKNOWN)
        if isinstance(name, str) and persistent is not False and tensor is not None:
            shape = tensor.shape if isinstance(tensor, Tensor) else None
            self.set_attribute(name, Tensor(shape, self.source.where(call), buffer=True), call)

    # stores

    def store(self, target: ast.expr, value: Any, origin: ast.expr) -> None:
        if isinstance(target, ast.Name):
            known = self.scope.get(target.id, UNKNOWN)
            self.scope[target.id] = value if not self.uncertain or known is UNKNOWN else UNKNOWN
        elif isinstance(target, ast.Attribute) and dotted(target.value) == "self":
            self.set_attribute(target.attr, value, origin)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value if isinstance(value, (list, tuple)) and len(value) == len(target.elts) else None
            for index, item in enumerate(target.elts):
                self.store(item, values[index] if values is not None else UNKNOWN, origin)
        elif isinstance(target, ast.Subscript):
            container, key = self.value(target.value), self.value(target.slice)
            if isinstance(container, Module) and key is not UNKNOWN:
                container.attributes[str(key)] = [value]

    def set_attribute(self, name: str, value: Any, origin: ast.AST) -> None:
        owner = self.owner
        if isinstance(owner, ConfigView):
            owner.set(name, value, certain=not self.uncertain)
            return
        if isinstance(value, (Module, Tensor)):
            owner.unresolved.pop(name, None)
        elif value is UNKNOWN and isinstance(origin, ast.Call) and _may_be_module(origin):
            owner.unresolved[name] = ast.unparse(origin)
        if self.uncertain:
            owner.uncertain.add(name)
            owner.attributes.setdefault(name, []).append(value)
        else:
            owner.attributes[name] = [value]

    # expressions

    def value(self, node: ast.expr) -> Any:
        handler = getattr(self, f"get_{type(node).__name__.lower()}", None)
        if handler is None:
            return UNKNOWN
        try:
            return handler(node)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError):
            return UNKNOWN

    def get_constant(self, node: ast.Constant) -> Any:
        return node.value

    def get_name(self, node: ast.Name) -> Any:
        if node.id in self.scope:
            return self.scope[node.id]
        resolved = self.source.resolve_class(node.id)
        if resolved is not None:
            return ClassRef(*resolved)
        constant = self.source.constants.get(node.id)
        return self.value(constant) if constant is not None else UNKNOWN

    def get_attribute(self, node: ast.Attribute) -> Any:
        base = self.value(node.value)
        if isinstance(base, ConfigView):
            return base.get(node.attr)
        if isinstance(base, Module) and node.attr == "config" and "config" not in base.attributes:
            return UNKNOWN
        if isinstance(base, Module):
            alternatives = base.attributes.get(node.attr)
            return alternatives[0] if alternatives and len(alternatives) == 1 else UNKNOWN
        return UNKNOWN

    def get_subscript(self, node: ast.Subscript) -> Any:
        base, key = self.value(node.value), self.value(node.slice)
        if isinstance(base, Module) and key is not UNKNOWN:
            return base.attributes[str(key)][-1]
        return UNKNOWN if base is UNKNOWN or key is UNKNOWN else base[key]

    def get_slice(self, node: ast.Slice) -> Any:
        parts = [None if p is None else self.value(p) for p in (node.lower, node.upper, node.step)]
        return UNKNOWN if UNKNOWN in parts else slice(*parts)

    def get_binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        return UNKNOWN if UNKNOWN in (left, right) else _BINARY[type(node.op)](left, right)

    def get_unaryop(self, node: ast.UnaryOp) -> Any:
        operand = self.value(node.operand)
        if operand is UNKNOWN:
            return UNKNOWN
        return not operand if isinstance(node.op, ast.Not) else -operand

    def get_boolop(self, node: ast.BoolOp) -> Any:
        decisive = isinstance(node.op, ast.Or)
        value: Any = UNKNOWN
        for item in node.values:
            value = self.value(item)
            if value is UNKNOWN:
                return UNKNOWN
            if bool(value) == decisive:
                return value
        return value

    def get_compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        for op, item in zip(node.ops, node.comparators, strict=True):
            right = self.value(item)
            if left is UNKNOWN or right is UNKNOWN:
                return UNKNOWN
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def get_ifexp(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        if test is not UNKNOWN:
            return self.value(node.body if test else node.orelse)
        both = [self.value(node.body), self.value(node.orelse)]
        modules = [v for v in both if isinstance(v, (Module, Tensor, ClassRef))]
        return modules[0] if len(modules) == 1 else UNKNOWN

    def get_list(self, node: ast.List) -> Any:
        return self.elements(node.elts)

    def get_tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.elements(node.elts))

    def get_dict(self, node: ast.Dict) -> Any:
        return {self.value(k): self.value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}

    def get_joinedstr(self, node: ast.JoinedStr) -> Any:
        parts = [self.value(p.value if isinstance(p, ast.FormattedValue) else p) for p in node.values]
        return UNKNOWN if UNKNOWN in parts else "".join(str(p) for p in parts)

    def get_listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        if len(node.generators) != 1:
            return UNKNOWN
        generator = node.generators[0]
        items = self.value(generator.iter)
        if items is UNKNOWN:
            return UNKNOWN
        saved = dict(self.scope)
        result = []
        for item in list(items)[:_MAX_ITEMS]:
            self.store(generator.target, item, generator.iter)
            if all(self.value(test) for test in generator.ifs):
                result.append(self.value(node.elt))
        self.scope = saved
        return result

    get_generatorexp = get_listcomp

    def get_call(self, node: ast.Call) -> Any:
        name = dotted(node.func) or ""
        args, kwargs = self.args(node), self.kwargs(node)
        if name in {"getattr", "hasattr"}:
            return self.attribute_call(name, args)
        if name in _BUILTINS and name not in self.scope:
            return UNKNOWN if UNKNOWN in args else _BUILTINS[name](*args)
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
            return _construct(function, args, kwargs)
        return self.method_call(node, args)

    def from_config(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """`AutoModel.from_config(c)` and `Class._from_config(c)`."""
        config = args[0] if args else kwargs.get("config", UNKNOWN)
        if not isinstance(config, ConfigView):
            return UNKNOWN
        found = self.source.resolve_class(name)
        if name == "AutoModel":
            found = auto_class(self.source.library, "MODEL_MAPPING_NAMES", config.config.cls)
        return _construct(ClassRef(*found), [config], {}) if found else UNKNOWN

    def method_call(self, node: ast.Call, args: list[Any]) -> Any:
        """Plain methods of values that are known: dict.get, str.startswith and the like."""
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            if isinstance(base, (dict, str, list, tuple)) and UNKNOWN not in args:
                return getattr(base, node.func.attr)(*args)
            if isinstance(base, ConfigView) and node.func.attr == "get_text_config":
                inner = base.get("text_config")
                return inner if isinstance(inner, ConfigView) else base
        return UNKNOWN

    def attribute_call(self, name: str, args: list[Any]) -> Any:
        if not args or not isinstance(args[0], ConfigView) or not isinstance(args[1], str):
            return UNKNOWN
        if name == "hasattr":
            return args[0].has(args[1])
        return args[0].get(args[1]) if args[0].has(args[1]) else (args[2] if len(args) > 2 else UNKNOWN)

    def shaped(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        size: Any = args[:1] if name == "torch.full" else args
        if len(size) == 1 and isinstance(size[0], (list, tuple)):
            size = size[0]
        size = kwargs.get("size", size)
        return Tensor(_shape(tuple(size)) if isinstance(size, (list, tuple)) else None)

    def torch_module(self, kind: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
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
        leaf = _leaf(kind, args, kwargs, self.source.where(node))
        if leaf is None:
            return UNKNOWN
        return Module(kind, leaf, uncertain={"bias"} if kwargs.get("bias") is UNKNOWN else set())

    def args(self, node: ast.Call) -> list[Any]:
        return self.elements(node.args)

    def elements(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for item in nodes:
            if isinstance(item, ast.Starred):
                inner = self.value(item.value)
                values.extend(inner if isinstance(inner, (list, tuple)) else [UNKNOWN])
            else:
                values.append(self.value(item))
        return values

    def kwargs(self, node: ast.Call) -> dict[str, Any]:
        return {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
