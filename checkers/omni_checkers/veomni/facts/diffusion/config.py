"""The config of a transformer as it would be: executed symbolically, with diffusers' signature in its hands."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omni_checkers.symbolic import (
    Bound,
    Call,
    Class,
    Evaluator,
    Exhausted,
    Function,
    Opaque,
    Oracle,
    Program,
    Raised,
    Record,
    Symbol,
    Value,
    show,
)
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import Frame
from omni_kit.upstream.diffusers.signatures import arguments as taken_by

# What transformers' PretrainedConfig.to_dict gives besides the attributes.
_INHERITED = ("dtype", "model_type", "transformers_version", "architectures")


class ConfigEvaluator(Evaluator):
    """Evaluates `inspect.signature` of diffusers classes, and the attributes of a config's base class."""

    def __init__(self, program: Program, upstream: ClassRef) -> None:
        super().__init__(program, Oracle([]))
        self.upstream = upstream

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], frame: Frame, node: ast.expr | None
    ) -> Value:
        """Knows some functions of libraries, and continues with the others."""
        name = str(function) if isinstance(function, (Symbol, Opaque)) else ""
        if name == "inspect.signature" and arguments and self.upstream.node.name in show(arguments[0]):
            named = {"self": None, **taken_by(self.upstream)}
            known = {key: Record(key, {"default": Opaque(f"default of {key}"), "name": key}) for key in named}
            return Record("signature", {"parameters": known})
        if (
            isinstance(function, Bound)
            and str(function.owner).startswith("builtins.super")
            and function.name == "to_dict"
        ):
            return {key: Opaque(f"inherited {key}") for key in _INHERITED}
        return super().call(function, arguments, keywords, frame, node)


@dataclass(frozen=True)
class ConfigRun:
    """The result of executing a config's methods.

    Attributes:
        attributes: what its constructor stores; None if that is not all known.
        diffusers: result of to_diffuser_dict; None if it is unknown or the class has no such method.
        written: what to_dict adds and leaves of what the base class gives; None as above.
    """

    attributes: Mapping[str, Value] | None
    diffusers: Mapping[str, Value] | None
    written: Mapping[str, Value] | None
    error: str = ""


def run_config(program: Program, cls: Class, upstream: ClassRef) -> ConfigRun:
    """Build a config whose arguments are not known, and ask it for both dicts."""
    evaluator = ConfigEvaluator(program, upstream)
    try:
        given = {name: Opaque(f"<{name}>") for name in taken_by(upstream)}
        made = evaluator.call(cls, [], given, evaluator.top, None)
    except (Raised, Exhausted, RecursionError):
        return ConfigRun(None, None, None)
    if not isinstance(made, Call):
        return ConfigRun(None, None, None)
    stored = {name: found.value for (owner, name), found in evaluator.attributes.items() if owner is made}
    attributes = None if _hidden(cls) else stored
    diffusers, error = _asked(evaluator, made, "to_diffuser_dict")
    written, _ = _asked(evaluator, made, "to_dict")
    return ConfigRun(attributes, diffusers, written, error)


def _asked(evaluator: ConfigEvaluator, made: Call, name: str) -> tuple[Mapping[str, Value] | None, str]:
    try:
        method = evaluator.attribute(made, name, evaluator.top)
    except Raised:
        return None, ""
    if not isinstance(method, Function):
        return None, ""
    outcome = evaluator.call_function(method, [], {})
    value: Any = outcome.value
    known = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return (value if known else None), outcome.raised or ""


def _hidden(cls: Class) -> bool:
    """Return whether a class stores attributes in a way that is not followed."""
    for node in ast.walk(cls.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"setattr", "vars"}:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            return True
    return False
