"""Rules about patched forward code: VEO501 to VEO504. What upstream wrote itself is not judged."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, LOSS, OUTPUT, loss_contract, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.source import dotted

_HEADS = ("ForCausalLM", "ForConditionalGeneration", "ForSequenceClassification")
_LOSS_VALUES = 3
_PARALLEL = """\


config.add_import("veomni.distributed.parallel_state", names=["get_parallel_state"])
"""
_SUM = """\
    if {}get_parallel_state().sp_enabled:
        length = length * get_parallel_state().sp_size
"""
_FLASH = """\
    if {}:
        length = length.sum()
"""
_LATE = """\
    output = MoeCausalLMOutputWithLogProbs(loss=loss, logits=logits)
    output.fused_linear_aux = aux
    return output
"""


def _head(unpacked: str = f"    loss, logits, aux = {LOSS}\n", output: str = OUTPUT) -> dict[str, str]:
    """Return a language model with a loss."""
    return {GPU_CONFIG: patch_config(loss_contract(unpacked + output))}


def _model(body: str, imports: str = "") -> dict[str, str]:
    """Return a model with a method that its layers ask for the length of the whole sequence."""
    decorator = '\n\n@config.override_method("OlmoeModel.whole_length", description="asked by the layers")\n'
    method = f"def olmoe_whole_length(self, length):\n{body}    return length\n"
    return {GPU_CONFIG: patch_config(imports + decorator + method)}


class OutputsAreComplete(Rule):
    """Pass a model output all its tensors when it is constructed.

    Why: FSDP2 finds tensors among the fields of the constructor call. A tensor that is set later gets no backward hook:
    "setStorage ... out of bounds", or missing gradients.

    Fine when: the value is not a tensor.
    """

    id = "VEO501"
    name = "model-output-complete-when-made"
    target = "veomni"
    obligations = ("VEO-OMNI-12", "VEO-LOSS-10")
    failure_modes = ("modeloutput-post-mutation",)
    BAD = (_head(output=_LATE),)
    GOOD = (_head(),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for _, function in item.patched:
                made = set(_outputs(function))
                for node in (n for n in walked(function) if isinstance(n, ast.Assign)):
                    for target in node.targets:
                        name = dotted(target.value) if isinstance(target, ast.Attribute) else None
                        if name in made and not isinstance(node.value, ast.Constant):
                            message = f"{ast.unparse(target)} is set after construction: FSDP2 does not see it"
                            yield Finding(message, item.file.path, node.lineno)


class LossIsUnpacked(Rule):
    """Unpack three values from VeOmni's loss function: loss, logits and the auxiliary payload.

    Why: VeOmni's wrapper returns a tuple of three. Two targets raise ValueError at the first labelled batch. One target
    makes the loss a tuple, which fails in backward or reaches the logger.

    Fine when: the head uses its own loss that VeOmni does not replace.
    """

    id = "VEO502"
    name = "loss-function-unpacked-into-three"
    target = "veomni"
    obligations = ("VEO-LOSS-02", "VEO-LOSS-03")
    failure_modes = ("loss-wrapper-arity",)
    BAD = (
        _head(f"    loss = {LOSS}\n", "    return MoeCausalLMOutputWithLogProbs(loss=loss, logits=logits)\n"),
        _head(f"    loss, _ = {LOSS}\n", "    return MoeCausalLMOutputWithLogProbs(loss=loss, logits=logits)\n"),
    )
    GOOD = (_head(),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in item.patched:
                if owner.endswith(_HEADS):
                    for node, count in _unpackings(function):
                        message = f"{owner} unpacks {count} of the {_LOSS_VALUES} values of VeOmni's loss function"
                        yield Finding(message, item.file.path, node.lineno)


class AttentionByCapability(Rule):
    """Do not compare the attention implementation with a single flash attention name.

    Why: VeOmni uses its own names, such as `veomni_flash_attention_2_with_sp`. A comparison with "flash_attention_2" is
    false for all of them: the code silently takes the eager path or omits `cu_seqlens`.

    Fine when: the comparison covers every flash attention, by `in` or by a part of the name.
    """

    id = "VEO503"
    name = "no-comparison-with-one-attention-name"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-24",)
    failure_modes = ("attn-impl-string-compare",)
    BAD = (_model(_FLASH.format('self.config._attn_implementation == "flash_attention_2"')),)
    GOOD = (_model(_FLASH.format('"flash_attention" in self.config._attn_implementation')),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            if "_attn_implementation" not in item.file.text:
                continue
            for _, function in item.patched:
                for node in walked(function):
                    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
                        sides = [node.left, *node.comparators]
                        names = [side.value for side in sides if isinstance(side, ast.Constant)]
                        about = any("_attn_implementation" in ast.unparse(side) for side in sides)
                        flash = [name for name in names if isinstance(name, str) and "flash" in name]
                        if about and flash:
                            message = f"compared with '{flash[0]}' alone: false for VeOmni's own attention names"
                            yield Finding(message, item.file.path, node.lineno, node.col_offset + 1)


class SequenceParallelInEvaluation(Rule):
    """Do not make sequence-parallel code depend on `self.training`.

    Why: the collator slices sequences in evaluation too. If every rank skips the gather or the slice, shapes disagree
    or each rank evaluates its own part.

    Fine when: nobody evaluates the model with sequence parallelism.
    """

    id = "VEO504"
    name = "sequence-parallel-not-gated-by-training"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-SP-04",)
    failure_modes = ("training-gated-sp",)
    BAD = (_model(_SUM.format("self.training and "), _PARALLEL),)
    GOOD = (_model(_SUM.format(""), _PARALLEL),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            if "sp_enabled" not in item.file.text:
                continue
            for _, function in item.patched:
                gated = list(_gated(function.body, False))
                if gated:
                    message = f"{function.name} skips sequence parallelism in evaluation, {len(gated)} times"
                    yield Finding(message, item.file.path, gated[0].lineno, gated[0].col_offset + 1)


def _outputs(function: ast.FunctionDef) -> Iterator[str]:
    """Local names that are returned and hold an instance of an output class."""
    returned = {dotted(node.value) for node in walked(function) if isinstance(node, ast.Return) and node.value}
    for node in walked(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            said = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            made = (dotted(node.value.func) or "").rpartition(".")[2]
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = dotted(target)
                if name in returned and name is not None and ("Output" in made or "Output" in said):
                    yield name


def _unpackings(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, int]]:
    """Yield assignments from `self.loss_function(...)` that do not take three values, with the number that they
    take.
    """
    aliases = {"self.loss_function"}
    for node in walked(function):
        if isinstance(node, ast.Assign) and dotted(node.value) in aliases:
            aliases |= {name for target in node.targets if (name := dotted(target))}
    for node in walked(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.value.func) in aliases:
            target = node.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)):
                starred = any(isinstance(item, ast.Starred) for item in target.elts)
                if len(target.elts) != _LOSS_VALUES and not starred:
                    yield node, len(target.elts)
            elif isinstance(target, ast.Name) and not _taken_apart(function, target.id):
                yield node, 1


def _taken_apart(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a local name is unpacked or indexed somewhere."""
    for node in walked(function):
        if isinstance(node, ast.Subscript) and dotted(node.value) == name:
            return True
        if isinstance(node, ast.Assign) and dotted(node.value) == name and isinstance(node.targets[0], ast.Tuple):
            return True
    return False


def _gated(body: list[ast.stmt], training: bool) -> Iterator[ast.expr]:
    """Conditions on sequence parallelism that only hold in training."""
    for statement in body:
        test = statement.test if isinstance(statement, ast.If) else None
        inner = training
        if test is not None:
            wants = _asks(test, "self.training")
            parallel = any(isinstance(n, ast.Attribute) and n.attr == "sp_enabled" for n in walked(test))
            if parallel and (wants or training) and not _excluded(test):
                yield test
            inner = training or (wants and not _excluded(test))
        for field in ("body", "finalbody"):
            yield from _gated(getattr(statement, field, []), inner)
        yield from _gated(getattr(statement, "orelse", []), training)


def _asks(test: ast.expr, name: str) -> bool:
    """Return whether a condition can only hold when `name` does."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_asks(value, name) for value in test.values)
    return dotted(test) == name


def _excluded(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) or (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or))
