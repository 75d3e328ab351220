"""Translation of a pipeline's expressions into other names: variables are traced back and renamed."""

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.defaults import Defaults
from omni_kit.upstream.diffusers.pipelines import Pipeline

_DEEPEST = 20
_BUILTINS = frozenset({"int", "float", "len", "min", "max", "math", "np", "torch", "round", "abs"})


@dataclass(frozen=True)
class Wording:
    """The words of whom something is told.

    Attributes:
        pipeline: whose code is read.
        scheduler: the class that steps.
        words: variables and dotted names, "height" or "self.vae.config", and what they are called there; of dotted
            names, the longest that fits.
    """

    pipeline: Pipeline
    scheduler: str
    words: Mapping[str, str] = field(default_factory=dict)

    def tell(self, node: ast.expr, function: ast.FunctionDef, line: int, known: Mapping[str, str] | None = None) -> str:
        """Return an expression of a method as it stands at a line.

        Args:
            known: more words, for the variables of that method.

        Raises:
            Unsupported: something in it hangs on what has no word.
        """
        teller = _Teller(self, function, line, {**self.words, **(known or {})})
        return ast.unparse(ast.fix_missing_locations(teller.visit(copy.deepcopy(node))))


@dataclass
class _Teller(ast.NodeTransformer):
    wording: Wording
    function: ast.FunctionDef
    line: int
    words: Mapping[str, str]
    depth: int = 0

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.words:
            return _parsed(self.words[node.id])
        if node.id in _BUILTINS:
            return node
        value = assigned_last(self.function, node.id, self.line, self._defaults)
        if value is None or self.depth > _DEEPEST:
            raise Unsupported(node.id)
        return self._at(value.lineno).visit(copy.deepcopy(value))  # type: ignore[no-any-return]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        name = dotted(node) or ""
        for known in sorted(self.words, key=len, reverse=True):
            if name == known or name.startswith(f"{known}."):
                return _parsed(self.words[known] + name[len(known) :])
        if name.startswith("self.") and name.count(".") == 1:
            return self._own(name)
        if name.partition(".")[0] in _BUILTINS:
            return node
        if not isinstance(node.value, ast.Attribute | ast.Name):
            return self.generic_visit(node)  # type: ignore[return-value]
        raise Unsupported(name)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        told = True if _asks_for_part(node.test) else self._defaults.told(node.test)
        if told is None:
            raise Unsupported(ast.unparse(node.test))
        return self.visit(node.body if told else node.orelse)

    @property
    def _defaults(self) -> Defaults:
        return Defaults(self.wording.pipeline, self.wording.scheduler)

    def _own(self, name: str) -> ast.expr:
        """Return an attribute that the constructor assigns."""
        found = self.wording.pipeline.cls.method("__init__")
        for node in ast.walk(found[1]) if found is not None else ():
            if found is not None and isinstance(node, ast.Assign) and dotted(node.targets[0]) == name:
                inner = _Teller(self.wording, found[1], node.lineno, self.words, self.depth + 1)
                return inner.visit(copy.deepcopy(node.value))  # type: ignore[no-any-return]
        raise Unsupported(name)

    def _at(self, line: int) -> "_Teller":
        return _Teller(self.wording, self.function, line, self.words, self.depth + 1)


def assigned_last(function: ast.FunctionDef, name: str, line: int, defaults: Defaults) -> ast.expr | None:
    """Return the last value assigned to a variable before a line, if no condition of unknown value decides on it."""
    found: list[ast.expr] = []

    def block(body: list[ast.stmt], sure: bool) -> None:
        for node in body:
            if node.lineno >= line:
                return
            if isinstance(node, ast.If):
                told = defaults.told(node.test)
                block(node.body if told is not False else [], sure and told is True)
                block(node.orelse if told is not True else [], sure and told is False)
            elif isinstance(node, ast.Assign) and dotted(node.targets[0]) == name:
                if not sure:
                    raise Unsupported(name)
                found.append(node.value)

    block(function.body, True)
    return found[-1] if found else None


def _asks_for_part(test: ast.expr) -> bool:
    """`getattr(self, "vae", None)`, `self.vae is not None` and the like: a pipeline that runs has its parts."""
    text = ast.unparse(test)
    return text.startswith(("getattr(self,", "hasattr(self,")) or (text.startswith("self.") and "is not None" in text)


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
