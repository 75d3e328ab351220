"""What the parts of an evaluator ask of each other."""

import ast
from dataclasses import dataclass
from typing import Protocol

from omni_checkers.symbolic.paths import Oracle
from omni_checkers.symbolic.program import Module, Program
from omni_checkers.symbolic.values import Call, Function, Scope, Value


@dataclass(frozen=True)
class Attached:
    """A value that was stored on an attribute or under a key, and where."""

    value: Value
    module: Module
    line: int


class Evaluation(Protocol):
    """One path through a program while it is executed.

    Attributes:
        program: the package whose files may be read.
        oracle: decides conditions that are not known.
        module, scope: where the path is: the module, and the names that can be seen there.
        attributes: (owner, name) -> what was stored there last.
    """

    program: Program
    oracle: Oracle
    module: Module
    scope: Scope
    attributes: dict[tuple[Value, str], Attached]

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; Opaque for one that is not understood."""
        ...

    def truth(self, value: Value) -> bool:
        """Whether a value is true; the oracle says where it is not known."""
        ...

    def names_of(self, module: Module) -> Scope:
        """The names at the top level of a module."""
        ...

    def module_attribute(self, module: Module, name: str) -> Value:
        """A name of a module, or a module inside it.

        Raises:
            Raised: the module has neither.
        """
        ...

    def imported(self, module_name: str, name: str | None) -> Value:
        """What `import module_name` or `from module_name import name` binds.

        Raises:
            Raised: the package has no such module, or the module no such name.
        """
        ...

    def attribute(self, owner: Value, name: str, line: int) -> Value:
        """owner.name, as stored on this path, as defined, or as a library's.

        Raises:
            Raised: the owner is known to have no such attribute.
        """
        ...

    def set_attribute(self, owner: Value, name: str, value: Value, line: int) -> None:
        """Stores a value on an attribute, for the rest of this path."""
        ...

    def store(self, target: ast.expr, value: Value) -> None:
        """Assigns to any target."""
        ...

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST | None) -> Value:
        """Calls a value: this package's functions are executed, everything else is recorded."""
        ...

    def execute(self, function: Function, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Runs a function's body in a scope of its own."""
        ...

    def record(self, call: Call) -> None:
        """Remembers a call of what is not executed, in the order of the path."""
        ...
