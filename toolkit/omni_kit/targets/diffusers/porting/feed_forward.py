"""Feed-forwards of two layers with an activation between them, as diffusers' own FeedForward."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from omni_kit.pysource.signatures import defaults, named, passed, signature
from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.streams import own_calls
from omni_kit.targets.diffusers.porting.syntax import body_of, code, names_used, own_attribute, statement, with_method

FEED_FORWARD = "FeedForward"
_ACTIVATIONS = {
    "nn.GELU()": "gelu", "nn.GELU(approximate='none')": "gelu", "nn.GELU(approximate='tanh')": "gelu-approximate",
    "nn.GELU('tanh')": "gelu-approximate", "nn.SiLU()": "linear-silu",
}  # fmt: skip
_LINEAR = ("Linear", "made", "linear_layer")
_DROPS = ("drop", "dropout", "drop_rate", "proj_drop")


@dataclass(frozen=True)
class Layers:
    """Authors' names of the two layers of one feed-forward."""

    first: str
    second: str


@dataclass(frozen=True)
class _Made:
    """Construction of a feed-forward, as written."""

    layers: Layers
    dim: str
    inner: str
    out: str
    bias: str
    activation: str

    def __str__(self) -> str:
        out = f", dim_out={self.out}" if self.out not in ("", self.dim) else ""
        bias = f", bias={self.bias}" if self.bias not in ("", "True") else ""
        return f'{FEED_FORWARD}({self.dim}{out}, inner_dim={self.inner}, activation_fn="{self.activation}"{bias})'


def with_feed_forwards(parts: Parts, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Layers]]:
    """Make the feed-forwards of blocks by the library's class, where it computes the same.

    Args:
        wanted: class -> attribute of the authors -> what it is called here.

    Returns:
        class -> attribute -> the authors' layers.
    """
    found: dict[str, dict[str, Layers]] = {}
    for part in parts.parts:
        for attribute, name in wanted.get(part.name, {}).items():
            if name == "ff" and (made := _made(part, attribute, parts)) is not None:
                _write(part, attribute, made)
                found.setdefault(part.name, {})[attribute] = made.layers
    if found:
        _drop_unused(parts)
    return found


def _write(part: Part, attribute: str, made: _Made) -> None:
    def changed(init: cst.FunctionDef) -> cst.FunctionDef:
        body = [_assigning(one, attribute, made) for one in body_of(init)]
        used = [names_used(one) for one in body]
        kept = [one for at, one in enumerate(body) if not (name := _lambda(one))
                or any(name in names for other, names in enumerate(used) if other != at)]  # fmt: skip
        return init.with_changes(body=cst.IndentedBlock(kept))

    assert part.cls is not None
    part.node = with_method(part.cls, "__init__", changed)


def _lambda(node: cst.BaseStatement) -> str:
    """Return the variable that a statement binds to a lambda; empty for others."""
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    named_ = isinstance(small, cst.Assign) and isinstance(small.value, cst.Lambda)
    return code(small.targets[0].target) if named_ and isinstance(small, cst.Assign) else ""


def _assigning(node: cst.BaseStatement, attribute: str, made: _Made) -> cst.BaseStatement:
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Assign) or own_attribute(small.targets[0].target) != attribute:
        return node
    return statement(f"self.{attribute} = {made}").with_changes(leading_lines=getattr(node, "leading_lines", ()))


def _made(part: Part, attribute: str, parts: Parts) -> _Made | None:
    """Return the construction of the attribute, if the library's class can express it."""
    tree = ast.parse(code(part.node)).body[0]
    init = _method(tree, "__init__")
    calls = [node.value for node in init.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
             and ast.unparse(node.targets[0]) == f"self.{attribute}"] if init is not None else []  # fmt: skip
    if init is None or len(calls) != 1:
        return None
    lambdas = {ast.unparse(node.targets[0]): node.value.body for node in init.body
               if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)}  # fmt: skip
    call = calls[0]
    if ast.unparse(call.func) == "nn.Sequential":
        return _of_layers(call.args, ("0", "2")) if len(call.args) == 3 else None
    held = next((one for one in parts.parts if one.name == ast.unparse(call.func) and one.cls is not None), None)
    return _of_class(call, ast.parse(code(held.node)).body[0], lambdas) if held is not None else None


def _of_layers(layers: list[ast.expr], names: tuple[str, str]) -> _Made | None:
    first, between, last = layers
    activation = _ACTIVATIONS.get(ast.unparse(between))
    one, other = (_linear(node) for node in (first, last))
    if activation is None or one is None or other is None or one[2] != other[2] or one[1] != other[0]:
        return None
    return _Made(Layers(*names), one[0], one[1], other[1], one[2], activation)


def _linear(node: ast.AST) -> tuple[str, str, str] | None:
    """Width in, width out and bias of a linear layer, as written."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in _LINEAR:
        return None
    given = dict(zip(("in_features", "out_features", "bias"), node.args, strict=False))
    given |= {one.arg: one.value for one in node.keywords if one.arg}
    if {*given} - {"in_features", "out_features", "bias"} or not {"in_features", "out_features"} <= {*given}:
        return None
    return (*(ast.unparse(given[name]) for name in ("in_features", "out_features")),
            ast.unparse(given["bias"]) if "bias" in given else "True")  # type: ignore[return-value]  # fmt: skip


def _of_class(call: ast.Call, node: ast.stmt, lambdas: Mapping[str, ast.expr]) -> _Made | None:
    """Of a class with two layers, an activation, dropouts that drop nothing, and no norm."""
    init, forward = (_method(node, name) for name in ("__init__", "forward"))
    if init is None or forward is None:
        return None
    held = {ast.unparse(one.targets[0]).removeprefix("self."): one.value for one in ast.walk(init)
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]).startswith("self.")}  # fmt: skip
    linear = [name for name, value in held.items() if _linear(value) is not None]
    calls = own_calls(forward)
    if len(linear) != 2 or [name for name in calls if name in linear] != linear or len(set(calls)) != len(calls):
        return None
    order = [name for name in named(signature(init)) if name != "self"]
    given = passed(call, order)
    told = {name: ast.unparse(one) for name, one in given.items()}
    usual = {name: ast.unparse(one) for name, one in defaults(signature(init)).items()}
    dropped = [name for name in told if any(word in name for word in _DROPS)]
    if any(told[name] not in ("0", "0.0") for name in dropped):
        return None
    between = [name for name in calls if name not in linear]
    acts = [name for name in between if calls.index(linear[0]) < calls.index(name) < calls.index(linear[1])
            and (activation := _activation(held.get(name), given, usual, lambdas)) is not None]  # fmt: skip
    others = [name for name in between if name not in acts and not _idle(held.get(name), told, usual)]
    made = [ast.unparse(value.func) for name in acts if isinstance(value := held[name], ast.Call)]
    known = {*dropped, *_sizes(held, linear), *order[:2], *made}
    if len(acts) != 1 or others or {*told} - known:
        return None
    activation = _activation(held[acts[0]], given, usual, lambdas)
    first, second = (_linear(held[name]) for name in linear)
    assert first is not None
    assert second is not None
    dim, inner, out = (_here(text, told, usual) for text in (first[0], first[1], second[1]))
    if not dim or not inner or not out or activation is None or not _biased(first[2]) or not _biased(second[2]):
        return None
    return _Made(Layers(*linear), dim, inner, out, "", activation)


def _biased(text: str) -> bool:
    """Return whether a bias is there by default."""
    return text == "True" or text.startswith(("bias", "biases["))


def _sizes(held: Mapping[str, ast.expr], linear: list[str]) -> set[str]:
    return {node.id for name in linear for node in ast.walk(held[name]) if isinstance(node, ast.Name)}


def _here(text: str, told: Mapping[str, str], usual: Mapping[str, str]) -> str:
    """Return a width in the words of who makes the module; empty if it is not told."""
    for name in (part.strip() for part in text.split(" or ")):
        value = told.get(name, usual.get(name, ""))
        if value not in ("", "None"):
            return value
    return ""


def _activation(
    value: ast.expr | None, given: Mapping[str, ast.expr], usual: Mapping[str, str], lambdas: Mapping[str, ast.expr]
) -> str | None:
    """Return the library's name of an activation; None for anything else."""
    if not isinstance(value, ast.Call):
        return None
    name = ast.unparse(value.func)
    if name in given or name in usual:  # it is handed over
        made = given.get(name) or ast.parse(usual[name], mode="eval").body
        made = lambdas.get(ast.unparse(made), made)
        if isinstance(made, ast.Lambda):
            made = made.body
        text = ast.unparse(made)
        return _ACTIVATIONS.get(text) or _ACTIVATIONS.get(f"{text}()")
    return _ACTIVATIONS.get(ast.unparse(value))


def _idle(value: ast.expr | None, told: Mapping[str, str], usual: Mapping[str, str]) -> bool:
    """Return whether a module gives what it receives: a dropout of nothing, or a norm that is not asked for."""
    if isinstance(value, ast.IfExp):
        tested = [node.id for node in ast.walk(value.test) if isinstance(node, ast.Name)]
        unasked = bool(tested) and tested[0] not in told and usual.get(tested[0]) == "None"
        return unasked and "Identity" in ast.unparse(value.orelse)
    text = ast.unparse(value) if value is not None else ""
    return text.startswith("nn.Dropout(") or text == "nn.Identity()"


def _method(node: ast.AST, name: str) -> ast.FunctionDef | None:
    body = node.body if isinstance(node, ast.ClassDef) else []
    return next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def _drop_unused(parts: Parts) -> None:
    """Without definitions that nothing in the file names any more."""
    while True:
        used = [
            names_used(part.node) | {name for one in part.before for name in names_used(one)} for part in parts.parts
        ]
        kept = [
            part for place, part in enumerate(parts.parts)
            if part is parts.root or (part.cls is None and not isinstance(part.node, cst.FunctionDef))
            or any(part.name in names for at, names in enumerate(used) if at != place)
        ]  # fmt: skip
        if len(kept) == len(parts.parts):
            return
        parts.parts[:] = kept
