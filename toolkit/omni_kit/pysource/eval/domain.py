"""Values that are not plain Python: each evaluator of source defines a domain for its own."""

import ast
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from omni_kit.pysource.eval.python import BUILTINS
from omni_kit.pysource.eval.values import (
    UNKNOWN,
    Exhausted,
    Function,
    Native,
    Partial,
    Unknown,
    Unsupported,
    bounded,
    is_iterable,
    is_plain,
)


class Domain:
    """Values, what operations make of them, and how much work is allowed.

    The interpreter evaluates plain Python by itself and comes here with everything else; as it stands here, a domain
    has no values of its own, and whatever would need one is Unsupported.

    Every method is told the `Frame` in which the code stands: its scope, its place, and `at`, the node.

    Args:
        steps: how many statements and expressions may be gone through.
        depth: how many functions may be open at a time.
    """

    def __init__(self, steps: int = 200_000, depth: int = 30) -> None:
        self.steps = steps
        self.depth = depth

    def spend(self) -> None:
        """Take one step off the budget.

        Raises:
            Unsupported: it is spent.
        """
        self.steps -= 1
        if self.steps < 0:
            raise Exhausted("does not terminate within the limit")

    def name(self, name: str, frame: Any) -> Any:
        """Return the value of a name that no scope defines and that is not a built-in."""
        raise Unsupported(f"uses {name}")

    def attribute(self, base: Any, name: str, frame: Any) -> Any:
        """Return an attribute of a value that is not plain."""
        raise Unsupported(f"uses {name} of {_shown(base)}")

    def set_attribute(self, base: Any, name: str, value: Any, frame: Any) -> None:
        """Set an attribute."""
        raise Unsupported(f"sets {name} of {_shown(base)}")

    def item(self, base: Any, key: Any, frame: Any) -> Any:
        """`base[key]`, one of which is not plain."""
        raise Unsupported(f"takes an item of {_shown(base)}")

    def set_item(self, base: Any, key: Any, value: Any, frame: Any) -> None:
        """`base[key] = value`, where the base or the key is not plain."""
        raise Unsupported(f"sets an item of {_shown(base)}")

    def operation(self, name: str, operands: list[Any], frame: Any) -> Any:
        """Return the result of an operator with a non-plain operand; it has its name in `python.OPERATORS`."""
        if name in {"is_", "is_not"}:
            return (operands[0] is operands[1]) == (name == "is_")
        raise Unsupported("performs an unsupported computation")

    def updated(self, name: str, target: Any, value: Any, frame: Any) -> Any:
        """Return the value that `target op= value` assigns."""
        return self.operation(name, [target, value], frame)

    def truth(self, value: Any, frame: Any) -> bool:
        """Return whether a value counts as true that is not plain."""
        raise Unsupported(f"depends on {_shown(value)}")

    def items(self, value: Any, frame: Any) -> list[Any]:
        """Return the items of a value that is not plain."""
        raise Unsupported(f"goes through {_shown(value)}")

    def unpacked(self, value: Any, count: int, frame: Any) -> list[Any]:
        """Return the items of a value that is unpacked into so many targets, or into a call or a list."""
        return list(frame.items_of(value))

    def formatted(self, value: Any, frame: Any) -> Any:
        """Return the text of a value in a formatted string; None if it is unknown."""
        raise Unsupported(f"formats {_shown(value)}")

    def context(self, node: ast.expr, frame: Any) -> AbstractContextManager[Any]:
        """Return the context manager in which the body of `with node` is evaluated."""
        raise Unsupported(f"enters {ast.unparse(node)}")

    def imported(self, name: str, names: tuple[str, ...], level: int, frame: Any) -> Any:
        """Return the module that an import gives: the whole one where `names` come from it, else its first package."""
        raise Unsupported(f"imports {name}")

    def raised(self, text: str, frame: Any) -> Unsupported:
        """Return the error that stands for an exception that the code raises."""
        return Unsupported(f"raises {text}")

    def failed(self, error: Exception, node: ast.AST) -> str:
        """Return the error about code whose evaluation raised a Python exception."""
        return f"ends in {type(error).__name__}: {error}"

    def handles(self, error: Unsupported, node: ast.Try) -> bool:
        """Return whether the first handler of a `try` is gone through after an error in its body."""
        return False

    def decorated(self, definition: Function, decorators: list[Any], nodes: list[ast.expr], frame: Any) -> Any:
        """Return a definition after its decorators, the last of which comes first."""
        made: Any = definition
        for decorator, node in zip(reversed(decorators), reversed(nodes), strict=True):
            made = self.call(decorator, [made], {}, frame, node)
        return made

    def home(self, frame: Any) -> Any:
        """Return the context that the domain needs while the body of a function defined in a frame is evaluated."""
        return frame.home

    def defining(self, node: ast.ClassDef, frame: Any) -> AbstractContextManager[Any]:
        """Return the context manager in which a class body is evaluated."""
        return nullcontext()

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Any, node: ast.expr) -> Any:
        """Return the result of a call.

        Args:
            node: the call, or the decorator that is one.
        """
        if isinstance(function, Partial):
            given = [*function.arguments, *arguments]
            return self.call(function.function, given, {**function.keywords, **keywords}, frame, node)
        if isinstance(function, Native) and function.function is getattr:
            return self.with_default(arguments, frame)
        given = [*arguments, *keywords.values()]
        if isinstance(function, Native) and all(is_plain(one) or is_iterable(one) for one in given):
            result = function.function(*arguments, **keywords)
            return Native(result) if callable(result) else bounded(result)
        if isinstance(function, Function) and isinstance(function.node, (ast.FunctionDef, ast.Lambda)):
            return frame.entered(function, arguments, keywords)
        what = function.__name__ if isinstance(function, Function) else _shown(function)
        raise Unsupported(f"calls {what}")

    def with_default(self, arguments: list[Any], frame: Any) -> Any:
        """`getattr`.

        Its default stands for any attribute of a value of the domain that cannot be determined to be there.
        """
        own = is_plain(arguments[0]) or is_iterable(arguments[0]) or isinstance(arguments[0], (Function, Native))
        if own and len(arguments) > 2 and (not is_plain(arguments[0]) or hasattr(arguments[0], arguments[1])):
            return frame.attribute(arguments[0], arguments[1])
        try:
            return frame.attribute(arguments[0], str(arguments[1]))
        except Unsupported:
            if len(arguments) < 3:
                raise
            return arguments[2]


class OpenDomain(Domain):
    """A domain in which whatever follows from an unknown value is unknown, too, and no error.

    Args:
        known: dotted names and their values.
    """

    def __init__(self, known: Mapping[str, Any] | None = None, steps: int = 200_000, depth: int = 30) -> None:
        super().__init__(steps, depth)
        self.known = known or {}

    def name(self, name: str, frame: Any) -> Any:
        """See `Domain`: an unknown value, unless it is a built-in."""
        if name in BUILTINS and name not in self.known:
            return super().name(name, frame)
        return self.known.get(name, Unknown(name))

    def attribute(self, base: Any, name: str, frame: Any) -> Any:
        """See `Domain`."""
        if isinstance(base, Unknown):
            path = f"{base.name}.{name}"
            return self.known.get(path, Unknown(path)) if base.name else UNKNOWN
        return super().attribute(base, name, frame)

    def item(self, base: Any, key: Any, frame: Any) -> Any:
        """See `Domain`."""
        if isinstance(base, Unknown) or isinstance(key, Unknown):
            return UNKNOWN
        return super().item(base, key, frame)

    def operation(self, name: str, operands: list[Any], frame: Any) -> Any:
        """See `Domain`."""
        if any(isinstance(one, Unknown) for one in operands):
            return UNKNOWN
        return super().operation(name, operands, frame)

    def unpacked(self, value: Any, count: int, frame: Any) -> list[Any]:
        """See `Domain`."""
        return [UNKNOWN] * count if isinstance(value, Unknown) else super().unpacked(value, count, frame)

    def formatted(self, value: Any, frame: Any) -> Any:
        """See `Domain`."""
        return UNKNOWN

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Any, node: ast.expr) -> Any:
        """See `Domain`."""
        given = [function, *arguments, *keywords.values()]
        if not isinstance(function, Function) and any(isinstance(one, Unknown) for one in given):
            return UNKNOWN
        return super().call(function, arguments, keywords, frame, node)


def _shown(value: Any) -> str:
    return type(value).__name__
