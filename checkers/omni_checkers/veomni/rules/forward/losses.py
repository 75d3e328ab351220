"""Rules about the loss of patched heads: VEO511 to VEO513."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeGuard

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, LOSS, OUTPUT, loss_contract, patch_config
from omni_checkers.veomni.facts.generated import Generated, upstream_function
from omni_kit.pysource.source import dotted

_HEADS = ("ForCausalLM", "ForConditionalGeneration", "ForSequenceClassification", "ForTokenClassification")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
_MASK = "    labels = torch.where(labels > 0, labels, {})\n"
_EMBEDDED = "weights=weights", "weights=self.model.embed_tokens.weight"
_CONSTANT = '\n\nconfig.add_import("veomni.utils.constants", names=["IGNORE_INDEX"])\n'


def _example(before: str = "", output: str = OUTPUT) -> dict[str, str]:
    """Return a language model that does something before it computes the loss."""
    body = f"{before}    loss, logits, aux = {LOSS}\n{output}"
    return {GPU_CONFIG: patch_config(_CONSTANT if "IGNORE_INDEX" in before else "", loss_contract(body))}


class LossOutOfPlace(Rule):
    """Add other losses out of place in a patched head: `loss = loss + ...`.

    The rule does not report lines of upstream.

    Why: the backward of the fused loss still needs the tensor that it returned. An in-place change also changes the
    logged language model loss, and autograd may raise "modified by an inplace operation".

    Fine when: the loss is a new tensor without other references.
    """

    id = "VEO511"
    name = "losses-added-out-of-place"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-LOSS-07",)
    BAD = (_example(output=OUTPUT.replace("loss = loss +", "loss +=")),)
    GOOD = (_example(),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, owner, function in _heads(generated):
            names = {name for call in _losses(function) for name in _names(call.targets[0])[:1]}
            upstream = upstream_function(item, owner, function.name)
            theirs = {ast.unparse(n) for n in walked(upstream) if isinstance(n, ast.AugAssign)} if upstream else set()
            for node in walked(function):
                own = isinstance(node, ast.AugAssign) and ast.unparse(node) not in theirs
                changed = dotted(node.target) if own and isinstance(node, ast.AugAssign) else None
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_":
                    changed = dotted(node.func.value)
                if changed in names and isinstance(node, (ast.AugAssign, ast.Call)):
                    message = f"{owner}.{function.name} changes '{changed}' in place"
                    yield Finding(message, item.file.path, node.lineno)


class AuxiliaryPayloadIsReturned(Rule):
    """Put the loss function's extra outputs into the head's output.

    Why: the third value contains per-token log-probabilities and entropy, and the loss scale under fused kernels. A
    head that drops it trains, but reinforcement learning and distillation then find None.

    Fine when: the head never provides them, as a classification head, or passes logits without hidden states: VeOmni
    computes the third value from hidden states only. The rule then does not apply.
    """

    id = "VEO512"
    name = "auxiliary-payload-of-loss-is-returned"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-LOSS-10", "VEO-OMNI-12")
    failure_modes = ("loss-wrapper-arity",)
    BAD = (_example(output="    return MoeCausalLMOutputWithLogProbs(loss=loss, logits=logits)\n"),)
    GOOD = (_example(),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, owner, function in _heads(generated):
            if not owner.endswith(_HEADS[:2]):
                continue
            read = _handed_on(function)
            for call in _losses(function):
                names = _names(call.targets[0])
                if len(names) == 3 and names[2] not in read and _given(call, "hidden_states"):
                    message = f"{owner}.{function.name} drops the third value of the loss function"
                    yield Finding(message, item.file.path, call.lineno)


class LossGetsTheHead(Rule):
    """Pass a fused loss the weight of the head with which upstream computes the logits.

    Why: fused losses multiply by `weights=`. Another matrix of the same shape, such as the embedding's, gives the loss
    of another model unless the two are tied, and the head gets no gradient.

    Fine when: never.
    """

    id = "VEO514"
    name = "loss-gets-the-weight-of-the-head"
    target = "veomni"
    obligations = ("VEO-LOSS-02",)
    failure_modes = ("loss-wrapper-arity",)
    BAD = ({GPU_CONFIG: patch_config(loss_contract(f"    loss, logits, aux = {LOSS.replace(*_EMBEDDED)}\n{OUTPUT}"))},)
    GOOD = (_example(),)

    def check(self, generated: list[Generated]) -> Findings:
        for item, owner, function in _heads(generated):
            upstream = upstream_function(item, owner, function.name)
            heads = set(_logits_made_by(upstream)) if upstream is not None else set()
            for call in _losses(function):
                keywords = call.value.keywords if isinstance(call.value, ast.Call) and heads else []
                given = [keyword.value for keyword in keywords if keyword.arg == "weights"]
                for weight in given:
                    name = dotted(weight) or ""
                    if name.startswith("self.") and name.endswith(".weight") and name[:-7] not in heads:
                        message = f"{owner}.{function.name} passes the loss {name}; upstream computes logits with "
                        yield Finding(message + ", ".join(sorted(heads)), item.file.path, weight.lineno)


def _logits_made_by(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the modules that upstream calls to make `logits`."""
    for node in walked(function):
        if isinstance(node, ast.Assign) and "logits" in (dotted(node.targets[0]) or ""):
            for call in (inner for inner in walked(node.value) if isinstance(inner, ast.Call)):
                name = dotted(call.func) or ""
                if name.startswith("self.") and name.count(".") == 1:
                    yield name


class MaskedLabelsByConstant(Rule):
    """Mask labels with IGNORE_INDEX, not with a number.

    Why: transforms, collators and losses share the constant. A literal does not follow its changes, and a mistyped one
    trains on tokens that should be masked.

    Fine when: the number is not a label but another placeholder.
    """

    id = "VEO513"
    name = "labels-masked-by-constant"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-LOSS-11",)
    failure_modes = ("loss-normalisation",)
    BAD = (_example(before=_MASK.format("-100")),)
    GOOD = (_example(before=_MASK.format("IGNORE_INDEX")),)

    def check(self, generated: list[Generated], files: dict[Path, File]) -> Findings:
        spliced = {item.config.file.path for item in generated if item.config is not None}
        for item in generated:
            for _, function in item.patched:
                if "100" in item.file.text:
                    yield from _numbers(item.file.path, walked(function))
        for path, file in files.items():
            if "100" in file.text and path not in spliced and all(path != item.file.path for item in generated):
                yield from _numbers(path, file.nodes(*_SIMPLE))


def _numbers(path: Path, nodes: Iterable[ast.AST]) -> Iterator[Finding]:
    """-100 in statements, without blocks, that speak of labels."""
    for node in nodes:
        written = [inner for inner in walked(node) if _is_mask(inner)] if isinstance(node, _SIMPLE) else []
        if written and any(word in ast.unparse(node) for word in ("label", "ignore_index")):
            for number in written:
                message = "-100 is hard-coded: import IGNORE_INDEX"
                yield Finding(message, path, number.lineno, number.col_offset + 1)


def _is_mask(node: ast.AST) -> TypeGuard[ast.UnaryOp]:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(100)):
            return True
    return False


def _heads(generated: list[Generated]) -> Iterator[tuple[Generated, str, ast.FunctionDef]]:
    """Yield the patched methods of task heads that compute a loss by VeOmni's loss function."""
    found = [
        (item, owner, function)
        for item in generated
        for owner, function in item.patched
        if owner.endswith(_HEADS) and any(_losses(function))
    ]
    if not found:
        raise NotApplicable("no patched head calls VeOmni's loss function")
    yield from found


def _given(assignment: ast.Assign, name: str) -> bool:
    """Return whether the call passes an argument of that name."""
    call = assignment.value
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return any(keyword.arg == name for keyword in keywords)


def _handed_on(function: ast.FunctionDef) -> set[str]:
    """Return the names that are read, but for those that are only asked about in a condition."""
    blocks = [node.test for node in walked(function) if isinstance(node, (ast.If, ast.IfExp, ast.Assert))]
    asked = {inner for test in blocks for inner in walked(test)}
    return {n.id for n in walked(function) if isinstance(n, ast.Name) and _loaded(n) and n not in asked}


def _losses(function: ast.FunctionDef) -> Iterator[ast.Assign]:
    """Yield assignments from `self.loss_function(...)`, or from a kernel slot for a loss."""
    for node in walked(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = dotted(node.value.func) or ""
            slot = name.startswith("veomni_") and name.endswith("_loss") and "balanc" not in name
            if slot or name == "self.loss_function":
                yield node


def _names(target: ast.expr) -> list[str]:
    elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return [dotted(element) or "" for element in elements]


def _loaded(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)
