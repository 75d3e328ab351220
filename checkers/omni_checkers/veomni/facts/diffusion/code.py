"""Questions about code that several rules on diffusion models ask."""

import ast
from collections.abc import Iterator, Sequence

from omni_checkers.engine.files import File, walked, within
from omni_kit.pysource.source import dotted


def imports(file: File) -> dict[str, str]:
    """Name -> where it comes from, dotted; relative imports begin with their dots."""
    found: dict[str, str] = {}
    for node in file.nodes(ast.ImportFrom):
        for alias in node.names:
            found[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
    for plain in file.nodes(ast.Import):
        for alias in plain.names:
            found[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
    return found


def origin(file: File, node: ast.AST) -> str:
    """The dotted name of an expression, its first part as it is called where it is imported from; else empty."""
    name = dotted(node)
    if name is None:
        return ""
    first, _, rest = name.partition(".")
    real = imports(file).get(first, first)
    return f"{real}.{rest}" if rest else real


def line_of(node: ast.AST) -> int:
    """The line that a node stands in."""
    return int(getattr(node, "lineno", 0))


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """The calls below a node of functions or methods of these names; of any without names."""
    return (item for item in within(node, ast.Call) if not names or called(item) in names)


def parameters(node: ast.FunctionDef) -> list[str]:
    """The named parameters of a method or function, without `self` and `cls`."""
    named = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return [name for name in named if name not in {"self", "cls"}]


def defaults(node: ast.FunctionDef) -> dict[str, ast.expr]:
    """Parameter -> its default, for those that have one."""
    positional = [*node.args.posonlyargs, *node.args.args]
    found = dict(zip(reversed([one.arg for one in positional]), reversed(node.args.defaults), strict=False))
    for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            found[one.arg] = default
    return found


def required(node: ast.FunctionDef) -> list[str]:
    """The parameters of a method or function that have no default, without `self` and `cls`."""
    given = defaults(node)
    return [name for name in parameters(node) if name not in given]


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument of a call given either way; None where it is not given."""
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if named is not None:
        return named
    plain = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    return plain[position] if len(plain) > position and len(plain) == len(call.args) else None


def operand(call: ast.Call) -> tuple[ast.expr | None, int]:
    """The tensor that an operation of torch works on, as a method or as a function, and the number of its own first
    argument: `x.narrow(1, 0, 2)` gives (x, 0), `torch.narrow(x, 1, 0, 2)` gives (x, 1)."""
    if isinstance(call.func, ast.Attribute) and dotted(call.func.value) != "torch":
        return call.func.value, 0
    return argument(call, 0, "input"), 1


def assignments(body: ast.AST, name: str) -> list[ast.expr]:
    """What a plain name is assigned below a node, in the order of the lines; loops and unpacking are left out."""
    found: list[tuple[int, ast.expr]] = []
    for node in walked(body):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            found.append((node.lineno, node.value))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found += [(node.lineno, node.value)] if node.target.id == name else []
    return [value for _, value in sorted(found, key=lambda item: item[0])]


def names_in(node: ast.AST) -> set[str]:
    """The plain names that an expression reads."""
    return {item.id for item in walked(node) if isinstance(item, ast.Name)}


def is_true(node: ast.expr | None) -> bool:
    """Whether an expression is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def is_false(node: ast.expr | None) -> bool:
    """Whether an expression is the constant False."""
    return isinstance(node, ast.Constant) and node.value is False


def decorators(node: ast.FunctionDef) -> set[str]:
    """The last names of the decorators of a function, called or not."""
    plain = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    return {(dotted(item) or "").rpartition(".")[2] for item in plain}


def functions(files: Sequence[File]) -> Iterator[tuple[File, ast.FunctionDef]]:
    """Every function and method of some files."""
    for file in files:
        for node in file.nodes(ast.FunctionDef):
            yield file, node
