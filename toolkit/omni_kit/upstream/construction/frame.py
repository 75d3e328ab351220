"""Runs constructors: statements that make a tree of modules."""

import ast
from typing import Any, cast

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef, FunctionRef, readable
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.source import Imported, SourceFile, absolute_module, dotted
from omni_kit.upstream.construction.binding import argument_names, bind
from omni_kit.upstream.construction.calls import Calls
from omni_kit.upstream.construction.expressions import BINARY, MAX_ITEMS
from omni_kit.upstream.construction.layers import layer_parameters
from omni_kit.upstream.construction.values import Arguments, Config, Module, Tensor

_DEEPEST = 32
_KEEPS = "register_to_config"  # how a constructor says that its arguments are the config
_SETTERS = frozenset({"self.add_module", "self.register_module", "self.register_parameter", "setattr"})

# What runs each type of statements.
_DOERS = {kind: f"do_{kind.__name__.lower()}" for kind in ast.stmt.__subclasses__()}


class _Return(Exception):
    pass


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
        return construct(ClassRef(*found), args, kwargs)

    def call(self, function_name: str, kwargs: dict[str, Any]) -> Any:
        """What a function of the file returns for named arguments; UNKNOWN where that cannot be told, or it has none.

        Plain values, and tensors of which the shape counts, are what it can work with.
        """
        node = self.source.functions.get(function_name)
        if node is None:
            return UNKNOWN
        function = FunctionRef(self.source, node)
        return Frame(function, Module(function_name), {}).run_function(function, [], kwargs)


def construct(cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Module:
    """The module that calling a class gives."""
    module = Module(cls.node.name, cls=cls)
    _initialise(cls.mro, module, args, kwargs)
    return module


def _initialise(mro: tuple[ClassRef | str, ...], module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Runs the first constructor of `mro`; it calls the next by `super()`."""
    for entry in mro:
        if isinstance(entry, str):
            if _initialise_root(entry, module, args, kwargs):
                return
        elif (init := entry.defines("__init__")) is not None:
            scope = bind(init, [module, *args], kwargs)
            if any((dotted(decorator) or "").endswith(_KEEPS) for decorator in init.decorator_list):
                _keep(module, {name: scope[name] for name in argument_names(init)[1:]})
            Frame(entry, module, scope).run(init.body)
            return


def _keep(module: Module, values: dict[str, Any]) -> None:
    """Arguments become a part of the module's config; those of a base's constructor join those of the class."""
    found = module.attributes.setdefault("config", [Arguments(module.class_name, {})])[0]
    for name, value in values.items() if isinstance(found, Arguments) else ():
        found.set(name, value, certain=True)


def _initialise_root(name: str, module: Module, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """The constructors of PreTrainedModel and of torch.nn; whether it was one of these."""
    if name == "PreTrainedModel":
        module.pretrained = True
        module.attributes.setdefault("config", [args[0] if args else kwargs.get("config", UNKNOWN)])
    elif name.startswith("nn.") and module.cls is not None:
        where = module.cls.source.where(module.cls.node)
        module.attributes.update(layer_parameters(name.removeprefix("nn."), args, kwargs, where) or {})
    return name == "PreTrainedModel" or name.startswith("nn.")


class Frame(Calls):
    """The execution of the body of one method, or of one function."""

    def __init__(
        self, home: ClassRef | FunctionRef, owner: Module | Config, scope: dict[str, Any], depth: int = 0
    ) -> None:
        super().__init__(home, scope)
        self.owner = owner
        self.depth = depth
        self.uncertain = 0
        self.returned: Any = UNKNOWN
        self.undecided = False

    def run(self, body: list[ast.stmt]) -> None:
        """Runs a method body to its end, or to the first `return`."""
        try:
            self.block(body)
        except _Return:
            return

    def block(self, body: list[ast.stmt]) -> None:
        """Runs statements one after the other; those of other types are passed over."""
        for statement in body:
            handler = getattr(self, _DOERS.get(type(statement), ""), None)
            if handler is not None:
                handler(statement)

    # statements

    def do_assign(self, node: ast.Assign) -> None:
        """`a = b = value`."""
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value, node.value)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        """`a: T = value`."""
        if node.value is not None:
            self.store(node.target, self.value(node.value), node.value)

    def do_augassign(self, node: ast.AugAssign) -> None:
        """`a += value`."""
        old, step = self.value(node.target), self.value(node.value)
        known = old is not UNKNOWN and step is not UNKNOWN and type(node.op) in BINARY
        try:
            value = BINARY[type(node.op)](old, step) if known else UNKNOWN
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            value = UNKNOWN
        self.store(node.target, value, node.value)

    def do_if(self, node: ast.If) -> None:
        """The branch that the condition chooses; both, as uncertain, where it cannot be told."""
        test = self.value(node.test)
        if test is UNKNOWN:
            self.uncertain += 1
            self.block(node.body)
            self.block(node.orelse)
            self.uncertain -= 1
        else:
            self.block(node.body if test else node.orelse)

    def do_for(self, node: ast.For) -> None:
        """A loop over known items."""
        items = self.value(node.iter)
        if isinstance(items, Module):
            items = items.items()
        if items is UNKNOWN or not isinstance(items, (list, tuple, range)) or len(items) > MAX_ITEMS:
            made = any(isinstance(part, ast.Call) and self.may_be_module(part) for part in ast.walk(node))
            # calls for their effect on the items, as on all parameters of a module, leave what is returned as it is
            self.undecided |= made or not all(isinstance(part, ast.Expr) for part in node.body)
            if made and isinstance(self.owner, Module):
                self.owner.unresolved["*"] = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
            return
        for item in items:
            self.store(node.target, item, node.iter)
            self.block(node.body)

    def do_importfrom(self, node: ast.ImportFrom) -> None:
        """An import inside of a method: classes and functions of the library."""
        module = absolute_module(self.source.package, node)
        for alias in node.names:
            self.scope[alias.asname or alias.name] = self.imported(Imported(module, alias.name))

    def do_with(self, node: ast.With) -> None:
        """The body of a `with`."""
        self.block(node.body)

    def do_return(self, node: ast.Return) -> None:
        """Ends the method, unless it is not certain that it is reached."""
        if self.uncertain:
            self.undecided = True
            return
        self.returned = self.value(node.value) if node.value is not None else None
        raise _Return

    def do_raise(self, node: ast.Raise) -> None:
        """Ends a function without a value, unless it is not certain that it is reached."""
        if self.depth and not self.uncertain:
            raise _Return

    def do_expr(self, node: ast.Expr) -> None:
        """A call for its effect: `super().__init__`, `register_buffer`, `append` and methods of modules."""
        if not isinstance(node.value, ast.Call):
            return
        call = node.value
        if self.is_super(call, "__post_init__") and isinstance(self.owner, Config):
            left = self.scope.get("kwargs")
            for name, value in left.items() if isinstance(left, dict) else ():  # the base sets what no field took
                self.owner.set(name, value, certain=not self.uncertain)
            return
        if self.is_super(call, "__init__") and isinstance(self.owner, Module):
            _initialise(self.above(self.owner), self.owner, self.args(call), self.kwargs(call))
            return
        if (dotted(call.func) or "") == f"self.{_KEEPS}" and isinstance(self.owner, Module):
            _keep(self.owner, self.kwargs(call))
            return
        if (method := self.super_method(call) or self.module_method(call)) is not None:
            module, cls, body = method
            Frame(cls, module, bind(body, [module, *self.args(call)], self.kwargs(call))).run(body.body)
        elif (dotted(call.func) or "") == "self.register_buffer":
            self.register_buffer(call)
        elif (dotted(call.func) or "") in _SETTERS:
            args = self.args(call)[-2:]
            if len(args) == 2 and isinstance(args[0], str):
                self.set_attribute(args[0], args[1], call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in {"append", "insert"}:
            self.add_item(call.func, call)
        else:
            self.value(call)

    def add_item(self, function: ast.Attribute, call: ast.Call) -> None:
        """`.append(x)` or `.insert(i, x)`, to a list or to a container of modules; its items count on from 0."""
        target, args = self.value(function.value), self.args(call) or [UNKNOWN]
        place, item = (args[0], args[-1]) if function.attr == "insert" and len(args) > 1 else (None, args[0])
        items = target.items() if isinstance(target, Module) else target
        if place is UNKNOWN or not isinstance(items, list):
            self.undecided = True
            return
        items.insert(len(items) if place is None else place, item)
        if isinstance(target, Module):
            target.attributes.update({str(number): [one] for number, one in enumerate(items)})
            if item is UNKNOWN:
                target.unresolved[str(len(items) - 1)] = ast.unparse(call)

    def module_method(self, call: ast.Call) -> tuple[Module, ClassRef, ast.FunctionDef] | None:
        """The module and the method that `self.name(...)` or `self.part.name(...)` calls, if the library defines it."""
        if not isinstance(call.func, ast.Attribute) or not (dotted(call.func) or "").startswith("self."):
            return None
        module = self.value(call.func.value)
        found = module.cls.method(call.func.attr) if isinstance(module, Module) and module.cls is not None else None
        return (module, *found) if found is not None else None

    def super_method(self, call: ast.Call) -> tuple[Module, ClassRef, ast.FunctionDef] | None:
        """This module and the method that `super().name(...)` calls, if the library defines it."""
        function, owner = call.func, self.owner
        if not isinstance(function, ast.Attribute) or not self.is_super(call, function.attr):
            return None
        for entry in self.above(owner) if isinstance(owner, Module) else ():
            if isinstance(entry, ClassRef) and (found := entry.defines(function.attr)) is not None:
                return cast(Module, owner), entry, found
        return None

    def above(self, owner: Module) -> tuple[ClassRef | str, ...]:
        """The classes that `super()` looks at here."""
        return owner.cls.after(self.home) if owner.cls is not None and isinstance(self.home, ClassRef) else ()

    def is_super(self, call: ast.Call, method: str) -> bool:
        """Whether a call is `super().method(...)`."""
        func = call.func
        return (
            isinstance(func, ast.Attribute)
            and func.attr == method
            and isinstance(func.value, ast.Call)
            and dotted(func.value.func) == "super"
        )

    def register_buffer(self, call: ast.Call) -> None:
        """Keeps a persistent buffer as an attribute of the module."""
        args, kwargs = self.args(call), self.kwargs(call)
        name = args[0] if args else kwargs.get("name", UNKNOWN)
        persistent = args[2] if len(args) > 2 else kwargs.get("persistent", True)
        tensor = args[1] if len(args) > 1 else kwargs.get("tensor", UNKNOWN)
        if isinstance(name, str) and persistent is not False and tensor is not None:
            shape = tensor.shape if isinstance(tensor, Tensor) else None
            self.set_attribute(name, Tensor(shape, self.source.where(call), buffer=True), call)

    # stores

    def bind(self, target: ast.expr, value: Any) -> None:
        """Gives a variable of a comprehension its value."""
        self.store(target, value, target)

    def store(self, target: ast.expr, value: Any, origin: ast.expr) -> None:
        """Assigns to a name, an attribute, an item, or a tuple of those."""
        if isinstance(target, ast.Name):
            known = self.scope.get(target.id, UNKNOWN)
            self.scope[target.id] = value if not self.uncertain or known is UNKNOWN else UNKNOWN
        elif isinstance(target, ast.Attribute) and dotted(target.value) == "self":
            self.set_attribute(target.attr, value, origin)
        elif isinstance(target, ast.Attribute):
            self.store_below(self.value(target.value), target.attr, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value if isinstance(value, (list, tuple)) and len(value) == len(target.elts) else None
            for index, item in enumerate(target.elts):
                self.store(item, values[index] if values is not None else UNKNOWN, origin)
        elif isinstance(target, ast.Subscript):
            container, key = self.value(target.value), self.value(target.slice)
            if isinstance(container, Module) and key is not UNKNOWN:
                container.attributes[str(key)] = [value]
            elif isinstance(container, dict) and key is not UNKNOWN:
                container[key] = value if not self.uncertain else UNKNOWN

    def store_below(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of a config, or of a module that was built before."""
        if isinstance(owner, Config):
            owner.set(name, value, certain=not self.uncertain)
        elif isinstance(owner, Module) and self.uncertain:
            owner.uncertain.add(name)
            owner.attributes.setdefault(name, []).append(value)
        elif isinstance(owner, Module):
            owner.attributes[name] = [value]

    def set_attribute(self, name: str, value: Any, origin: ast.AST) -> None:
        """Sets an attribute of self; as an alternative where it is not certain that it is set."""
        owner = self.owner
        if isinstance(owner, Config):
            owner.set(name, value, certain=not self.uncertain)
            return
        if isinstance(value, (Module, Tensor)):
            owner.unresolved.pop(name, None)
        elif value is UNKNOWN and isinstance(origin, ast.Call) and self.may_be_module(origin):
            owner.unresolved[name] = ast.unparse(origin)
        if self.uncertain:
            owner.uncertain.add(name)
            owner.attributes.setdefault(name, []).append(value)
            return
        owner.attributes[name] = [value]
        if isinstance(origin, ast.IfExp) and self.value(origin.test) is UNKNOWN:
            owner.uncertain.add(name)

    def run_function(self, function: FunctionRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a function returns; UNKNOWN where that hangs on what is not known, or where calls go too deep."""
        return self.returned_by(function, self.owner, function.node, bind(function.node, args, kwargs))

    def method_call(self, node: ast.Call, args: list[Any]) -> Any:
        """What a method of this module, or of a part of it, returns; else as plain values answer."""
        found = self.module_method(node)
        if found is None:
            return super().method_call(node, args)
        module, cls, body = found
        return self.returned_by(cls, module, body, bind(body, [module, *args], self.kwargs(node)))

    def returned_by(
        self, home: ClassRef | FunctionRef, owner: Module | Config, node: ast.FunctionDef, scope: dict[str, Any]
    ) -> Any:
        """Runs a function to its end."""
        if self.depth >= _DEEPEST or not readable(node):
            return UNKNOWN
        frame = Frame(home, owner, scope, self.depth + 1)
        frame.run(node.body)
        return UNKNOWN if frame.undecided else frame.returned

    def may_be_module(self, call: ast.Call) -> bool:
        """Whether a call that could not be read may make a module: `Name(...)`, `CLASSES[...](...)`, a function of the
        file that uses torch.nn."""
        if isinstance(call.func, ast.Subscript):
            return True
        name = dotted(call.func) or ""
        last = name.rpartition(".")[2]
        function = self.source.functions.get(name)
        makes = function is not None and "nn." in ast.unparse(function)
        wraps = any(isinstance(argument, ast.Call) and self.may_be_module(argument) for argument in call.args)
        return makes or wraps or last[:1].isupper() or last.endswith("from_config")

    def construct(self, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Module | Config:
        """A config where one is being built, else the module that calling the class gives."""
        made = self.owner.make(cls, kwargs) if isinstance(self.owner, Config) else None
        return made or construct(cls, args, kwargs)
