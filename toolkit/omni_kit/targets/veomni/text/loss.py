"""The loss at the end of a ForCausalLM.forward: finding it, and rewriting it for VeOmni.

VeOmni's loss function returns (loss, logits, fused_linear_aux), and its fused kernels take hidden states instead of
logits (`veomni.ops.kernels.cross_entropy`).
"""

import ast
from dataclasses import dataclass

from omni_kit.pysource.source import dotted

# upstream's output class -> VeOmni's, which also carries fused_linear_aux (veomni.utils.model_outputs)
OUTPUTS = {
    "CausalLMOutputWithPast": "CausalLMOutputWithLogProbs",
    "MoeCausalLMOutputWithPast": "MoeCausalLMOutputWithLogProbs",
}


@dataclass(frozen=True)
class Loss:
    """What was found.

    Attributes:
        statements: `logits = self.lm_head(...)`, `loss = None`, `if labels is not None: ...` when they follow each
            other directly; empty otherwise.
        call: the assignment `loss = self.loss_function(...)`, whatever the loss is called.
        hidden: the expression that lm_head receives.
    """

    statements: tuple[ast.stmt, ...]
    call: ast.Assign | None
    hidden: str

    @property
    def fusible(self) -> bool:
        """Whether the fused kernel can take the place of head and loss: they follow each other directly."""
        return len(self.statements) == 3


def read_loss(forward: ast.FunctionDef) -> Loss:
    """Finds the loss of a forward."""
    assigned = [n for n in ast.walk(forward) if isinstance(n, ast.Assign) and _calls(n, "self.loss_function")]
    call = assigned[0] if len(assigned) == 1 else None
    for index, statement in enumerate(forward.body):
        following = forward.body[index : index + 3]
        if isinstance(statement, ast.Assign) and _assigns(statement, "logits", "self.lm_head") and len(following) == 3:
            head = statement.value
            if _is_standard(following, call) and isinstance(head, ast.Call) and len(head.args) == 1:
                return Loss(tuple(following), call, ast.unparse(head.args[0]))
    return Loss((), call, "")


def own_loss(forward: ast.FunctionDef) -> ast.Call | None:
    """The cross-entropy that a forward takes itself, of torch; None where it takes none."""
    for node in ast.walk(forward):
        name = (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in {"CrossEntropyLoss", "cross_entropy"}:
            return node
    return None


def balancing_call(forward: ast.FunctionDef) -> ast.Assign | None:
    """`aux_loss = load_balancing_loss_func(...)` in a forward."""
    for node in ast.walk(forward):
        if isinstance(node, ast.Assign) and _assigns(node, "aux_loss", "load_balancing_loss_func"):
            return node
    return None


def output_call(forward: ast.FunctionDef) -> ast.Call | None:
    """The call that makes the returned output, when it is `return Output(name=..., ...)`."""
    last = forward.body[-1]
    if isinstance(last, ast.Return) and isinstance(last.value, ast.Call) and not last.value.args:
        return last.value
    return None


def output_class(forward: ast.FunctionDef) -> str:
    """The class of the returned output; "" when it is not made in the return."""
    call = output_call(forward)
    return (dotted(call.func) or "") if call is not None else ""


def _assigns(node: ast.Assign, name: str, function: str) -> bool:
    return _calls(node, function) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def _calls(node: ast.Assign, function: str) -> bool:
    """Whether one name is assigned what a call of `function` gives."""
    is_call = isinstance(node.value, ast.Call) and dotted(node.value.func) == function
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and is_call


def _is_standard(statements: list[ast.stmt], call: ast.Assign | None) -> bool:
    """`loss = None` and then `if labels is not None: loss = self.loss_function(...)` with the usual arguments."""
    start, branch = statements[1], statements[2]
    return (
        ast.unparse(start) == "loss = None"
        and isinstance(branch, ast.If)
        and ast.unparse(branch.test) == "labels is not None"
        and branch.body == [call]
        and not branch.orelse
        and call is not None
        and isinstance(call.value, ast.Call)
        and _usual_arguments(call.value)
    )


def _usual_arguments(call: ast.Call) -> bool:
    values = [ast.unparse(arg) for arg in call.args]
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    given = dict(zip(("logits", "labels", "vocab_size"), values, strict=False)) | {k: v for k, v in named.items() if k}
    rest = named.get(None)
    return (
        set(given) == {"logits", "labels", "vocab_size"}
        and given["logits"] == "logits"
        and given["labels"] == "labels"
        and given["vocab_size"]
        in {"self.vocab_size", "self.config.vocab_size", "self.config.get_text_config().vocab_size"}
        and rest in {"kwargs", None}
    )
