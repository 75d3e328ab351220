"""The values of a constructor: modules, tensors, configs, classes and functions of the library, torch by name."""

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from omni_kit.pysource.classes import ClassRef, ClassTable, FunctionRef
from omni_kit.pysource.eval import UNKNOWN, Frame, Function, Native, OpenDomain, Unknown, Unsupported
from omni_kit.pysource.eval.python import BUILTINS, LIBRARY, listed
from omni_kit.pysource.eval.values import is_iterable
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import Imported, SourceFile, absolute_module, dotted
from omni_kit.upstream.construction.layers import known_shape, layer_parameters
from omni_kit.upstream.construction.values import Config, Module, Tensor

_SHAPED = {f"torch.{name}" for name in ("empty", "zeros", "ones", "randn", "rand", "full")}
_COPIES = {"copy.copy", "copy.deepcopy"}
_FROM_CONFIG = ("from_config", "from_pretrained")
_CONTAINERS = {"ModuleList", "Sequential", "ModuleDict"}
_ADDS = {"add_module", "register_module", "register_parameter"}
_PLAIN: Mapping[str, type] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple, "dict": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Place of a constructor's code.

    Attributes:
        code: the class whose method it is, or the function.
        owner: the module, or the config, that it makes.
    """

    code: ClassRef | FunctionRef
    owner: Module | Config

    @property
    def source(self) -> SourceFile:
        """The file."""
        return self.code.source

    @property
    def above(self) -> "tuple[ClassRef | str, ...]":
        """The classes that `super()` looks at."""
        owner, cls = self.owner, self.code
        known = isinstance(owner, Module) and isinstance(cls, ClassRef) and owner.cls is not None
        return owner.cls.after(cls) if known else ()  # type: ignore[union-attr,arg-type]


@dataclass(frozen=True)
class Method:
    """A method of a module or of a config."""

    owner: Module | Config
    cls: ClassRef
    node: ast.FunctionDef


_CONFIG_TABLE = ".CONFIG_MAPPING"


@dataclass(frozen=True)
class _Super:
    place: Place


class Construction(OpenDomain):
    """Values of constructors; `frame` builds modules and goes through methods."""

    def __init__(self) -> None:
        super().__init__(steps=20_000_000, depth=40)
        self._defined: dict[tuple[SourceFile, str], Any] = {}
        self._tables: dict[tuple[SourceFile, str], Any] = {}

    # names

    def name(self, name: str, frame: Any) -> Any:
        """See `Domain`: a class, a function, a constant or an import of the file."""
        source: SourceFile = frame.home.source
        if name == "super":
            return Native(partial(_Super, frame.home))
        found = self.defined(source, name)
        if found is not UNKNOWN:
            return found
        if (constant := source.constants.get(name)) is not None:
            return frame.value(constant)
        if (table := self._class_table(source, name)) is not UNKNOWN:
            return table
        imported = source.imports.get(name)
        if imported is None:
            return super().name(name, frame)
        path = f"{imported.module}.{imported.name}" if imported.name else imported.module
        return Unknown(name if imported.name is None and path.startswith(f"{name}.") else path)

    def defined(self, source: SourceFile, name: str) -> Any:
        """Return the class or the function that a name means in a file; UNKNOWN for anything else."""
        key = source, name
        if key not in self._defined:
            cls, function = source.resolve_class(name), source.resolve_function(name)
            found = FunctionRef(*function) if function is not None else UNKNOWN
            self._defined[key] = ClassRef(*cls) if cls is not None else found
        return self._defined[key]

    def _class_table(self, source: SourceFile, name: str) -> Any:
        """Return a table of classes of another file, as activations have one: a dict, or `Maker(dict)`, which makes
        them.
        """
        key = source, name
        if key not in self._tables:
            self._tables[key] = _table_of(source.resolve_constant(name))
        return self._tables[key]

    def imported(self, name: str, names: tuple[str, ...], level: int, frame: Any) -> Any:
        """See `Domain`."""
        package = frame.home.source.package
        return Unknown(absolute_module(package, ast.ImportFrom(name or None, [], level)) if level else name)

    # attributes and items

    def attribute(self, base: Any, name: str, frame: Any) -> Any:
        """See `Domain`."""
        match base:
            case Module():
                return self._of_module(base, name, frame)
            case Tensor():
                return base.shape if name == "shape" and base.shape is not None else UNKNOWN
            case _Super():
                return self._of_base(base.place, name, frame)
            case Config() if name == "get_text_config":
                return Native(partial(_text_config, base))
            case Config():
                method = base.method(name)
                return base.get(name) if method is None else Method(base, *method)
            case Unknown() if (home := frame.home.source.home_of(Imported(base.name, name))) is not None:
                return self.defined(*home)
        return super().attribute(base, name, frame) if isinstance(base, Unknown) else UNKNOWN

    def _of_module(self, module: Module, name: str, frame: Any) -> Any:
        alternatives = module.attributes.get(name)
        if alternatives is not None:
            return alternatives[0] if len(alternatives) == 1 else UNKNOWN
        if name in {"append", "insert"} and _is_list(module):
            return Native(partial(_added, frame, module))
        if module.cls is None or name == "config":
            return UNKNOWN
        if (found := module.cls.method(name)) is not None:
            return Method(module, *found)
        if name == "register_buffer":
            return Native(partial(_register_buffer, frame, module))
        if name == "register_to_config":
            return Native(partial(frame.keep, module))
        if name in _ADDS:
            return Native(partial(frame.set_own, module))
        _, assigned = module.cls.assigned(name) or (None, None)
        return literal(assigned)

    def _of_base(self, place: Place, name: str, frame: Any) -> Any:
        """Return the value of `super().name`."""
        if isinstance(place.owner, Config):
            return Native(partial(_left_over, frame, place.owner)) if name == "__post_init__" else UNKNOWN
        if name == "__init__":
            return Native(partial(frame.initialise, place.above, place.owner))
        found = ((one, one.defines(name)) for one in place.above if isinstance(one, ClassRef))
        return next((Method(place.owner, one, node) for one, node in found if node is not None), UNKNOWN)

    def set_attribute(self, base: Any, name: str, value: Any, frame: Any) -> None:
        """See `Domain`."""
        if isinstance(base, Config):
            base.set(name, _anonymous(value), certain=not frame.uncertain)
        elif isinstance(base, Module):
            frame.set_own(base, name, value)

    def item(self, base: Any, key: Any, frame: Any) -> Any:
        """See `Domain`: an item of a container of modules, or of a table of classes."""
        if isinstance(base, Unknown) and base.name.endswith(_CONFIG_TABLE) and isinstance(frame.home.owner, Config):
            return Native(partial(_of_type, frame.home.owner, key)) if isinstance(key, str) else UNKNOWN
        if isinstance(key, Unknown) or isinstance(base, Unknown):
            return UNKNOWN
        if isinstance(base, Module):
            return base.attributes[str(key)][-1]
        return self._from_table(base, key, frame) if isinstance(base, ClassTable) else base[key]

    def _from_table(self, table: ClassTable, key: Any, frame: Any) -> Any:
        """Return the class that a table holds, or the module that it makes; UNKNOWN for what the library does not
        define.
        """
        found = table.find(key)
        if found is None:
            return UNKNOWN
        cls, given = found
        if not table.makes:
            return cls if given is None else UNKNOWN
        return frame.construct(cls, [], frame.value(given) if given is not None else {})

    def set_item(self, base: Any, key: Any, value: Any, frame: Any) -> None:
        """See `Domain`."""
        if isinstance(base, Module) and not isinstance(key, Unknown):
            base.attributes[str(key)] = [value]

    # operations

    def operation(self, name: str, operands: list[Any], frame: Any) -> Any:
        """See `Domain`: a number scales or shifts a tensor."""
        tensors = [one for one in operands if isinstance(one, Tensor)]
        if len(tensors) == 1 and len(operands) == 2 and name not in {"is_", "is_not", "in", "not in"}:
            return tensors[0]
        return super().operation(name, operands, frame)

    def truth(self, value: Any, frame: Any) -> bool:
        """See `Domain`: an object is true."""
        return super().truth(value, frame) if isinstance(value, Unknown) else True

    def items(self, value: Any, frame: Any) -> list[Any]:
        """See `Domain`."""
        if isinstance(value, Module):
            return value.items()
        raise Unsupported("iterates over an unknown value")

    def unpacked(self, value: Any, count: int, frame: Any) -> list[Any]:
        """See `Domain`."""
        return listed(value) if is_iterable(value) else [UNKNOWN] * count

    # calls

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Any, node: ast.expr) -> Any:
        """See `Domain`: a module or a tensor of torch, an object of the library, or a built-in of its arguments."""
        written = dotted(node.func) or "" if isinstance(node, ast.Call) else ""
        if written.endswith(_FROM_CONFIG):
            return self._from_config(written.rpartition(".")[0], arguments, keywords, frame)
        match function:
            case FunctionRef() if function.node.name == "load_backbone":
                return self._from_config("AutoBackbone", [arguments[0].get("backbone_config")], {}, frame)
            case ClassRef():
                return frame.construct(function, arguments, keywords)
            case FunctionRef():
                return frame.enter(Place(function, frame.home.owner), function.node, arguments, keywords)
            case Method(owner, cls, method):
                return frame.enter(Place(cls, owner), method, [owner, *arguments], keywords)
            case Unknown():
                return self._of_library(function.name, arguments, keywords, frame, node)
            case Native():
                return self._native(function, arguments, keywords, frame, node)
            case Function():
                return super().call(function, arguments, keywords, frame, node)
        return UNKNOWN

    def _native(
        self, function: Native, arguments: list[Any], keywords: dict[str, Any], frame: Any, node: ast.expr
    ) -> Any:
        called = function.function
        if isinstance(called, partial):
            return called(*arguments, **keywords)
        if called in {getattr, hasattr}:
            return _attribute_of_config(called is hasattr, *arguments)
        if called is isinstance:
            return _is_instance(*arguments)
        if called is len and isinstance(arguments[0], Module):
            return len(arguments[0].items())
        return super().call(function, arguments, keywords, frame, node)

    def _of_library(self, path: str, arguments: list[Any], keywords: dict[str, Any], frame: Any, node: ast.expr) -> Any:
        where, last = frame.home.source.where(node), path.rpartition(".")[2]
        first = arguments[0] if arguments else UNKNOWN
        if last.endswith("Config") and isinstance(owner := frame.home.owner, Config) and not arguments:
            made = owner.of_class(path, keywords)
            return made if made is not None else UNKNOWN
        if path in _COPIES:
            return first.copy() if isinstance(first, Config) else copy.copy(first)
        if path == "setattr":
            _, name, value = arguments
            return self.set_attribute(first, name, value, frame)
        if path == "torch.Size":
            return tuple(first)
        if path in _SHAPED:
            return _shaped(path, arguments, keywords)
        if path.startswith(("torch.nn.", "nn.")) or path == "Parameter":
            shape = first.shape if isinstance(first, Tensor) else None
            if last == "Parameter":
                return Tensor(shape, where)
            if last == "Buffer":
                kept = (arguments[1] if len(arguments) > 1 else keywords.get("persistent", True)) is not False
                return Tensor(shape, where, buffer=True) if kept else None
            return _torch_module(last, arguments, keywords, where, node)
        known = LIBRARY.get(f"math.{last}" if path.startswith(("numpy.", "np.")) else path)
        if known is None or any(isinstance(one, Unknown) for one in arguments):
            return UNKNOWN
        return super().call(Native(known), arguments, keywords, frame, node)

    def _from_config(self, name: str, arguments: list[Any], keywords: dict[str, Any], frame: Any) -> Any:
        """`AutoModelFor....from_config(c)` and `Class._from_config(c)`."""
        config = arguments[0] if arguments else keywords.get("config", UNKNOWN)
        found = config.model_class(frame.home.source, name) if isinstance(config, Config) else None
        return frame.construct(found, [config], {}) if found else UNKNOWN


def _table_of(found: tuple[SourceFile, ast.expr] | None) -> Any:
    """Return the table of classes that an expression of a file is; UNKNOWN for anything else."""
    if found is None:
        return UNKNOWN
    source, table = found
    makes = isinstance(table, ast.Call) and len(table.args) == 1
    if isinstance(table, ast.Call) and makes:
        table = table.args[0]
    if isinstance(table, ast.Name):
        source, table = source.resolve_constant(table.id) or (source, table)
    return ClassTable(source, table, makes) if isinstance(table, ast.Dict) else UNKNOWN


def _anonymous(value: Any) -> Any:
    return UNKNOWN if isinstance(value, Unknown) else value


def _of_type(config: Config, model_type: str, /, **values: Any) -> Any:
    """Return the config of a type that the library's table of configs holds."""
    made = config.of_type(model_type, values)
    return made if made is not None else UNKNOWN


def _text_config(config: Config, *_: Any, **__: Any) -> Config:
    inner = config.get("text_config")
    return inner if isinstance(inner, Config) else config


def _left_over(frame: Any, config: Config, *_: Any, **left: Any) -> None:
    """`super().__post_init__(**kwargs)` of a config: the base sets what no field took."""
    for name, value in left.items():
        config.set(name, _anonymous(value), certain=not frame.uncertain)


def _attribute_of_config(asks: bool, base: Any, name: Any, *default: Any) -> Any:
    """`getattr` and `hasattr`."""
    if not isinstance(base, Config) or not isinstance(name, str):
        return UNKNOWN
    if asks:
        return base.has(name)
    return base.get(name) if base.has(name) else (default[0] if default else UNKNOWN)


def _is_instance(value: Any, kinds: Any) -> Any:
    """Return whether a plain value is of a type, or of one of several."""
    names = [_type_named(kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
    plain = value is None or isinstance(value, tuple(_PLAIN.values()))
    if not plain or not all(name in _PLAIN for name in names):
        return UNKNOWN
    return isinstance(value, tuple(_PLAIN[name] for name in names))


def _type_named(kind: Any) -> str:
    if isinstance(kind, Native):
        return next((name for name, one in BUILTINS.items() if one is kind.function), "")
    return "int" if kind == Unknown("numbers.Integral") else ""


def _shaped(path: str, arguments: list[Any], keywords: dict[str, Any]) -> Tensor:
    """Return a tensor that a function of torch makes in a given size."""
    size: Any = arguments[:1] if path == "torch.full" else arguments
    if len(size) == 1 and isinstance(size[0], (list, tuple)):
        size = size[0]
    size = keywords.get("size", size)
    return Tensor(known_shape(tuple(size)) if isinstance(size, (list, tuple)) else None)


def _torch_module(kind: str, arguments: list[Any], keywords: dict[str, Any], where: str, node: ast.expr) -> Any:
    """Return a module of torch.nn: a container with its items, or a layer with its parameters."""
    if kind in _CONTAINERS:
        module = Module(kind)
        first = arguments[0] if arguments else []
        items = arguments if kind == "Sequential" and not isinstance(first, dict) else first
        if isinstance(items, Unknown):
            module.unresolved["*"] = ast.unparse(node)
            return module
        items = items.items() if isinstance(items, Module) else items
        for key, item in items.items() if isinstance(items, dict) else enumerate(items):
            module.attributes[str(key)] = [item]
        return module
    given, named = [*map(_anonymous, arguments)], {name: _anonymous(one) for name, one in keywords.items()}
    leaf = layer_parameters(kind, given, named, where)
    if leaf is None:
        return UNKNOWN
    return Module(kind, leaf, uncertain={"bias"} if named.get("bias") is UNKNOWN else set())


def _register_buffer(frame: Any, module: Module, name: Any, tensor: Any = UNKNOWN, persistent: Any = True) -> None:
    """Keep a persistent buffer as an attribute of the module."""
    if isinstance(name, str) and persistent is not False and tensor is not None:
        shape = tensor.shape if isinstance(tensor, Tensor) else None
        frame.set_own(module, name, Tensor(shape, frame.home.source.where(frame.at), buffer=True))


def _is_list(module: Module) -> bool:
    """Return whether a module is a container of torch's, or of a class that extends its list and leaves its methods
    alone.
    """
    cls = module.cls
    return cls is None or ("nn.ModuleList" in cls.mro and cls.method("append") is cls.method("insert") is None)


def _added(frame: Frame, module: Module, *given: Any) -> None:
    """`.append(x)` or `.insert(i, x)` of a container of modules; its items count on from 0."""
    place, item = given if len(given) > 1 else (len(module.items()), given[0])
    if isinstance(place, Unknown):
        raise Unsupported("inserts at an unknown position")
    items = module.items()
    items.insert(place, item)
    module.attributes.update({str(number): [one] for number, one in enumerate(items)})
    if isinstance(item, Unknown):
        module.unresolved[str(len(items) - 1)] = ast.unparse(frame.at)
