"""Evaluates tensor code of a library: methods of modules and functions, on small tensors, without torch.

What a module holds comes from its constructor, as `upstream.construction` builds it; parameters get numbers when they
are first used. Code that needs anything that is not known here is Unsupported, with its line.
"""

import ast
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from omni_kit.pysource.classes import ClassRef, FunctionRef
from omni_kit.pysource.eval import UNKNOWN, Domain, Frame, Function, Native, Scope, Unsupported
from omni_kit.pysource.eval.python import BUILTINS, CONSTANTS, LIBRARY
from omni_kit.pysource.eval.values import is_iterable, is_plain
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.construction.interpreter import construct
from omni_kit.upstream.construction.values import Config, Module
from omni_kit.upstream.construction.values import Tensor as Shape
from omni_kit.upstream.torch import functions
from omni_kit.upstream.torch.functions import Chosen
from omni_kit.upstream.torch.tensors import DTYPES, Dtype, Tensor

LOW = DTYPES["bfloat16"]
"""The dtype of parameters: one in which a cast to float32 and back can be told from none."""
_OPERATIONS = {
    "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "and_": "bitwise_and", "or_": "bitwise_or",
    "xor": "bitwise_xor", "invert": "logical_not", "pos": "clone",
}  # fmt: skip
_LIBRARIES = frozenset({"torch", "math", "numpy", "typing", "functools", "collections", "itertools"})
# Modules of torch.nn whose forward is a function of torch with the same arguments, or does nothing.
_ACTIVATIONS = {
    "SiLU": "silu", "GELU": "gelu", "ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus",
    "Mish": "mish", "ReLU6": "relu6", "LeakyReLU": "leaky_relu", "ELU": "elu", "Hardswish": "hardswish",
}  # fmt: skip
_LARGEST = 1e6
"""Numbers of one parameter."""
_IDLE = frozenset({"Identity", "Dropout"})
_PASSED_OVER = frozenset({"_check", "_assert", "warn", "warning_once"})
_KINDS = {"int": int, "float": float, "str": str, "list": list, "tuple": tuple, "dict": dict, "bool": bool,
          "torch.Tensor": Tensor, "Tensor": Tensor}  # fmt: skip


@dataclass(frozen=True)
class External:
    """Something of another library, by its dotted name."""

    path: str


@dataclass(frozen=True)
class Table:
    """A table of functions that gives the same one for every name.

    Attributes:
        function: None if it gives the default of `get_interface`.
    """

    function: Any

    def get_interface(self, name: Any, default: Any = None) -> Any:
        """Return the function for a name."""
        return default if self.function is None else self.function


@dataclass(frozen=True)
class Place:
    """Place of code.

    Attributes:
        cls: the class whose method it is.
        owner: the module that the method is called on.
    """

    source: SourceFile
    cls: ClassRef | None = None
    owner: Module | None = None


@dataclass(frozen=True)
class _Super:
    """`super()` in a method."""

    place: Place | None = None


@dataclass(frozen=True)
class Step:
    """One operation that was evaluated.

    Attributes:
        before: the places, in the order of steps, of those that made what it takes.
        numbers: copies of the floating-point tensors that it gave, as they were then.
    """

    node: ast.AST
    source: SourceFile
    before: frozenset[int]
    numbers: tuple[Tensor, ...]


class TensorValues(Domain):
    """The values of one evaluation.

    Args:
        salt: other numbers of parameters for another one.
        left_out: operations that give back their first tensor instead.
        cut: the results of an earlier evaluation behind `detach` and inside `no_grad`, to be taken as they were: so
            a change of the input shows what gradients see.
        low: the dtype of parameters.

    Attributes:
        operations: the operations that gave a tensor, in order, with their file.
        constants: the results behind `detach` and inside `no_grad`, in order.
        given: names of a file that mean something else than they do there.
        trace: every operation with what it gave, in order.
        made: id of a tensor -> the step that made it, and the tensor, which keeps the id its own.
    """

    def __init__(
        self,
        salt: int = 0,
        left_out: frozenset[ast.AST] = frozenset(),
        cut: Sequence[Any] | None = None,
        low: Dtype = LOW,
    ) -> None:
        super().__init__()
        self.low = low
        self.salt = salt
        self.left_out = left_out
        self.operations: dict[ast.AST, SourceFile] = {}
        self.constants: list[Any] = []
        self.given: dict[str, Any] = {}
        self.trace: list[Step] = []
        self.made: dict[int, tuple[int, Tensor]] = {}
        self._cut = cut
        self._without_gradient = 0
        self._parameters: dict[int, tuple[Shape, Tensor]] = {}

    def parameter(self, module: Module, name: str) -> Tensor:
        """Return the numbers of a module's parameter, the same for each use.

        Raises:
            Unsupported: its shape is not known.
        """
        shape = module.attributes.get(name, [None])[0]
        if id(shape) not in self._parameters:
            if not isinstance(shape, Shape) or shape.shape is None or None in shape.shape:
                raise Unsupported(f"uses {module.class_name}.{name}, whose shape is not known")
            if np.prod([float(size or 0) for size in shape.shape]) > _LARGEST:
                raise Unsupported(f"uses {module.class_name}.{name}, which is too large to be evaluated")
            seed = [zlib.crc32(name.encode()), self.salt, len(self._parameters)]
            sizes = tuple(size or 0 for size in shape.shape)
            numbers = np.random.default_rng(seed).normal(size=sizes)
            scaled = numbers / np.sqrt(max(1, sizes[-1])) if len(sizes) > 1 else numbers
            self._parameters[id(shape)] = shape, Tensor(scaled, self.low)
        return self._parameters[id(shape)][1]

    def run(self, module: Module, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return the result of a module's method.

        Raises:
            Unsupported: that cannot be determined.
        """
        found = module.cls.method(method) if module.cls is not None else None
        if found is None:
            raise Unsupported(f"{module.class_name} has no {method}")
        cls, node = found
        return self._enter(self._function(node, Place(cls.source, cls, module), (module,)), arguments, keywords)

    def run_module(self, module: Module, *arguments: Any) -> Any:
        """Return the result of calling a module.

        Raises:
            Unsupported: that cannot be determined.
        """
        return self._forward(module, list(arguments), {})

    def call_function(self, function: FunctionRef, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return the result of a library's function.

        Raises:
            Unsupported: that cannot be determined.
        """
        return self._enter(self._function(function.node, Place(function.source)), arguments, keywords)

    def _enter(self, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        frame = Frame(self, function.path, function.module, function.scope, function.home)
        with self._gradient_of(function):
            return frame.entered(function, list(arguments), dict(keywords))

    def _function(self, node: ast.FunctionDef, place: Place, bound: tuple[Any, ...] = ()) -> Function:
        path = place.source.path
        function = Function(node, path, place.source.module, Scope({}), place, bound=bound)
        function.defaults = Frame(self, path, place.source.module, Scope({}), place).defaults(node.args)
        return function

    @contextmanager
    def _gradient_of(self, function: Function) -> Iterator[None]:
        decorators = getattr(function.node, "decorator_list", [])
        closed = any("no_grad" in ast.unparse(one) or "inference_mode" in ast.unparse(one) for one in decorators)
        self._without_gradient += closed
        yield
        self._without_gradient -= closed

    # names and attributes

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: an import, a class, a function or a constant of the file."""
        place: Place = frame.home
        source = place.source
        if name in self.given:
            return self.given[name]
        if name == "super":
            return _Super()
        imported = source.imports.get(name)
        path = ".".join(filter(None, (imported.module, imported.name))) if imported is not None else ""
        if imported is not None and imported.name is None and path.startswith(f"{name}."):
            path = name  # "import torch.nn" binds torch
        if path.partition(".")[0] in _LIBRARIES:
            return External(path)
        if (cls := source.resolve_class(name)) is not None:
            return ClassRef(*cls)
        if (function := source.resolve_function(name)) is not None:
            return FunctionRef(*function)
        if (constant := source.resolve_constant(name)) is not None:
            home, node = constant
            return Frame(self, home.path, home.module, Scope({}), Place(home)).value(node)
        if (own := source.constants.get(name)) is not None:
            return Frame(self, source.path, source.module, Scope({}), Place(source)).value(own)
        if imported is not None:
            return External(path)
        return super().name(name, frame)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        if isinstance(base, External):
            path = f"{base.path}.{name}"
            if base.path == "torch" and name in DTYPES:
                return DTYPES[name]
            return CONSTANTS.get(path.replace("torch", "math").replace("numpy", "math"), External(path))
        if isinstance(base, Tensor):
            return self._of_tensor(base, name)
        if isinstance(base, Module):
            return self._of_module(base, name, frame)
        if isinstance(base, Config):
            if (value := base.get(name)) is UNKNOWN:
                raise Unsupported(f"uses config.{name}, which is not known")
            return value
        if isinstance(base, Table) and name in {"get_interface", "get"}:
            return Native(base.get_interface)
        if isinstance(base, Dtype) or (isinstance(base, Chosen) and name in {"values", "indices"}):
            return getattr(base, name)
        if isinstance(base, Limits) and name in {field.name for field in fields(base)}:
            return getattr(base, name)
        if isinstance(base, ClassRef):
            return self._of_class(base, name, None)
        if isinstance(base, _Super) and base.place is not None:
            return self._of_base(base.place, name)
        return super().attribute(base, name, frame)

    def _of_tensor(self, tensor: Tensor, name: str) -> Any:
        if name in {"shape", "dtype"}:
            return getattr(tensor, name)
        if name in {"T", "mT"}:
            return functions.transpose(tensor, -1, -2) if tensor.data.ndim > 1 else tensor
        if name in {"real", "imag"}:
            return functions.call("select", [functions.view_as_real(tensor), -1, int(name == "imag")], {})
        if name in {"is_cuda", "requires_grad", "ndim", "device"}:
            return {"ndim": tensor.data.ndim, "device": External("torch.device")}.get(name, False)
        if name == "data":
            return self._constant(tensor)
        return Native(partial(self._method, tensor, name))

    def _method(self, tensor: Tensor, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self._torch(name, [tensor, *arguments], keywords)

    def _of_module(self, module: Module, name: str, frame: Frame) -> Any:
        if name == "training":
            return True
        found = module.attributes.get(name)
        if found is not None and found == [UNKNOWN]:
            return self._assigned_by_constructor(module, name)
        if found is not None:
            if len(found) > 1:
                raise Unsupported(f"uses {module.class_name}.{name}, which may be one of several")
            return self.parameter(module, name) if isinstance(found[0], Shape) else found[0]
        if name in {"values", "items", "keys"} and module.cls is None:
            pairs = {key: one[-1] for key, one in module.attributes.items() if isinstance(one[-1], Module)}
            return Native(lambda: list(getattr(pairs, name)()))
        if name == "forward" and (module.cls is None or module.cls.method(name) is None):
            return Native(partial(self._layer_of, module.class_name, module))
        if module.cls is None and name == "bias" and "weight" in module.attributes and name not in module.uncertain:
            return None  # as torch has it of a layer that is made without one
        if module.cls is None:
            raise Unsupported(f"uses {module.class_name}.{name}, which is not known")
        return self._of_class(module.cls, name, module)

    def _assigned_by_constructor(self, module: Module, name: str) -> Any:
        """Return the value that `__init__` assigns to an attribute, if it does not depend on local values."""
        inits = [one.defines("__init__") for one in (module.cls.mro if module.cls else ()) if isinstance(one, ClassRef)]
        for home, init in zip(module.cls.mro if module.cls else (), inits, strict=False):
            for node in ast.walk(init) if init is not None else ():
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                if isinstance(node, ast.Assign) and target is not None and dotted(target) == f"self.{name}":
                    assert isinstance(home, ClassRef)
                    place = Place(home.source, home, module)
                    config = module.attributes.get("config", [None])[0]
                    scope = Scope({"self": module, **({"config": config} if isinstance(config, Config) else {})})
                    try:
                        return Frame(self, home.source.path, home.source.module, scope, place).value(node.value)
                    except Unsupported as error:
                        made = f"`{ast.unparse(node)}` ({home.source.where(node)})"
                        raise Unsupported(
                            f"uses what {made} sets, and that is not known{_of_config(node, config)}"
                        ) from error
        raise Unsupported(f"uses {module.class_name}.{name}, which is not known")

    def _of_class(self, cls: ClassRef, name: str, owner: Module | None) -> Any:
        method = cls.method(name)
        if method is not None:
            home, node = method
            decorators = {dotted(one) for one in node.decorator_list}
            bound = () if owner is None or "staticmethod" in decorators else (owner,)
            function = self._function(node, Place(home.source, home, owner), bound)
            return self._enter(function, [], {}) if "property" in decorators else function
        assigned = cls.assigned(name)
        if assigned is None:
            raise Unsupported(f"uses {cls.node.name}.{name}, which is not known")
        home, value = assigned
        return Frame(self, home.source.path, home.source.module, Scope({}), Place(home.source, home)).value(value)

    def _of_base(self, place: Place, name: str) -> Any:
        """Return the value of `super().name`."""
        owner = place.owner
        if place.cls is None or owner is None or owner.cls is None:
            raise Unsupported("uses super() outside of a method")
        for entry in owner.cls.after(place.cls):
            if isinstance(entry, ClassRef) and (node := entry.defines(name)) is not None:
                return self._function(node, Place(entry.source, entry, owner), (owner,))
            if isinstance(entry, str) and name == "forward":
                return Native(partial(self._layer_of, entry.rpartition(".")[2], owner))
        raise Unsupported(f"uses super().{name}, which is not known")

    def set_attribute(self, base: Any, name: str, value: Any, frame: Frame) -> None:
        """See `Domain`."""
        if not isinstance(base, Module):
            return super().set_attribute(base, name, value, frame)
        base.attributes[name] = [value]
        return None

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`."""
        if isinstance(base, Tensor):
            return self._stepped(functions.getitem(base, key), [base, key], frame, frame.at)
        if isinstance(base, Table):
            return base.get_interface(key)
        if isinstance(base, Module):
            return base.attributes[key][-1] if isinstance(key, str) else self.items(base, frame)[int(_number(key))]
        if isinstance(base, (list, tuple)):
            return base[key if isinstance(key, slice) else int(_number(key))]
        return super().item(base, key, frame)

    def set_item(self, base: Any, key: Any, value: Any, frame: Frame) -> None:
        """See `Domain`."""
        if not isinstance(base, Tensor):
            return super().set_item(base, key, value, frame)
        functions.setitem(base, key, value)
        self._stepped(base, [base, key, value], frame, frame.at)
        return None

    # operations

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        tensors = [one for one in operands if isinstance(one, Tensor)]
        if not tensors or name in {"is_", "is_not", "in", "not in"}:
            if isinstance(operands[-1], (list, tuple)) or name in {"eq", "ne"}:
                same = [one is operands[0] or one == operands[0] for one in operands[1:]]
                return any(same) == (name in {"in", "eq"})
            return super().operation(name, operands, frame)
        if frame.at in self.left_out:
            return tensors[0]
        return self._seen(self._torch(_OPERATIONS.get(name, name), operands, {}), operands, frame)

    def updated(self, name: str, target: Any, value: Any, frame: Frame) -> Any:
        """See `Domain`: a tensor is changed in place."""
        result = self.operation(name, [target, value], frame)
        if isinstance(target, Tensor) and isinstance(result, Tensor) and target.shape == result.shape:
            functions.setitem(target, ..., result)
            return self._stepped(target, [target, result], frame, frame.at)
        return result

    def truth(self, value: Any, frame: Frame) -> bool:
        """See `Domain`."""
        return bool(_number(value)) if isinstance(value, Tensor) else value is not UNKNOWN

    def items(self, value: Any, frame: Frame) -> list[Any]:
        """See `Domain`."""
        if isinstance(value, Tensor):
            return list(functions.unbind(value))
        if isinstance(value, Module):
            return [one[-1] for name, one in value.attributes.items() if name.isdigit()]
        return super().items(value, frame)

    def failed(self, error: Exception, node: ast.AST) -> str:
        """See `Domain`: an exception here tells of what evaluates, and not of the code."""
        return f"cannot be evaluated here: `{ast.unparse(node).splitlines()[0]}`"

    def formatted(self, value: Any, frame: Frame) -> Any:
        """See `Domain`: texts are for people."""
        return ""

    def context(self, node: ast.expr, frame: Frame) -> AbstractContextManager[Any]:
        """See `Domain`: of contexts only those count that stop gradients."""
        stops = "no_grad" in ast.unparse(node) or "inference_mode" in ast.unparse(node)
        return self._closed() if stops else nullcontext()

    @contextmanager
    def _closed(self) -> Iterator[None]:
        self._without_gradient += 1
        try:
            yield
        finally:
            self._without_gradient -= 1

    def decorated(self, definition: Function, decorators: list[Any], nodes: list[ast.expr], frame: Frame) -> Any:
        """See `Domain`: what decorates an inner function does not change what it computes."""
        return definition

    def imported(self, name: str, names: tuple[str, ...], level: int, frame: Frame) -> Any:
        """See `Domain`."""
        return External(name)

    # calls

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`."""
        result = self._called(function, arguments, keywords, frame, node)
        if frame.at in self.left_out and isinstance(result, Tensor):
            bound = (
                function.function.args
                if isinstance(function, Native) and isinstance(function.function, partial)
                else ()
            )
            given = next((one for one in (*bound, *arguments) if isinstance(one, Tensor)), None)
            if given is None or given.shape != result.shape:
                raise Unsupported("is left out, but gives another shape")
            return given
        bound = (
            function.function.args if isinstance(function, Native) and isinstance(function.function, partial) else ()
        )
        return self._seen(result, [*bound, *arguments, *keywords.values()], frame, node)

    def _called(
        self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr
    ) -> Any:
        if isinstance(function, External):
            return self._external(function.path, arguments, keywords)
        if isinstance(function, Module):
            return self._forward(function, arguments, keywords)
        if isinstance(function, FunctionRef):
            return self.call_function(function, arguments, keywords)
        if isinstance(function, ClassRef):
            return construct(function, arguments, keywords)
        if isinstance(function, Function):
            with self._gradient_of(function):
                return super().call(function, arguments, keywords, frame, node)
        if function == _Super():
            return _Super(frame.home)
        if isinstance(function, Native):
            return self._native(function, arguments, keywords, frame, node)
        return super().call(function, arguments, keywords, frame, node)

    def _native(
        self, function: Native, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr
    ) -> Any:
        name = next((name for name, one in BUILTINS.items() if one is function.function), None)
        if name == "hasattr":
            missing = object()
            return self.with_default([*arguments, missing], frame) is not missing
        if name == "isinstance":
            kinds = [ast.unparse(one) for one in _kinds(node)]
            return isinstance(arguments[0], tuple(_KINDS[kind] for kind in kinds if kind in _KINDS))
        adds = (
            name == "sum"
            and isinstance(arguments[0], list | tuple)
            and any(isinstance(x, Tensor) for x in arguments[0])
        )
        plain = all(is_plain(one) or is_iterable(one) for one in [*arguments, *keywords.values()])
        if name == "getattr" or (plain and not adds):
            return super().call(function, arguments, keywords, frame, node)
        if name is None:
            return function.function(*arguments, **keywords)
        first = arguments[0]
        if name in {"int", "float", "bool"}:
            return {"int": int, "float": float, "bool": bool}[name](_number(first))
        if name == "len":
            return len(first.data) if isinstance(first, Tensor) else len(self.items(first, frame))
        if name in {"max", "min", "sum", "abs"} and isinstance(first, Tensor):
            return self._torch({"max": "maximum", "min": "minimum"}.get(name, name), arguments, keywords)
        listed = [one if is_plain(one) else list(frame.items_of(one)) for one in arguments]
        if name == "sum":
            total = arguments[1] if len(arguments) > 1 else 0
            for one in listed[0]:
                total = self._torch("add", [total, one], {})
            return total
        return BUILTINS[name](*listed, **keywords)

    def _external(self, path: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        package, _, name = path.rpartition(".")
        last = f"math.{name}"
        if path.startswith(("math.", "numpy.")) or path in LIBRARY:
            return LIBRARY.get(path, LIBRARY.get(last, _unknown(path)))(*arguments, **keywords)
        if name in {"finfo", "iinfo"}:
            return Limits()
        if name in _PASSED_OVER:
            return None
        if name == "is_tensor":
            return isinstance(arguments[0], Tensor)
        if name == "Size":
            return tuple(arguments[0])
        if name == "is_grad_enabled":
            return True
        if package in {"torch.nn", "nn"} and (name in _ACTIVATIONS or name in _IDLE):
            return Module(name)
        if path.startswith("torch.") and "." not in path.removeprefix("torch.nn.functional.").removeprefix("torch."):
            return self._torch(name, arguments, keywords)
        raise Unsupported(f"calls {path}")

    def _torch(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if name in {"detach", "detach_"}:
            return self._constant(arguments[0])
        try:
            result = functions.call(name, arguments, dict(keywords))
        except functions.UnsupportedOperation as error:
            raise Unsupported(str(error)) from error
        return self._constant(result) if self._without_gradient and isinstance(result, Tensor) else result

    def _constant(self, tensor: Tensor) -> Tensor:
        """Return a result that gradients do not see."""
        if not tensor.dtype.is_floating_point:
            return tensor
        place = len(self.constants)
        self.constants.append(tensor.data.copy())
        return tensor.like(self._cut[place]) if self._cut is not None and place < len(self._cut) else tensor

    def _forward(self, module: Module, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if module.cls is None:
            return self._layer(module.class_name, module, arguments, keywords)
        if module.cls.method("forward") is not None:
            return self.run(module, "forward", arguments, keywords)
        roots = [one.rpartition(".")[2] for one in module.cls.mro if isinstance(one, str)]
        return self._layer(next((one for one in roots if one != "Module"), ""), module, arguments, keywords)

    def _layer(self, kind: str, module: Module, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Return a module of torch.nn."""

        def held(name: str) -> Tensor | None:
            return self.parameter(module, name) if isinstance(module.attributes.get(name, [None])[0], Shape) else None

        weight = held("weight")
        if kind == "Linear":
            return functions.linear(arguments[0], _present(weight), held("bias"))
        if kind == "Embedding":
            return functions.embedding(arguments[0], _present(weight))
        if kind in {"LayerNorm", "RMSNorm"}:
            return self._norm(kind, module, arguments[0], weight, held("bias"))
        if kind == "Sequential":
            given = arguments[0]
            for name, one in module.attributes.items():
                given = self._forward(one[-1], [given], {}) if name.isdigit() else given
            return given
        if kind in _IDLE:
            return arguments[0]
        if kind in _ACTIVATIONS:
            return self._torch(_ACTIVATIONS[kind], arguments, keywords)
        raise Unsupported(f"calls a {kind or module.class_name}")

    def _layer_of(self, kind: str, module: Module, *arguments: Any, **keywords: Any) -> Any:
        return self._layer(kind, module, list(arguments), keywords)

    def _norm(self, kind: str, module: Module, given: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        size = weight.shape if weight is not None else given.shape[-1:]
        if kind == "RMSNorm":
            return functions.rms_norm(given, size, weight, 1e-6)
        return functions.layer_norm(given, size, weight, bias, 1e-5)

    def _seen(self, result: Any, given: Sequence[Any], frame: Frame, node: ast.AST | None = None) -> Any:
        if isinstance(result, Tensor) and isinstance(frame.home, Place):
            self.operations[node or frame.at] = frame.home.source
        return self._stepped(result, given, frame, node or frame.at)

    def _stepped(self, result: Any, given: Sequence[Any], frame: Frame, node: ast.AST) -> Any:
        """Return the result of an operation, which is kept as a step where it is not that of one further in."""
        taken = [id(one) for one in tensors_in(given)]
        fresh = [one for one in tensors_in(result) if id(one) in taken or id(one) not in self.made]
        if not isinstance(frame.home, Place):
            return result
        for one in tensors_in(result):  # what a call into another file gives is told where the call stands
            at = self.made[id(one)][0] if id(one) in self.made and id(one) not in taken else -1
            if at >= 0 and self.trace[at].source is not frame.home.source:
                self.trace[at] = replace(self.trace[at], node=node, source=frame.home.source)
        if fresh:
            before = frozenset(self.made[one][0] for one in taken if one in self.made)
            numbers = tuple(one.like(one.data.copy()) for one in fresh if one.dtype.is_floating_point)
            self.made.update({id(one): (len(self.trace), one) for one in fresh})
            self.trace.append(Step(node, frame.home.source, before, numbers))
        return result


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a result: itself, or those in its parts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)


@dataclass(frozen=True)
class Limits:
    """Result of `torch.finfo`: of no dtype, because values are held in double precision."""

    min: float = -1e30
    max: float = 1e30
    eps: float = 1e-6


def _number(value: Any) -> Any:
    """Return the only number of a tensor, or a number as it is."""
    if isinstance(value, Tensor):
        if value.data.size != 1:
            raise Unsupported("takes a tensor of several numbers for one")
        return value.data.item()
    return value


def _present(value: Tensor | None) -> Tensor:
    if value is None:
        raise Unsupported("uses a weight that is not known")
    return value


def _of_config(node: ast.AST, config: Any) -> str:
    """Return the fields of a config that a statement reads with what is known of them, as a reason names them."""
    read = {dotted(one) or "" for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    names = sorted(one.rpartition("config.")[2] for one in read if one.startswith(("config.", "self.config.")))
    values = [(name, config.get(name) if isinstance(config, Config) else UNKNOWN) for name in names]
    shown = [f"config.{name}, which is {'not known' if value is UNKNOWN else value}" for name, value in values]
    return f": it reads {' and '.join(shown)}" if shown else ""


def _kinds(node: ast.expr) -> list[ast.expr]:
    """Return the classes that `isinstance` asks for."""
    kinds = node.args[1] if isinstance(node, ast.Call) and len(node.args) > 1 else ast.Constant(None)
    return kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]


def _unknown(path: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise Unsupported(f"calls {path}")

    return refuse
