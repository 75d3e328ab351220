"""Modules of torch whose constructor or forward is made when the module is: dataclasses, and assigned methods; forwards
that pass all on to a method; and constructors that first convert an argument, load a model for its default, or call the
base's one in two branches.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.closure import closure_of
from omni_kit.upstream.repositories.names import Defined, resolve

_POST = "__post_init__"
_FORWARD = "forward"
_LOADS = ("from_pretrained", "hf_hub_download", "snapshot_download", "load_state_dict_from_url")


def with_constructor(cls: ClassRef) -> ClassRef:
    """Return a dataclass as a class with the constructor that Python makes for it; any other class as it is.

    The lines of the file keep their numbers: the constructor stands in that of the first field. A dataclass whose
    fields have more than a plain default stays as it is.
    """
    node = cls.node
    written = [one for one in node.decorator_list if _name(one) in ("dataclass", "dataclasses.dataclass")]
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    odd = any(_name(one.value) in ("field", "dataclasses.field") or "ClassVar" in ast.unparse(one.annotation)
              for one in fields)  # fmt: skip
    if not written or not fields or odd or cls.defines("__init__"):
        return cls
    taken = ", ".join(ast.unparse(one) for one in fields)
    names = [ast.unparse(one.target) for one in fields]
    body = [*(f"self.{name} = {name}" for name in names), *([f"self.{_POST}()"] if cls.defines(_POST) else [])]
    lines = list(cls.source.lines)
    parts: list[ast.expr | ast.stmt] = [*written, *fields]
    spans = [(one.lineno - 1, one.end_lineno or one.lineno) for one in parts]
    for first, last in spans:
        lines[first:last] = [""] * (last - first)
    lines[fields[0].lineno - 1] = f"{' ' * fields[0].col_offset}def __init__(self, {taken}): {'; '.join(body)}"
    return with_lines(cls, lines)


@dataclass(frozen=True)
class _Choice:
    """The methods that a constructor makes forward.

    Attributes:
        statement: the assignment, or the `if` with one in each branch.
        method: the method that it is where the condition is false, and without one.
        test: the condition; None without one.
        other: the method that it is where the condition holds.
    """

    statement: ast.stmt
    method: str
    test: ast.expr | None = None
    other: str = ""


def with_forward(cls: ClassRef) -> ClassRef:
    """Return a class whose constructor assigns a method to `self.forward` as one with that method as its forward.

    Where a condition over attributes of `self` chooses one of two with the same arguments, forward begins with that
    condition. So is a method to which forward passes all arguments on, see `forwarded_to`. A class that assigns it in
    another way, and any other class, stays as it is.
    """
    forward, method = cls.defines(_FORWARD), cls.defines(forwarded_to(cls))
    if forward is not None and method is not None:
        lines = list(cls.source.lines)
        first, last = forward.lineno - 1, forward.end_lineno or forward.lineno
        lines[first:last] = [""] * (last - first)
        lines[method.lineno - 1] = lines[method.lineno - 1].replace(f"def {method.name}(", f"def {_FORWARD}(", 1)
        return with_lines(cls, lines)
    init = cls.defines("__init__")
    if init is None or cls.method(_FORWARD) is not None:
        return cls
    found = [*_choices(init)]
    chosen = cls.defines(found[0].method) if len(found) == 1 else None
    if chosen is None or chosen.decorator_list or not _shares_arguments(cls, found[0], chosen):
        return cls
    lines = list(cls.source.lines)
    begins = chosen.lineno - 1
    lines[begins] = lines[begins].replace(f"def {chosen.name}(", f"def {_FORWARD}(", 1)
    body = chosen.body[1:] if ast.get_docstring(chosen) is not None and len(chosen.body) > 1 else chosen.body
    statement = found[0].statement
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    lines[first] = f"{' ' * statement.col_offset}pass"
    lines[first + 1 : last] = [""] * (last - first - 1)
    if found[0].test is not None:
        says = f"if {ast.unparse(found[0].test)}: return self.{found[0].other}({_passed_on(chosen.args)})"
        lines.insert(body[0].lineno - 1, f"{' ' * body[0].col_offset}{says}")
        if not lines[begins - 1].strip():  # the lines below keep their numbers
            del lines[begins - 1]
    return with_lines(cls, lines)


def forwarded_to(cls: ClassRef) -> str:
    """Return the method of a class to which its forward passes all arguments on, `*args, **kwargs`: the one that runs
    where none of the arguments is passed for which conditions ask. Empty for any other forward.

    `if kwargs.get("cache") is not None: return self.cached(*args, **kwargs)` asks for one.
    """
    forward = cls.defines(_FORWARD)
    if forward is None or forward.decorator_list or len(forward.args.args) != 1 or forward.args.kwonlyargs:
        return ""
    args, kwargs = (one.arg if one is not None else "" for one in (forward.args.vararg, forward.args.kwarg))
    body = forward.body[1:] if ast.get_docstring(forward) is not None else forward.body
    asks = re.compile(rf"{kwargs}\.get\('\w+'(, None)?\)( is not None)?|'\w+' in {kwargs}")
    while isinstance(body[0], ast.If) and asks.fullmatch(ast.unparse(body[0].test)):
        if not body[0].orelse and not isinstance(body[0].body[-1], ast.Return):
            return ""
        body = body[0].orelse or body[1:]
    said = ast.unparse(body[0]) if len(body) == 1 else ""
    found = re.fullmatch(rf"return self\.(\w+)\(\*{args}, \*\*{kwargs}\)", said) if args and kwargs else None
    method = cls.defines(found[1]) if found is not None else None
    return method.name if method is not None and not method.decorator_list else ""


def with_one_base_call(cls: ClassRef) -> ClassRef:
    """Return a class whose constructor calls that of its base once, where it has the same call in both branches of an
    `if`, but for the values of keywords: `width=None if not deep else width`. The lines of its file keep their numbers.
    """
    init = cls.defines("__init__")
    for node in ast.walk(init) if init is not None else ():
        calls = _base_calls(node) if isinstance(node, ast.If) else []
        if isinstance(node, ast.If) and len(calls) == 2 and (joined := _joined(node.test, *calls)) is not None:
            lines = list(cls.source.lines)
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            if not lines[first].lstrip().startswith("elif"):
                lines[first:last] = [f"{' ' * node.col_offset}{ast.unparse(joined)}", *[""] * (last - first - 1)]
                return with_one_base_call(with_lines(cls, lines))
    return cls


def _base_calls(node: ast.If) -> list[ast.Call]:
    """Return the call of the base's constructor in each branch that is nothing else."""
    lone = [branch[0].value for branch in (node.body, node.orelse)
            if len(branch) == 1 and isinstance(branch[0], ast.Expr)]  # fmt: skip
    return [one for one in lone if isinstance(one, ast.Call) and constructs_base(one)]


def constructs_base(call: ast.Call) -> bool:
    """Return whether a call is `super().__init__(...)`."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "__init__" and ast.unparse(func.value).startswith("super(")


def _joined(test: ast.expr, one: ast.Call, other: ast.Call) -> ast.Call | None:
    """Return two calls as one, with keywords that depend on a test; None if they differ in more."""
    same = [ast.unparse(arg) for arg in one.args] == [ast.unparse(arg) for arg in other.args]
    if not same or [word.arg for word in one.keywords] != [word.arg for word in other.keywords]:
        return None
    words = []
    for word, second in zip(one.keywords, other.keywords, strict=True):
        alike = ast.unparse(word.value) == ast.unparse(second.value)
        if not alike and word.arg is None:
            return None
        words.append(ast.keyword(word.arg, word.value if alike else ast.IfExp(test, word.value, second.value)))
    return ast.Call(one.func, one.args, words)


def _choices(init: ast.FunctionDef) -> Iterator[_Choice]:
    """Yield what a constructor assigns to `self.forward`, each with its condition."""
    nested = {id(part) for one in ast.walk(init) if isinstance(one, ast.If) for part in (*one.body, *one.orelse)}
    for one in ast.walk(init):
        if isinstance(one, ast.If) and id(one) not in nested:
            branches = [_assigned(branch[0]) if len(branch) == 1 else "" for branch in (one.body, one.orelse)]
            names = {dotted(part) for part in ast.walk(one.test) if isinstance(part, ast.Name)}
            if all(branches) and names == {"self"}:
                yield _Choice(one, branches[1], one.test, branches[0])
        elif id(one) not in nested and (name := _assigned(one)) and isinstance(one, ast.Assign):
            yield _Choice(one, name)


def _assigned(node: ast.AST) -> str:
    """Return X of `self.forward = self.X`; empty for anything else."""
    plain = isinstance(node, ast.Assign) and [dotted(one) for one in node.targets] == [f"self.{_FORWARD}"]
    owner, _, name = (dotted(node.value) or "").rpartition(".") if plain and isinstance(node, ast.Assign) else ("",) * 3
    return name if owner == "self" else ""


def _shares_arguments(cls: ClassRef, choice: _Choice, chosen: ast.FunctionDef) -> bool:
    other = cls.defines(choice.other) if choice.test is not None else chosen
    return other is not None and ast.unparse(other.args) == ast.unparse(chosen.args)


def _passed_on(given: ast.arguments) -> str:
    """Return the arguments of a method as a call passes them on."""
    starred = [f"*{given.vararg.arg}"] if given.vararg is not None else []
    named = [f"{one.arg}={one.arg}" for one in given.kwonlyargs]
    spread = [f"**{given.kwarg.arg}"] if given.kwarg is not None else []
    return ", ".join([*(one.arg for one in (*given.posonlyargs, *given.args)[1:]), *starred, *named, *spread])


def conversions_of(cls: ClassRef) -> list[ast.If]:
    """Return the statements of a constructor that convert an argument of one type, and do nothing else.

    `if isinstance(config, dict): config = OmegaConf.create(config)` is one: what follows reads fields of either.
    """
    init = cls.defines("__init__")
    names = {one.arg for one in (*init.args.args, *init.args.kwonlyargs)} if init is not None else set()
    body = init.body if init is not None else []
    return [one for one in body if isinstance(one, ast.If) and _converted(one) in names]


def _converted(node: ast.If) -> str:
    """Return the name that a statement converts where its type is a certain one; empty for any other statement."""
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not) else node.test
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), kind]):
            pass
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)]), ops=[ast.Eq() | ast.Is()],
            comparators=[kind]
        ):  # fmt: skip
            pass
        case _:
            return ""
    match node.body, node.orelse:
        case [ast.Assign(targets=[ast.Name(id=target)], value=ast.Call() as call)], []:
            given = [*call.args, *(word.value for word in call.keywords)]
            return name if target == name and [dotted(one) for one in given] == [name] and _is_mapping(kind) else ""
    return ""


def _is_mapping(kind: ast.expr) -> bool:
    """Return whether a test for a type is one for a dict or for a class of configs."""
    return any((_name(one).rpartition(".")[2]).lower().endswith(("dict", "mapping", "config", "namespace"))
               for one in ([*kind.elts] if isinstance(kind, ast.Tuple) else [kind]))  # fmt: skip


def self_contained(cls: ClassRef) -> ClassRef:
    """Return a class without such statements, and without defaults that load a model by its name: those are required,
    or null. The lines of its file keep their numbers.
    """
    if conversions := conversions_of(cls):
        cls = with_lines(cls, blanked(cls.source.text, conversions).split("\n"))
    lines = [line.encode() for line in cls.source.lines]
    loading = [*loading_defaults(cls)]
    for argument, default, instead in reversed(loading):
        line = lines[default.lineno - 1]
        after = line[default.end_col_offset :]
        lines[default.lineno - 1] = line[: argument.end_col_offset] + instead.encode() + after
    return with_lines(cls, [line.decode() for line in lines]) if loading else cls


def loading_defaults(cls: ClassRef) -> Iterator[tuple[ast.arg, ast.Call, str]]:
    """Yield the arguments of a constructor whose default a function of the authors gets from a model that it loads,
    each with what its place needs instead.
    """
    init = cls.defines("__init__")
    if init is None:
        return
    given = init.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [(one, default, " = None") for one, default in zip(
        positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]  # fmt: skip
    pairs += [(one, default, "") for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default]
    for argument, default, instead in pairs:
        one_line = default.lineno == default.end_lineno == argument.end_lineno
        meant = resolve(cls.source, dotted(default.func) or "") if isinstance(default, ast.Call) and one_line else None
        if isinstance(default, ast.Call) and isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
            nodes = (node for one in closure_of(meant).definitions for node in ast.walk(one.node))
            if any(isinstance(node, ast.Call) and _name(node).rpartition(".")[2] in _LOADS for node in nodes):
                yield argument, default, instead


def blanked(text: str, statements: Iterable[ast.stmt]) -> str:
    """Return the text of a file without these statements; all others keep their lines."""
    lines = text.split("\n")
    for node in statements:
        decorators = getattr(node, "decorator_list", [])
        first, last = min([node.lineno, *(one.lineno for one in decorators)]) - 1, node.end_lineno or node.lineno
        lines[first:last] = [f"{' ' * node.col_offset}pass", *[""] * (last - first - 1)]
    return "\n".join(lines)


def with_texts(
    cls: ClassRef, edits: Iterable[tuple[ast.stmt | ast.expr | ast.arg, str]], more: Sequence[str] = ()
) -> ClassRef:
    """Return the class with other texts for some of its nodes; the lines of its file keep their numbers.

    Args:
        more: lines after those of the file.
    """
    lines = [line.encode() for line in cls.source.lines]
    for node, text in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        rest = lines[last][node.end_col_offset :]
        lines[first : last + 1] = [lines[first][: node.col_offset] + text.encode() + rest, *[b""] * (last - first)]
    return with_lines(cls, [*(line.decode() for line in lines), *more])


def with_lines(cls: ClassRef, lines: list[str]) -> ClassRef:
    """Return the class as it stands in other lines of its file."""
    text = "\n".join(lines)
    source = replace(cls.source, text=text, tree=ast.parse(text))
    return ClassRef(source, source.classes[cls.node.name])


def _name(node: ast.expr | None) -> str:
    """Return the dotted name of what is called, or of what stands there."""
    return (dotted(node.func if isinstance(node, ast.Call) else node) or "") if node is not None else ""
