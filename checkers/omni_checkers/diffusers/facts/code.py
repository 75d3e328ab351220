"""Questions about code that several rules ask."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import Imported, SourceFile, dotted

_DEPRECATIONS = ("DeprecationWarning", "FutureWarning", "PendingDeprecationWarning")


def at(source: SourceFile, node: ast.AST, message: str) -> Finding:
    """A finding at a node."""
    return Finding(message, source.path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)


def is_a(cls: ClassRef, base: str) -> bool:
    """Whether a class comes from a base of diffusers, through whatever files."""
    return any(
        entry.node.name == base if isinstance(entry, ClassRef) else entry.rpartition(".")[2] == base
        for entry in cls.mro[1:]
    )


def is_old_name(cls: ClassRef) -> bool:
    """Whether a class only keeps an old name of its base: it warns of its deprecation, and changes nothing."""
    methods = functions(cls.node)
    if any(last_name(one) == "deprecated" for one in cls.node.decorator_list):
        return not methods
    made = [method for method in methods if method.name in ("__init__", "__new__")]
    return len(made) == len(methods) == 1 and any(map(_warns, made[0].body)) and all(map(_says_or_makes, made[0].body))


def _warns(statement: ast.stmt) -> bool:
    """Whether a statement is a deprecation warning, whatever the arguments are."""
    match statement:
        case ast.Expr(ast.Call() as call) if last_name(call) == "deprecate":
            return True
        case ast.Expr(ast.Call() as call) if last_name(call) == "warn":
            return any(last_name(one) in _DEPRECATIONS for one in (*call.args, *(k.value for k in call.keywords)))
    return False


def _says_or_makes(statement: ast.stmt) -> bool:
    """Whether a statement of a constructor is about a warning, or leaves the work to another class."""
    match statement:
        case ast.Assign([ast.Name()], ast.Constant(str()) | ast.JoinedStr()) | ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("super")), "__init__"))) | ast.Return(ast.Call()):
            return True
    return _warns(statement)


def origin(source: SourceFile, node: ast.AST) -> str:
    """The full dotted name of what a name means: `F.pad` is "torch.nn.functional.pad"; as written where it is local."""
    name = dotted(node) or ""
    first, _, rest = name.partition(".")
    imported = source.imports.get(first)
    if imported is None:
        return name
    return ".".join(part for part in (_full(imported, first), rest) if part)


def _full(imported: Imported, first: str) -> str:
    if imported.name is not None:
        return f"{imported.module}.{imported.name}"
    return imported.module if "." not in imported.module or imported.module.partition(".")[0] != first else first


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name, or of what is called; empty for anything else."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def functions(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """The methods that stand in a class body itself."""
    return [item for item in node.body if isinstance(item, ast.FunctionDef)]


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """The calls below a node of functions or methods of these names; of any without names."""
    for item in walked(node):
        if isinstance(item, ast.Call) and (not names or last_name(item.func) in names):
            yield item


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument of a call."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def parameters(function: ast.FunctionDef) -> list[str]:
    """The named parameters after `self`."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [one.arg for one in named if one.arg not in ("self", "cls")]


def decorated(node: ast.FunctionDef | ast.ClassDef, name: str) -> bool:
    """Whether something carries a decorator, called or not."""
    return any(last_name(one) == name for one in node.decorator_list)


def strings(node: ast.AST | None) -> list[str] | None:
    """The strings of a list, tuple or set; None for anything else."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return None
    found = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return found if len(found) == len(node.elts) else None
