"""Runs constructors: statements that make a tree of modules."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource import eval as python
from omni_kit.pysource.classes import ClassRef, FunctionRef, readable
from omni_kit.pysource.eval import UNKNOWN, Scope, Unknown, Unsupported
from omni_kit.pysource.eval.frame import Return
from omni_kit.pysource.eval.python import listed
from omni_kit.pysource.eval.values import is_iterable
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.construction.binding import argument_names, bind
from omni_kit.upstream.construction.domain import Construction, Place
from omni_kit.upstream.construction.layers import layer_parameters
from omni_kit.upstream.construction.values import Arguments, Config, Module, Tensor

_KEEPS = "register_to_config"  # how a constructor says that its arguments are the config
_PASSED_OVER = (
    ast.While, ast.Try, ast.Assert, ast.Delete, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import,
    ast.Global, ast.Nonlocal, ast.Match,
)  # fmt: skip
_UNTOLD = (Unsupported, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Interpreter:
    """Builds modules from the classes that one modeling file can see."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source

    def build(self, class_name: str, args: list[Any], kwargs: dict[str, Any]) -> Module:
        """Return the module that calling `class_name` gives.

        Raises:
            BadInput: the file neither defines nor imports the class.
        """
        found = self.source.resolve_class(class_name)
        if found is None:
            raise BadInput(f"{self.source.path.name} has no class {class_name}")
        return construct(ClassRef(*found), args, kwargs)

    def call(self, function_name: str, kwargs: dict[str, Any]) -> Any:
        """Return the result of a function of the file for named arguments; UNKNOWN if missing or not evaluable.

        Plain values, and tensors of which the shape counts, are what it can work with.
        """
        node = self.source.functions.get(function_name)
        if node is None:
            return UNKNOWN
        return returned_by(Place(FunctionRef(self.source, node), Module(function_name)), node, [], kwargs)


def construct(cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Module:
    """Return the module that calling a class gives."""
    module = Module(cls.node.name, cls=cls)
    opened(Place(cls, module)).initialise(cls.mro, module, *args, **kwargs)
    return module


def returned_by(place: Place, node: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a method or a function; UNKNOWN if it cannot be evaluated."""
    return opened(place).enter(place, node, args, kwargs)


def opened(place: Place) -> "Frame":
    """Return a place to begin from."""
    return Frame(Construction(), place.source.path, place.source.module, Scope({}), place)


class Frame(python.Frame):
    """The execution of the body of one method, or of one function: what cannot be determined is UNKNOWN.

    If a condition cannot be determined, both branches are gone through, and what they set is uncertain.
    """

    home: Place

    def __init__(self, domain: python.Domain, path: Path, module: str, scope: Scope, home: Place) -> None:
        super().__init__(domain, path, module, scope, home)
        self.uncertain = 0
        self.undecided = False
        self.origin: ast.AST = ast.Pass()

    def framed(self, path: Path, module: str, scope: Scope, home: Any) -> "Frame":
        """See its base."""
        return Frame(self.domain, path, module, scope, home)

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression; UNKNOWN if it cannot be evaluated."""
        try:
            return super().value(node)
        except _UNTOLD:
            return UNKNOWN

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Run statements one after the other; those of other types are passed over."""
        for node in body:
            if not isinstance(node, _PASSED_OVER):
                self.runner(node)(node)

    def of_ifexp(self, node: ast.IfExp) -> Any:
        """Return the branch that the condition chooses; if it cannot be determined, a module of either."""
        test = self.value(node.test)
        if not isinstance(test, Unknown):
            return self.value(node.body if self.is_true(test) else node.orelse)
        both = [self.value(node.body), self.value(node.orelse)]
        modules = [value for value in both if isinstance(value, (Module, Tensor, ClassRef))]
        return modules[0] if len(modules) == 1 else UNKNOWN

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """See its base; of a starred value that is not known, one."""
        found: list[Any] = []
        for node in nodes:
            value = self.value(node.value if isinstance(node, ast.Starred) else node)
            if isinstance(node, ast.Starred):
                found += listed(value) if is_iterable(value) else [UNKNOWN]
            else:
                found.append(value)
        return found

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        """See its base; `**` of a config gives what it was given."""
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                found[keyword.arg] = value
            elif isinstance(value, (dict, Config)):
                found |= value if isinstance(value, dict) else value.given
        return found

    # statements

    def run_assign(self, node: ast.Assign) -> None:
        """`a = b = value`."""
        self.origin = node.value
        super().run_assign(node)

    def run_annassign(self, node: ast.AnnAssign) -> None:
        """`a: T = value`."""
        self.origin = node.value or node
        super().run_annassign(node)

    def run_augassign(self, node: ast.AugAssign) -> None:
        """`a += value`, as `a = a + value`."""
        self.origin = node.value
        self.bind(node.target, self.value(ast.BinOp(node.target, node.op, node.value)))

    def run_if(self, node: ast.If) -> None:
        """The branch that the condition chooses; both, as uncertain, if it cannot be determined."""
        test = self.value(node.test)
        if isinstance(test, Unknown):
            self.uncertain += 1
            self.run(node.body)
            self.run(node.orelse)
            self.uncertain -= 1
        else:
            self.run(node.body if self.is_true(test) else node.orelse)

    def run_for(self, node: ast.For) -> None:
        """A loop over known items."""
        try:
            items = list(self.items(node.iter))
        except Unsupported:
            made = any(isinstance(part, ast.Call) and self.may_be_module(part) for part in ast.walk(node))
            # calls for their effect on the items, as on all parameters of a module, leave what is returned as it is
            self.undecided |= made or not all(isinstance(part, ast.Expr) for part in node.body)
            if made and isinstance(self.home.owner, Module):
                self.home.owner.unresolved["*"] = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
            return
        for item in items:
            self.origin = node.iter
            self.bind(node.target, item)
            if not self.goes_on(node.body):
                return

    def run_break(self, node: ast.Break) -> None:
        """End a loop, unless it is not certain that it is reached."""
        if not self.uncertain:
            super().run_break(node)

    def run_continue(self, node: ast.Continue) -> None:
        """End a pass of a loop, unless it is not certain that it is reached."""
        if not self.uncertain:
            super().run_continue(node)

    def run_with(self, node: ast.With) -> None:
        """The body of a `with`."""
        self.run(node.body)

    def run_return(self, node: ast.Return) -> None:
        """End the method, unless it is not certain that it is reached."""
        if not self.uncertain:
            super().run_return(node)
        self.undecided = True

    def run_raise(self, node: ast.Raise) -> None:
        """End a function without a value, unless it is not certain that it is reached."""
        if not self.uncertain and isinstance(self.home.code, FunctionRef):
            raise Return(UNKNOWN)

    def run_expr(self, node: ast.Expr) -> None:
        """A call for its effect."""
        if isinstance(node.value, ast.Call):
            found = self.value(node.value)
            grows = isinstance(node.value.func, ast.Attribute) and node.value.func.attr in {"append", "insert"}
            self.undecided |= grows and found is UNKNOWN

    # modules

    def construct(self, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Module | Config:
        """Return a config where one is being built, else the module that calling the class gives."""
        owner = self.home.owner
        if isinstance(owner, Config) and (made := owner.make(cls, kwargs)) is not None:
            return made
        module = Module(cls.node.name, cls=cls)
        self.initialise(cls.mro, module, *args, **kwargs)
        return module

    def initialise(self, mro: Sequence[ClassRef | str], module: Module, *args: Any, **kwargs: Any) -> None:
        """Run the first constructor of `mro`; it calls the next by `super()`."""
        for entry in mro:
            if isinstance(entry, str):
                if _initialised_by_root(entry, module, list(args), kwargs):
                    return
            elif (init := entry.defines("__init__")) is not None:
                if any((dotted(decorator) or "").endswith(_KEEPS) for decorator in init.decorator_list):
                    names = bind(init, [module, *args], kwargs)
                    self.keep(module, **{name: names[name] for name in argument_names(init)[1:]})
                self.enter(Place(entry, module), init, [module, *args], kwargs)
                return

    def keep(self, module: Module, **values: Any) -> None:
        """Arguments become a part of the module's config; those of a base's constructor join those of the class."""
        found = module.attributes.setdefault("config", [Arguments(module.class_name, {})])[0]
        for name, value in values.items() if isinstance(found, Arguments) else ():
            found.set(name, value, certain=True)

    def enter(self, place: Place, node: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a method or a function to its end; give UNKNOWN if what it returns cannot be determined."""
        source = place.source
        frame = Frame(self.domain, source.path, source.module, Scope(bind(node, args, kwargs)), place)
        self.domain.depth -= 1
        found: Any = UNKNOWN
        try:
            if self.domain.depth < 0:
                return UNKNOWN
            frame.run(node.body)
        except Return as given:
            found = given.value
        finally:
            self.domain.depth += 1
        return UNKNOWN if frame.undecided or isinstance(found, Unknown) or not readable(node) else found

    # stores

    def bind(self, target: ast.expr, value: Any) -> None:
        """Assigns to a name, an attribute, an item, or a tuple of those; what is set uncertainly is not known."""
        if isinstance(target, ast.Name):
            known = self.scope.names.get(target.id, UNKNOWN)
            self.scope.names[target.id] = value if not self.uncertain or known is UNKNOWN else UNKNOWN
        elif isinstance(target, ast.Subscript) and self.uncertain:
            super().bind(target, UNKNOWN)
        else:
            super().bind(target, value)

    def set_own(self, module: Module, name: Any, value: Any) -> None:
        """Set an attribute of a module; as an alternative where it is not certain that it is set."""
        if not isinstance(name, str):
            return
        origin = self.origin
        if module is not self.home.owner:
            pass
        elif isinstance(value, (Module, Tensor)):
            module.unresolved.pop(name, None)
        elif isinstance(value, Unknown) and isinstance(origin, ast.Call) and self.may_be_module(origin):
            module.unresolved[name] = ast.unparse(origin)
        value = UNKNOWN if isinstance(value, Unknown) else value
        if self.uncertain:
            module.uncertain.add(name)
            module.attributes.setdefault(name, []).append(value)
            return
        module.attributes[name] = [value]
        if isinstance(origin, ast.IfExp) and isinstance(self.value(origin.test), Unknown):
            module.uncertain.add(name)

    def may_be_module(self, call: ast.Call) -> bool:
        """Return whether a call that could not be read may make a module: `Name(...)`, `CLASSES[...](...)`, a
        function of the
        file that uses torch.nn."""
        if isinstance(call.func, ast.Subscript):
            return True
        name = dotted(call.func) or ""
        last = name.rpartition(".")[2]
        function = self.home.source.functions.get(name)
        makes = function is not None and "nn." in ast.unparse(function)
        wraps = any(isinstance(argument, ast.Call) and self.may_be_module(argument) for argument in call.args)
        return makes or wraps or last[:1].isupper() or last.endswith("from_config")


def _initialised_by_root(name: str, module: Module, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Return the constructors of PreTrainedModel and of torch.nn; whether it was one of these."""
    if name == "PreTrainedModel":
        module.pretrained = True
        module.attributes.setdefault("config", [args[0] if args else kwargs.get("config", UNKNOWN)])
    elif name.startswith("nn.") and module.cls is not None:
        where = module.cls.source.where(module.cls.node)
        module.attributes.update(layer_parameters(name.removeprefix("nn."), args, kwargs, where) or {})
    return name == "PreTrainedModel" or name.startswith("nn.")
