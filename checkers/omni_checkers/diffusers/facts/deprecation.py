"""Classes that only keep an old name."""

import ast

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import last_name, methods

_DEPRECATIONS = ("DeprecationWarning", "FutureWarning", "PendingDeprecationWarning")


def is_old_name(cls: ClassRef) -> bool:
    """Return whether a class only keeps an old name of its base: it warns of its deprecation, and changes nothing."""
    own = methods(cls.node)
    if any(last_name(one) == "deprecated" for one in cls.node.decorator_list):
        return not own
    made = [method for method in own if method.name in ("__init__", "__new__")]
    return len(made) == len(own) == 1 and any(map(_warns, made[0].body)) and all(map(_says_or_makes, made[0].body))


def _warns(statement: ast.stmt) -> bool:
    """Return whether a statement is a deprecation warning, whatever the arguments are."""
    match statement:
        case ast.Expr(ast.Call() as call) if last_name(call) == "deprecate":
            return True
        case ast.Expr(ast.Call() as call) if last_name(call) == "warn":
            return any(last_name(one) in _DEPRECATIONS for one in (*call.args, *(k.value for k in call.keywords)))
    return False


def _says_or_makes(statement: ast.stmt) -> bool:
    """Return whether a statement of a constructor is about a warning, or leaves the work to another class."""
    match statement:
        case ast.Assign([ast.Name()], ast.Constant(str()) | ast.JoinedStr()) | ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("super")), "__init__"))) | ast.Return(ast.Call()):
            return True
    return _warns(statement)
