"""Class labels that a model is told, and how its authors guide by them."""

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.porting.calling_forward import calls_forward
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined, absolute, resolve
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import of_self

_EMBEDDING, _LINEAR, _SEQUENTIAL = "torch.nn.Embedding", "torch.nn.Linear", "Sequential"
_SIZES = {_EMBEDDING: "num_embeddings", _LINEAR: "in_features"}
_COUNTS = re.compile(r"class|label")
_ALIKE = frozenset({"long", "int", "float", "to", "view", "reshape", "flatten", "squeeze", "contiguous", "type_as"})
_DEEP = 2  # methods that pass labels on
_PLACES = re.compile(r"len|pos|steps|tokens|vocab")
"""Words for the size of a table that has a row for each place or token, and not for each class."""
_TOKENS = re.compile(r"ids|tokens|mask|pos|time|step|^ts?$")
_SCALE = re.compile(r"(cfg|guidance|scale)", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """Facts about the labels.

    Attributes:
        argument: of forward, as the authors call it.
        classes: the argument of the constructor that says how many classes there are.
        more: the table has a row more than that: of no class.
        one_hot: the model is told a row of zeros with a one at the class, and zeros alone for no class.
        switches: arguments of the constructor, and the values with which there is a table at all.
        padded: the label of no class is 0, the row that `padding_idx` keeps at zero; classes count from 1.
    """

    argument: str
    classes: str
    more: bool
    one_hot: bool = False
    switches: Mapping[str, object] = field(default_factory=dict)
    padded: bool = False

    @property
    def null(self) -> str:
        """The label of no class, in the words of the transformer's config."""
        return "0" if self.padded else self.highest

    @property
    def highest(self) -> str:
        """The highest label, in the words of the transformer's config."""
        return f"self.transformer.config.{self.classes}" + ("" if self.more or self.one_hot else " - 1")

    @property
    def one_hot_lines(self) -> tuple[str, ...]:
        """The statements that make what the model is told of labels `text` and `against`, which is the null label."""
        if not self.one_hot:
            return ()
        rows = "torch.nn.functional.one_hot(one, classes + 1)[:, :classes].to(noise.dtype)"
        more = " + 1" if self.more else ""
        return (f"classes = int(against.max()){more}", f"text, against = ({rows} for one in (text, against))")

    def null_of(self, values: Mapping[str, object]) -> int | None:
        """Return the label of no class for a config."""
        if self.padded:
            return 0
        count = values.get(self.classes)
        return count - (not (self.more or self.one_hot)) if isinstance(count, int) and count > 0 else None


@dataclass(frozen=True)
class Guided:
    """The authors' own way to guide, of a batch with both answers.

    Attributes:
        method: what has it.
        scale: its argument for the scale.
        more: its other arguments with a default, as written.
        lines: its statements, in terms of `noise_pred`, `latents`, `timestep` and `guidance_scale`.
        imports: what they need.
        unset: its arguments without a default that forward has one for.
    """

    method: str
    scale: str
    more: Mapping[str, str]
    lines: Sequence[str]
    imports: Sequence[str]
    unset: Sequence[str] = ()

    @property
    def channels(self) -> str:
        """The channels that are guided alone, as written; empty for all."""
        found = re.search(r"\[:, (?::, )?:(\w[\w.]*)", "\n".join(self.lines))
        return found.group(1) if found else ""


def labels_of(reference: Reference) -> Labels | None:
    """Return the labels of a model: an argument of forward that a table of embeddings is asked for, or a layer that
    takes one number for each class.
    """
    init, forward = (_method(reference.cls.node, name) for name in ("__init__", "forward"))
    if init is None or forward is None:
        return None
    made = dict(_made(init))
    home = Defined(reference.cls.source, reference.class_name, reference.cls.node)
    for layer, told in _asked(reference.cls.node, forward, {name: name for name in reference.forward}):
        if layer not in made or _TOKENS.search(told):
            continue
        size, one_hot, padded = _size(made[layer], home, reference.closure)
        classes = _argument(size, init, reference) if size is not None else ""
        classes = "" if _PLACES.search(classes) else classes
        if classes and _are_counted(classes, reference) and (_COUNTS.search(classes) or not one_hot):
            switches = dict(_switches(init.body, made[layer], reference))
            return Labels(told, classes, isinstance(size, ast.BinOp), one_hot, switches, padded)
    return None


def _asked(
    cls: ast.ClassDef, method: ast.FunctionDef, known: Mapping[str, str], deep: int = _DEEP
) -> Iterator[tuple[str, str]]:
    """Yield the layers that a method calls, each with the argument of forward that it receives; also in methods of the
    class that get such an argument.

    Args:
        known: variables of the method -> the arguments of forward that they hold.
    """
    for call in (node for node in ast.walk(method) if isinstance(node, ast.Call)):
        name, inner = of_self(call.func), _method(cls, of_self(call.func))
        if name and call.args and (told := known.get(_variable(call.args[0]), "")):
            yield name, told
        if inner is not None and inner is not method and deep:
            given = passed(call, [one.arg for one in inner.args.args][1:])
            held = {one: known.get(_variable(value), "") for one, value in given.items()}
            yield from _asked(cls, inner, held, deep - 1)


def _variable(node: ast.expr) -> str:
    """Return the variable whose values an expression has: `y`, or `y.long().view(-1)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ALIKE:
        node = node.func.value
    return node.id if isinstance(node, ast.Name) else ""


def guided_of(reference: Reference, argument: str, names: Mapping[str, str]) -> Guided | None:
    """Return a method that asks forward for both answers and joins them by a scale; None if it reads what else is
    there.

    Args:
        argument: of forward, for labels or an embedded prompt.
        names: what the authors call an argument of forward -> what it is called here.
    """
    for one, scale in guiding_methods(reference):
        given = [item.arg for item in one.args.args][1:]
        if argument in given and (found := _joined(one, scale, reference, names)) is not None:
            return found
    return None


def guiding_methods(reference: Reference) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield methods of a model that take the scale of guidance, with its name, and call forward."""
    for one in reference.cls.node.body:
        if not isinstance(one, ast.FunctionDef) or one.name in ("forward", "__init__"):
            continue
        scale = next((item.arg for item in one.args.args[1:] if _SCALE.search(item.arg)), "")
        if scale and calls_forward(one):
            yield one, scale


def _joined(one: ast.FunctionDef, scale: str, reference: Reference, names: Mapping[str, str]) -> Guided | None:
    body = _body(one.body)
    place, target = next(
        ((at, node.targets[0]) for at, node in enumerate(body) if isinstance(node, ast.Assign)
         and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("self.forward", "self")),
        (-1, None),
    )  # fmt: skip
    if place < 0 or not isinstance(target, ast.Name) or not isinstance(body[-1], ast.Return):
        return None
    latents, time = (
        next((old for old, new in names.items() if new == one), "") for one in ("hidden_states", "timestep")
    )
    defaults = dict(zip(reversed([item.arg for item in one.args.args]), reversed(one.args.defaults), strict=False))
    told = {target.id: "noise_pred", latents: "latents", time: "timestep", scale: "guidance_scale"}
    tail = [_PlainAnswer().visit(ast.parse(ast.unparse(node)).body[0]) for node in body[place + 1 :]]
    tail = [node for node in tail if not _is_same(node)]
    bound = {node.id for one in tail for node in ast.walk(one) if isinstance(node, ast.Name)
             and isinstance(node.ctx, ast.Store)}  # fmt: skip
    free = {node.id for one in tail for node in ast.walk(one) if isinstance(node, ast.Name)} - bound - {*told}
    more = {name: ast.unparse(defaults[name]) for name in sorted(free & defaults.keys())}
    imports = []
    for name in sorted(free - more.keys() - {"self", *dir(builtins)}):
        meant = resolve(reference.cls.source, name)
        if not isinstance(meant, str) or meant.partition(".")[0] not in ("torch", "math", "numpy"):
            return None
        imports.append(f"import {meant}" if meant == name else f"import {meant} as {name}")
    lines = []
    for node in tail:
        changed = _Told(told, reference).visit(node)
        lines += ast.unparse(ast.fix_missing_locations(changed)).split("\n")
    return None if "self." in "\n".join(lines).replace("self.transformer.config", "") else Guided(
        one.name, scale, more, lines, imports, _unset(one, {scale, *names}, reference)
    )  # fmt: skip


def _unset(one: ast.FunctionDef, given: Collection[str], reference: Reference) -> list[str]:
    """Return the arguments that a method requires, and forward does not, of those that nothing is known to pass."""
    required = [item.arg for item in one.args.args[1 : len(one.args.args) - len(one.args.defaults)]]
    found = reference.cls.method("forward")
    args = found[1].args if found is not None else ast.arguments([], [], None, [], [], None, [])
    free = {item.arg for item in args.args[len(args.args) - len(args.defaults) :]}
    return [name for name in required if name in free - {*given}]


class _PlainAnswer(ast.NodeTransformer):
    """Takes away what asks whether a model answered a mapping: a ported one answers a tensor."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`answer["x"] if isinstance(answer, dict) else answer`."""
        match node.test:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="dict")]):
                return node.orelse
        return self.generic_visit(node)


def _is_same(node: ast.stmt) -> bool:
    """Return whether a statement changes nothing: `x = x`."""
    return isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [ast.unparse(node.value)]


class _Told(ast.NodeTransformer):
    """Variables and attributes of the model as a pipeline has them."""

    def __init__(self, names: Mapping[str, str], reference: Reference) -> None:
        self.names, self.reference = names, reference

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return a variable."""
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`self.in_channels`, where the config says it."""
        if of_self(node) in self.reference.arguments:
            return ast.parse(f"self.transformer.config.{node.attr}", mode="eval").body
        return self.generic_visit(node)


def _body(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements, those below `if scale is not None` in its place."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.IsNot):
            found += node.body
        elif isinstance(node, ast.If) and "fp16" in ast.unparse(node.test):
            continue
        else:
            found.append(node)
    return [one for one in found if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]


def _size(call: ast.Call, home: Defined, closure: Closure) -> tuple[ast.expr | None, bool, bool]:
    """Return the number of rows in an embedding table that a call, or the class it constructs, makes; whether it is
    a layer that takes one number for each; and whether its row 0 stays zero.
    """
    kind = absolute(home.source, call.func) or ""
    if kind in _SIZES:
        return next(iter(_given(call, (_SIZES[kind],))), None), kind == _LINEAR, _is_padded(call)
    held = closure.uses[home].get(ast.unparse(call.func)) if home in closure.uses else None
    init = _method(held.node, "__init__") if held is not None and isinstance(held.node, ast.ClassDef) else None
    forward = _method(held.node, "forward") if held is not None else None
    if held is None or init is None or _has_length(forward):
        return None, False, False
    told = forward.args.args[1].arg if forward is not None and len(forward.args.args) > 1 else ""
    first = {of_self(one.func) for one in ast.walk(forward) if isinstance(one, ast.Call) and one.args
             and _variable(one.args[0]) == told} if forward is not None else set()  # fmt: skip
    for name, inner in _made(init):
        kind = absolute(held.source, inner.func) or ""
        if kind == _EMBEDDING or (kind == _LINEAR and name in first):
            size = next(iter(_given(inner, (_SIZES[kind],))), None)
            known = passed(call, [one.arg for one in init.args.args][1:])
            used = (
                [node.id for node in ast.walk(size) if isinstance(node, ast.Name) and node.id in known] if size else []
            )
            if size is None or not used:
                return None, False, False
            rows = known[used[0]]
            rows = ast.BinOp(rows, ast.Add(), ast.Constant(1)) if isinstance(size, ast.BinOp) else rows
            return rows, kind == _LINEAR, _is_padded(inner)
    return None, False, False


def _is_padded(table: ast.Call) -> bool:
    return any(one.arg == "padding_idx" and literal(one.value) == 0 for one in table.keywords)


def _given(call: ast.Call, names: Sequence[str]) -> Iterator[ast.expr]:
    yield from call.args[:1]
    yield from (one.value for one in call.keywords if one.arg in names)


def _are_counted(classes: str, reference: Reference) -> bool:
    """Return whether a model has labels as it is published: an argument that is null by default switches them on."""
    default = reference.arguments[classes].default
    published = reference.published.values if reference.published is not None else {}
    value = published.get(classes, default)
    return value is UNKNOWN or (isinstance(value, int) and value > 0)


def _switches(body: Sequence[ast.stmt], made: ast.Call, reference: Reference) -> Iterator[tuple[str, object]]:
    """Yield the arguments, and their values, on which it depends that a call is come to: `if extras == 2:`."""
    for node in (one for one in body if isinstance(one, ast.If)):
        if not any(one is made for inner in node.body for one in ast.walk(inner)):
            continue
        match node.test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
                name = of_self(left) or (left.id if isinstance(left, ast.Name) else "")
                if name in reference.arguments:
                    yield name, value
        yield from _switches(node.body, made, reference)


def _argument(size: ast.expr, init: ast.FunctionDef, reference: Reference) -> str:
    """Return the argument of the constructor that a number of rows is made of."""
    names = [node.id for node in ast.walk(size) if isinstance(node, ast.Name)]
    names += [name for node in ast.walk(size) if (name := of_self(node))]
    return next((name for name in names if name in reference.arguments), "")


def _has_length(forward: ast.FunctionDef | None) -> bool:
    """Return whether a function reads how long its first argument is: tokens of a text have a length, labels do not."""
    name = forward.args.args[1].arg if forward is not None and len(forward.args.args) > 1 else ""
    nodes = ast.walk(forward) if forward is not None else ()
    return any(ast.unparse(one) in (f"{name}.shape[1]", f"{name}.size(1)") for one in nodes)


def _made(init: ast.FunctionDef) -> Iterator[tuple[str, ast.Call]]:
    for node in (one for one in ast.walk(init) if isinstance(one, ast.Assign)):
        for target, made in _pairs(node):
            value = made.body if isinstance(made, ast.IfExp) else made
            if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith(_SEQUENTIAL) and value.args:
                value = value.args[0]  # it receives what the whole receives
            if isinstance(value, ast.Call) and (name := of_self(target)):
                yield name, value


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from zip(targets, values, strict=False)
        case _:
            yield node.targets[0], node.value


def _method(node: ast.stmt, name: str) -> ast.FunctionDef | None:
    body = node.body if isinstance(node, ast.ClassDef) else []
    return next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == name), None)
