"""Rewritings of expressions and statements, each of which applies at some nodes of a function.

A rewriting is written as what it should do; whether it does is decided by running both functions in torch.
"""

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Rewrite = Callable[[ast.AST, random.Random], ast.AST | list[ast.stmt] | None]
"""What a node becomes; None where the rewriting does not apply to it."""

_NAME = "rewritten"
_METHODS = {"pow", "mean", "sum", "rsqrt", "unsqueeze", "transpose", "chunk", "squeeze", "permute", "square", "abs"}


def _expr(text: str, **parts: ast.expr) -> ast.expr:
    """An expression with other expressions in place of the names of `parts`."""

    class Filled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return copy.deepcopy(parts[node.id]) if node.id in parts else node

    return Filled().visit(ast.parse(text, mode="eval").body)  # type: ignore[no-any-return]


def _called(node: ast.AST, *names: str) -> ast.Call | None:
    """A call of a function or method of one of these names."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return node if name in names else None


def _on_torch(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).startswith(("torch", "nn", "F"))


def _method(node: ast.AST, *names: str) -> ast.Call | None:
    """A method call on a value, and no function of torch."""
    call = _called(node, *names)
    return call if call is not None and isinstance(call.func, ast.Attribute) and not _on_torch(call) else None


def _numbers(node: ast.AST) -> bool:
    """Whether an expression is of sizes and indices, and not of a tensor's values."""
    text = ast.unparse(node)
    return isinstance(node, ast.Constant) or "shape" in text or "num_" in text or "size" in text or "dim" in text


# rewritings that keep what is computed


def _commute(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
        return ast.BinOp(node.right, node.op, node.left)
    return None


def _operator_as_function(node: ast.AST, rng: random.Random) -> ast.AST | None:
    names = {ast.Mult: "mul", ast.Add: "add", ast.Sub: "sub"}
    if not isinstance(node, ast.BinOp) or type(node.op) not in names or _numbers(node.left) or _numbers(node.right):
        return None
    return _expr(f"torch.{names[type(node.op)]}(a, b)", a=node.left, b=node.right)


def _operator_as_method(node: ast.AST, rng: random.Random) -> ast.AST | None:
    names = {ast.Mult: "mul", ast.Add: "add", ast.Sub: "sub"}
    if not isinstance(node, ast.BinOp) or type(node.op) not in names or _numbers(node.left):
        return None
    return _expr(f"(a).{names[type(node.op)]}(b)", a=node.left, b=node.right)


def _method_as_function(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, *_METHODS)
    if call is None:
        return None
    assert isinstance(call.func, ast.Attribute)
    name = ast.parse(f"torch.{call.func.attr}", mode="eval").body
    return ast.Call(name, [call.func.value, *call.args], call.keywords)


def _function_as_method(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "rsqrt", "bmm", "matmul", "mul", "mean", "sum", "where", "cos", "sin")
    if call is None or not _on_torch(call) or len(call.args) < 1 or call.func.attr == "where":  # type: ignore[attr-defined]
        return None
    return ast.Call(ast.Attribute(call.args[0], call.func.attr, ast.Load()), call.args[1:], call.keywords)  # type: ignore[attr-defined]


def _square(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, "pow")
    if call is None or not call.args or ast.unparse(call.args[0]) != "2":
        return None
    assert isinstance(call.func, ast.Attribute)
    return _expr(rng.choice(["(x).square()", "x * x", "x ** 2", "torch.square(x)"]), x=call.func.value)


def _rsqrt(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "rsqrt")
    if call is None or not call.args:
        return None
    return _expr(rng.choice(["1 / torch.sqrt(x)", "torch.pow(x, -0.5)", "(x).sqrt().reciprocal()"]), x=call.args[0])


def _cast(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, "to")
    if call is None or len(call.args) != 1 or call.keywords:
        return None
    assert isinstance(call.func, ast.Attribute)
    kind = ast.unparse(call.args[0])
    ways = ["(x).to(dtype=d)", "(x).type(d)"] + (["(x).float()"] if kind == "torch.float32" else [])
    return _expr(rng.choice(ways), x=call.func.value, d=call.args[0])


def _halves(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, "chunk")
    if call is None or not call.args or ast.unparse(call.args[0]) != "2":
        return None
    assert isinstance(call.func, ast.Attribute)
    ways = [
        "(x).split((x).shape[-1] // 2, dim=-1)",
        "torch.split(x, (x).shape[-1] // 2, -1)",
        "((x)[..., : (x).shape[-1] // 2], (x)[..., (x).shape[-1] // 2 :])",
        "(x).unflatten(-1, (2, -1)).unbind(-2)",
        "torch.tensor_split(x, 2, dim=-1)",
        "((x).narrow(-1, 0, (x).shape[-1] // 2), (x).narrow(-1, (x).shape[-1] // 2, (x).shape[-1] // 2))",
    ]
    return _expr(rng.choice(ways), x=call.func.value)


def _half_slice(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if not isinstance(node, ast.Subscript) or "// 2" not in ast.unparse(node.slice) or "..." not in ast.unparse(node):
        return None
    place = 1 if ast.unparse(node.slice).rstrip(")").rstrip().endswith(":") else 0
    ways = [f"(x).chunk(2, dim=-1)[{place}]", f"torch.chunk(x, 2, -1)[{place}]", f"(x).tensor_split(2, -1)[{place}]"]
    return _expr(rng.choice(ways), x=node.value)


def _linear(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "linear")
    if call is None or len(call.args) != 2 or call.keywords:
        return None
    ways = [
        "x @ (w).T", "torch.matmul(x, (w).transpose(-1, -2))", "torch.einsum('...i,oi->...o', x, w)",
        "torch.mm(x, (w).t())", "(w @ (x).T).T",
    ]  # fmt: skip
    return _expr(rng.choice(ways), x=call.args[0], w=call.args[1])


def _negated(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub) or isinstance(node.operand, ast.Constant):
        return None
    return _expr(rng.choice(["torch.neg(x)", "x * -1", "0 - x", "(x).neg()"]), x=node.operand)


def _joined(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "cat")
    if call is None or not call.args:
        return None
    return _expr(rng.choice(["torch.concat(list(x), -1)", "torch.cat([*x], dim=-1)", "torch.concatenate(x, dim=-1)"]),
                 x=call.args[0])  # fmt: skip


def _found(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "where")
    if call is None or len(call.args) != 1:
        return None
    return _expr(rng.choice(["(m).nonzero(as_tuple=True)", "torch.nonzero(m, as_tuple=True)"]), m=call.args[0])


def _mask(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "one_hot")
    if call is None:
        return None
    count = call.args[1] if len(call.args) > 1 else call.keywords[0].value
    ways = [
        "(i.unsqueeze(-1) == torch.arange(n)).long()",
        "torch.nn.functional.one_hot(i, n + 1)[..., :n]",
        "torch.zeros(*i.shape, n, dtype=torch.int64).scatter_(-1, i.unsqueeze(-1), 1)",
        "torch.eye(n)[i].to(torch.int64)",
    ]
    return _expr(rng.choice(ways), i=call.args[0], n=count)


def _hit_or_all(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if not isinstance(node, ast.For) or "expert_hit" not in ast.unparse(node.iter):
        return None
    every = ["[[e] for e in range(self.num_experts)]", "torch.arange(self.num_experts).unsqueeze(-1)"]
    return ast.For(node.target, _expr(rng.choice(every)), node.body, [])


def _added(node: ast.AST, rng: random.Random) -> list[ast.stmt] | None:
    if not isinstance(node, ast.Expr) or (call := _method(node.value, "index_add_")) is None:
        return None
    assert isinstance(call.func, ast.Attribute)
    total, places, value = (ast.unparse(one) for one in (call.func.value, call.args[1], call.args[2]))
    ways = [
        f"{total} = {total}.index_add(0, {places}, {value})",
        f"{total}[{places}] += {value}",
        f"{total}[{places}] = {total}[{places}] + {value}",
        f"{total}.index_put_(({places},), {value}, accumulate=True)",
    ]
    return ast.parse(rng.choice(ways)).body


def _unpacked(node: ast.AST, rng: random.Random) -> list[ast.stmt] | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if not isinstance(node, ast.Assign) or not isinstance(target, ast.Tuple):
        return None
    names = [ast.unparse(one) for one in target.elts]
    lines = [f"{_NAME} = {ast.unparse(node.value)}", *(f"{name} = {_NAME}[{n}]" for n, name in enumerate(names))]
    return ast.parse("\n".join(lines)).body


def _intermediate(node: ast.AST, rng: random.Random) -> list[ast.stmt] | None:
    if not isinstance(node, ast.Return | ast.Assign) or node.value is None:
        return None
    inner = [one for one in ast.walk(node.value) if isinstance(one, ast.Call | ast.BinOp) and not _scoped(node.value)]
    if not inner:
        return None
    chosen = rng.choice(inner)
    first = ast.Assign([ast.Name(_NAME, ast.Store())], copy.deepcopy(chosen))

    class Put(ast.NodeTransformer):
        def visit(self, other: ast.AST) -> ast.AST:
            return ast.Name(_NAME, ast.Load()) if other is chosen else self.generic_visit(other)

    value = Put().visit(node.value)
    assert isinstance(value, ast.expr)
    node.value = value
    return [first, node]


def _scoped(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.IfExp) for one in ast.walk(node))


def _branches(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    other = copy.deepcopy(node)
    return ast.If(_expr("torch.is_grad_enabled()"), [node], [other])


def _early(node: ast.AST, rng: random.Random) -> list[ast.stmt] | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    return [ast.If(_expr("True"), [node], []), *ast.parse("raise ValueError('not reached')").body]


def _copied(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "linear", "rsqrt", "act_fn", "gate_proj", "up_proj", "down_proj", "cat")
    if call is None:
        return None
    return _expr(rng.choice(["(x).contiguous()", "(x).clone()", "(x + 0)", "(x).view((x).shape)"]), x=call)


def _function_of_its_own(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if not isinstance(node, ast.BinOp) or _numbers(node):
        return None
    return _expr("(lambda first: first)(x)", x=node)


def _silu(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "act_fn", "activation_fn")
    if call is None or not call.args:
        return None
    ways = ["torch.nn.functional.silu(x)", "torch.nn.SiLU()(x)", "torch.nn.functional.silu((x).clone(), inplace=True)"]
    return _expr(rng.choice(ways), x=call.args[0])


def _sigmoid(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "act_fn", "activation_fn")
    if call is None or not call.args:
        return None
    ways = ["x * torch.sigmoid(x)", "(x).sigmoid() * x", "x / (1 + torch.exp(-x))", "torch.mul(x, torch.sigmoid(x))"]
    return _expr(rng.choice(ways), x=call.args[0])


SIGMOID = "silu by a sigmoid"
"""It rounds once more in bfloat16, which no kernel does: only exact numbers tell whether it is kept."""
KEEPING: dict[str, Rewrite] = {
    "commute": _commute, "operator as function": _operator_as_function, "operator as method": _operator_as_method,
    "method as function": _method_as_function, "function as method": _function_as_method, "square": _square,
    "rsqrt": _rsqrt, "cast": _cast, "halves": _halves, "half slice": _half_slice, "linear": _linear,
    "negated": _negated, "joined": _joined, "found": _found, "mask": _mask, "hit or all": _hit_or_all,
    "added": _added, "unpacked": _unpacked, "intermediate": _intermediate, "branches": _branches, "early": _early,
    "copied": _copied, "function of its own": _function_of_its_own, "silu": _silu,
    SIGMOID: _sigmoid,
}  # fmt: skip


# rewritings that change it


def _wrapped(*ways: str) -> Rewrite:
    """The result of an operation, put through something else."""

    def rewrite(node: ast.AST, rng: random.Random) -> ast.AST | None:
        names = ("linear", "rsqrt", "act_fn", "gate_proj", "up_proj", "down_proj", "cat", "mean", "rotate_half")
        fits = _called(node, *names) or (isinstance(node, ast.BinOp) and not _numbers(node))
        return _expr(rng.choice(ways), x=node) if fits else None  # type: ignore[arg-type]

    return rewrite


def _axis(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "mean", "chunk", "cat", "sum", "unsqueeze")
    if call is None:
        return None
    changed = copy.deepcopy(call)
    for keyword in changed.keywords:
        if keyword.arg == "dim":
            keyword.value = ast.Constant(0)
            return changed
    if changed.args and ast.unparse(changed.args[0]) == "-1":
        changed.args[0] = ast.Constant(0)
        return changed
    return None


def _no_cast(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, "to", "float")
    return call.func.value if call is not None else None  # type: ignore[attr-defined]


def _late_cast(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if not isinstance(node, ast.BinOp) or (call := _method(node.right, "to")) is None or not call.args:
        return None
    inner = ast.BinOp(node.left, node.op, call.func.value)  # type: ignore[attr-defined]
    return _expr("(x).to(d)", x=inner, d=call.args[0])


def _swapped(node: ast.AST, rng: random.Random) -> ast.AST | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if not isinstance(node, ast.Assign) or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return None
    return ast.Assign([ast.Tuple(target.elts[::-1], ast.Store())], node.value)


def _other_activation(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _called(node, "act_fn", "activation_fn")
    ways = ["torch.tanh(x)", "torch.nn.functional.gelu(x)", "x", "torch.relu(x)", "torch.sigmoid(x)"]
    return _expr(rng.choice(ways), x=call.args[0]) if call is not None and call.args else None


def _sign(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        return node.operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and not _numbers(node):
        return ast.BinOp(node.left, ast.Sub(), node.right)
    return None


def _other_operator(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and not _numbers(node):
        return ast.BinOp(node.left, ast.Add(), node.right)
    return None


def _one_side(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add) and not _numbers(node):
        return rng.choice([node.left, node.right])
    return None


def _other_power(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, "pow")
    if call is None:
        return None
    return _expr(rng.choice(["(x).pow(4)", "(x).abs()", "(x).pow(2) + 0.01"]), x=call.func.value)  # type: ignore[attr-defined]


def _every_second(node: ast.AST, rng: random.Random) -> ast.AST | None:
    if _half_slice(node, rng) is None:
        return None
    assert isinstance(node, ast.Subscript)
    start = 1 if ast.unparse(node.slice).rstrip(")").rstrip().endswith(":") else 0
    return _expr(f"(x)[..., {start}::2]", x=node.value)


def _interleaved(node: ast.AST, rng: random.Random) -> ast.AST | None:
    call = _method(node, "chunk")
    return _expr("((x)[..., ::2], (x)[..., 1::2])", x=call.func.value) if call is not None else None  # type: ignore[attr-defined]


CHANGING: dict[str, Rewrite] = {
    "clamp": _wrapped("(x).clamp(max=0.3)", "(x).clamp(min=-0.5)", "torch.clamp(x, -0.4, 0.4)"),
    "factor": _wrapped("x * 0.5", "1.1 * (x)", "x / 2"), "bias": _wrapped("x + 0.1", "x - 0.05"),
    "detach": _wrapped("(x).detach()"), "rounded": _wrapped("(x).to(torch.bfloat16).to((x).dtype)"),
    "flipped": _wrapped("(x).flip(-1)", "torch.roll(x, 1, -1)"), "axis": _axis, "no cast": _no_cast,
    "late cast": _late_cast, "swapped": _swapped, "other activation": _other_activation, "sign": _sign,
    "other operator": _other_operator, "one side": _one_side, "other power": _other_power,
    "every second": _every_second, "interleaved": _interleaved,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A function that was rewritten.

    Attributes:
        rewriting: its name; several, joined by " + ".
        node: the definition after it.
    """

    rewriting: str
    node: ast.FunctionDef


def renamed(node: ast.FunctionDef, rng: random.Random) -> ast.FunctionDef:
    """Other names for the local variables of a function."""
    stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    given = {arg.arg for arg in ast.walk(node) if isinstance(arg, ast.arg)}
    names = {name: f"{rng.choice(['local', 'value', 'part'])}_{number}" for number, name in enumerate(stored - given)}

    class Renamer(ast.NodeTransformer):
        def visit_Name(self, other: ast.Name) -> ast.AST:
            return ast.Name(names.get(other.id, other.id), other.ctx)

    return Renamer().visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def mutants(node: ast.FunctionDef, rewritings: dict[str, Rewrite], rng: random.Random) -> Iterator[Mutant]:
    """One mutant for each rewriting that applies to a function, at a random place."""
    for name, rewrite in rewritings.items():
        mutant = applied(node, name, rewrite, rng)
        if mutant is not None:
            yield mutant


def _without_annotations(node: ast.FunctionDef) -> ast.FunctionDef:
    bare = copy.deepcopy(node)
    bare.returns = None
    for one in ast.walk(bare.args):
        if isinstance(one, ast.arg):
            one.annotation = None
    return bare


def applied(node: ast.FunctionDef, name: str, rewrite: Rewrite, rng: random.Random) -> Mutant | None:
    """A function with one node rewritten; None where the rewriting applies to none."""
    node = _without_annotations(node)
    places = [
        place for place, one in enumerate(ast.walk(node)) if rewrite(copy.deepcopy(one), random.Random(0)) is not None
    ]
    if not places:
        return None
    changed = copy.deepcopy(node)
    chosen = list(ast.walk(changed))[rng.choice(places)]
    new = rewrite(copy.deepcopy(chosen), rng)

    class Put(ast.NodeTransformer):
        def visit(self, other: ast.AST) -> ast.AST | list[ast.stmt] | None:
            return new if other is chosen else self.generic_visit(other)

    whole = Put().visit(changed)
    assert isinstance(whole, ast.FunctionDef)
    # what is written is what is parsed, with its line numbers
    (parsed,) = ast.parse(ast.unparse(ast.fix_missing_locations(whole))).body
    assert isinstance(parsed, ast.FunctionDef)
    return Mutant(name, parsed)
