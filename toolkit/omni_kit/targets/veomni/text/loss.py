"""The loss at the end of a ForCausalLM.forward: what it is computed from, and where VeOmni's takes its place.

VeOmni's loss function returns (loss, logits, fused_linear_aux), and its fused kernels take hidden states instead of
logits (`veomni.ops.kernels.cross_entropy`).
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.veomni.text.flow import HEAD, LABELS, LOSS, REST, SELF, Path, Term, factor, paths

# upstream's output class -> VeOmni's, which also carries fused_linear_aux (veomni.utils.model_outputs)
OUTPUTS = {
    "CausalLMOutputWithPast": "CausalLMOutputWithLogProbs",
    "MoeCausalLMOutputWithPast": "MoeCausalLMOutputWithLogProbs",
}
AUX = "FusedLinearAuxOutputMixin"
"""Base class of VeOmni's output classes, next to upstream's."""
_ROUTED = "router_logits"
_CONFIG = SELF.attribute("config")
_SHIFTED = tuple(Term("item", (LABELS, (rows, slice(1, None)))) for rows in (..., slice(None)))
_VOCABULARY = (
    SELF.attribute("vocab_size"),
    _CONFIG.attribute("vocab_size"),
    Term("call", (_CONFIG.attribute("get_text_config"), (), {})).attribute("vocab_size"),
    _CONFIG.attribute("text_config").attribute("vocab_size"),
    HEAD.attribute("out_features"),
)


@dataclass(frozen=True)
class Loss:
    """Loss calls that were found.

    Attributes:
        calls: the calls of the loss function.
        heads: the expressions that compute logits, each with that of the hidden states.
        scales: the expressions that multiply or divide the logits by a number of the model.
        outputs: the calls that make the returned output.
        obstacle: why a fused kernel cannot replace head and loss; empty if it can.
    """

    calls: tuple[ast.Call, ...]
    heads: tuple[tuple[ast.expr, ast.expr], ...] = ()
    scales: tuple[ast.BinOp, ...] = ()
    outputs: tuple[ast.Call, ...] = ()
    obstacle: str = ""

    @property
    def fusible(self) -> bool:
        """Return whether a fused kernel can replace head and loss: nothing else takes the logits."""
        return bool(self.calls) and not self.obstacle

    @property
    def factor(self) -> str:
        """The scaling of the logits, as code that follows them; empty for none."""
        return "".join(f" {factor(one)}" for one in self.scales)

    @property
    def output(self) -> str:
        """The class of the returned output; empty if there is not exactly one."""
        names = {dotted(call.func) or "" for call in self.outputs}
        return names.pop() if len(names) == 1 else ""


@cache
def read_loss(source: SourceFile, forward: ast.FunctionDef) -> Loss:
    """Find the loss of a forward."""
    try:
        found = paths(source, forward)
    except Unsupported as error:
        named = (n for n in ast.walk(forward) if isinstance(n, ast.Call) and dotted(n.func) == "self.loss_function")
        return Loss(tuple(named), obstacle=f"the forward cannot be followed: line {error.line} {error}")
    calls = _once(call for path in found for call, *_ in path.losses)
    heads = tuple({id(node): (node, hidden) for path in found for node, hidden in path.heads}.values())
    outputs = _once(call for path in found for call in _outputs(forward, path))
    scales = tuple({id(node): node for path in found for node in path.scales}.values())
    obstacles = (obstacle for path in found for obstacle in _obstacles(source, path))
    closed = "the forward takes no further arguments" if forward.args.kwarg is None else ""
    sometimes = "the logits are scaled on some paths only" if any(len(p.scales) != len(scales) for p in found) else ""
    shown = next(obstacles, None) or closed or sometimes or _misplaced(forward, [node for node, _ in heads])
    return Loss(calls, heads, scales, outputs, shown or "")


def _once(nodes: Iterator[ast.Call]) -> tuple[ast.Call, ...]:
    return tuple({id(node): node for node in nodes}.values())


def _outputs(forward: ast.FunctionDef, path: Path) -> Iterator[ast.Call]:
    """Yield the call that makes what a path returns."""
    for node, result in path.uses:
        if result is path.result and isinstance(node, ast.Call):
            yield node


def _obstacles(source: SourceFile, path: Path) -> Iterator[str]:
    """Yield the uses of the logits on one path that a fused kernel does not support."""
    called = {id(node.func) for node, _ in path.uses if isinstance(node, ast.Call)}
    for node, result in path.uses:
        if result is not path.result and id(node) not in called:
            yield f"`{ast.unparse(node)}` ({source.where(node)}) takes the logits"
    fields = _fields(source, path.result, path.logits)
    if fields is None:
        yield "the forward does not return an output of transformers with known fields"
        return
    if fields.get("logits") != path.logits or any(_logits(one) for name, one in fields.items() if name != "logits"):
        yield "the output's logits are not those of lm_head"
    if not path.labels:
        if path.losses:
            yield f"`{ast.unparse(path.losses[0][0])}` ({source.where(path.losses[0][0])}) runs without labels"
        return
    if len(path.losses) != 1 or path.before != 1 or len(path.heads) != 1:
        yield "lm_head and the loss function do not follow each other once"
        return
    call, arguments, keywords = path.losses[0]
    given = dict(zip(("logits", "labels", "vocab_size"), arguments, strict=False)) | keywords
    given.pop(REST, None)
    usual = given.keys() == {"logits", "labels", "vocab_size"} and len(arguments) <= len(given)
    if (
        not usual
        or given["logits"] != path.logits
        or given["labels"] != LABELS
        or given["vocab_size"] not in _VOCABULARY
    ):
        yield f"`{ast.unparse(call)}` ({source.where(call)}) takes something else than logits, labels and vocabulary"
    if not _holds(fields.get("loss"), LOSS):
        yield "the output's loss is not that of the loss function"


def _fields(source: SourceFile, result: Any, logits: Term) -> dict[str, Any] | None:
    """Return the fields of an output, or of a tuple in its place; None if a value is something else."""
    if isinstance(result, tuple) or (isinstance(result, Term) and result.parts[0] == "add"):
        parts = tuple(_items(result))
        return {"logits": logits if logits in parts else None, "loss": LOSS if LOSS in parts else None}
    if not isinstance(result, Term) or result.made != "call" or not isinstance(result.parts[0], Term):
        return None
    function, arguments, keywords = result.parts
    found = source.resolve_class(str(function.parts[-1])) if function.made == "name" else None
    if found is None:
        return None
    declared = (one.target for one in found[1].body if isinstance(one, ast.AnnAssign))
    names = [target.id for target in declared if isinstance(target, ast.Name)]
    given: dict[str, Any] = dict(zip(names, arguments, strict=False))
    return {**given, **keywords}


def _items(result: Any) -> Iterator[Any]:
    """Yield the items of a tuple that is made by adding others."""
    if isinstance(result, tuple):
        yield from result
    elif isinstance(result, Term) and result.parts[0] == "add":
        for one in result.parts[1:]:
            yield from _items(one)


def _logits(value: Any) -> bool:
    return isinstance(value, Term) and value.holds_logits


def _holds(value: Any, other: Term) -> bool:
    return isinstance(value, Term) and value.holds(other)


def _misplaced(forward: ast.FunctionDef, heads: Sequence[ast.expr]) -> str | None:
    """Return why nothing can be inserted before the statement of lm_head; None if it can."""
    for head in heads:
        statement = statement_of(forward, head)
        scoped = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp)
        around = [one for one in ast.walk(statement) if isinstance(one, scoped) and head in ast.walk(one)]
        if around or not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            return f"lm_head is called inside of `{ast.unparse(around[0] if around else statement).splitlines()[0]}`"
    return None


def statement_of(forward: ast.FunctionDef, node: ast.AST) -> ast.stmt:
    """Return the innermost statement of a forward that an expression stands in."""
    return [one for one in ast.walk(forward) if isinstance(one, ast.stmt) and node in ast.walk(one)][-1]


def standard_block(forward: ast.FunctionDef, loss: Loss) -> tuple[ast.stmt, ...]:
    """`logits = ...`, `loss = None`, `if labels is not None: loss = ...` where these follow each other; else none."""
    head = loss.heads[0][0]
    made = [head, *(one for one in loss.scales if one.left is head)]
    body = [one for one in forward.body if (value := _assigned(one, "logits")) in made or value not in loss.scales]
    for first, start, branch in zip(body, body[1:], body[2:], strict=False):
        begins = _assigned(first, "logits") in made and ast.unparse(start) == "loss = None"
        branches = isinstance(branch, ast.If) and ast.unparse(branch.test) == "labels is not None" and not branch.orelse
        inner = branch.body if isinstance(branch, ast.If) else []
        if begins and branches and len(inner) == 1 and _assigned(inner[0], "loss") is loss.calls[0]:
            return first, start, branch
    return ()


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    """Return the value that a statement assigns to one name."""
    if isinstance(statement, ast.Assign) and [ast.unparse(one) for one in statement.targets] == [name]:
        return statement.value
    return None


def own_loss(forward: ast.FunctionDef) -> ast.Call | None:
    """Return the cross-entropy that a forward takes itself, of torch; None if it takes none."""
    for node in ast.walk(forward):
        name = (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in {"CrossEntropyLoss", "cross_entropy"}:
            return node
    return None


def shifted_before(source: SourceFile, forward: ast.FunctionDef) -> ast.Call | None:
    """Return the call of the loss function that takes labels without their first token; None if there is none.

    The loss functions of transformers and VeOmni shift labels themselves (`transformers.loss.loss_utils`).
    """
    try:
        found = [one for path in paths(source, forward) if path.labels for one in path.losses]
    except Unsupported:
        return None
    for call, arguments, keywords in found:
        given = dict(zip(("logits", "labels"), arguments, strict=False)) | keywords
        if any(_holds(given.get("labels"), one) for one in _SHIFTED):
            return call
    return None


def labels_of_codebooks(forward: ast.FunctionDef) -> ast.Subscript | None:
    """Return where a forward reads the labels of one of several codebooks: an axis that VeOmni's labels do not have."""
    found = (node for node in ast.walk(forward) if isinstance(node, ast.Subscript) and dotted(node.value) == "labels")
    return next((one for one in found if re.fullmatch(r"\(?\.\.\., \w+\)?", ast.unparse(one.slice))), None)


def length_raised(tree: ast.AST) -> ast.If | None:
    """Return the test that raises, in training alone, for sequences of most lengths; None if there is none."""
    branches = (one for one in ast.walk(tree) if isinstance(one, ast.If))
    training = (one for one in branches if ast.unparse(one.test) in {"self.training", "self.training is True"})
    tests = (test for one in training for test in one.body if isinstance(test, ast.If))
    raising = (test for test in tests if any(isinstance(step, ast.Raise) for step in test.body))
    return next((test for test in raising if "length" in ast.unparse(test.test)), None)


def labels_passed_on(forward: ast.FunctionDef) -> ast.Call | None:
    """Return the call of a module or of a method that a forward passes its labels to; None if there is none."""
    calls = (node for node in ast.walk(forward) if isinstance(node, ast.Call))
    own = (call for call in calls if (dotted(call.func) or "").startswith("self."))
    return next(
        (call for call in own if "labels" in map(dotted, (*call.args, *(k.value for k in call.keywords)))), None
    )


def output_with_aux(source: SourceFile, name: str) -> str:
    """Return the output class that also carries fused_linear_aux: VeOmni's, or one next to upstream's own; "" for
    neither.
    """
    if name in OUTPUTS or name not in source.classes:
        return OUTPUTS.get(name, "")
    decorators = {dotted(one) for one in source.classes[name].decorator_list}
    return f"{name.removesuffix('WithPast')}WithLogProbs" if "dataclass" in decorators else ""


def balancing_calls(forward: ast.FunctionDef) -> list[ast.Call]:
    """The calls of `load_balancing_loss_func` in a forward."""
    calls = (node for node in ast.walk(forward) if isinstance(node, ast.Call))
    return [call for call in calls if dotted(call.func) == "load_balancing_loss_func"]


def gives_router_logits(source: SourceFile, head: ast.FunctionDef) -> bool:
    """Return whether a model records router_logits, or makes an output with them outside of its head's forward."""
    own = set(ast.walk(head))
    names = (node for node in ast.walk(source.tree) if node not in own)
    keys = (key for node in names if isinstance(node, ast.Dict | ast.Call)
            for key in (node.keys if isinstance(node, ast.Dict) else node.keywords))  # fmt: skip
    return any((key.value if isinstance(key, ast.Constant) else getattr(key, "arg", None)) == _ROUTED for key in keys)


def recorded_logits(source: SourceFile) -> tuple[str, int] | None:
    """Return the class whose results a model records as router_logits, and which of them; None if that is not said."""
    for node in ast.walk(source.tree):
        pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        for key, value in pairs:
            named = isinstance(key, ast.Constant) and key.value == _ROUTED
            if named and isinstance(value, ast.Call) and dotted(value.func) == "OutputRecorder" and value.args:
                index = next((one.value for one in value.keywords if one.arg == "index"), ast.Constant(0))
                if isinstance(index, ast.Constant) and isinstance(index.value, int):
                    return dotted(value.args[0]) or "", index.value
    return None
