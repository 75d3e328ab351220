"""VEO408: calls inside a generated file fit the signatures of their callees."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import within
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.callees import Callees, modules_of
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.source import SourceFile

_PATCH = """\


@config.override_method("OlmoeSparseMoeBlock.forward", description="without views of the shape")
def olmoe_sparse_moe_block_forward(self, hidden_states):
    tokens = hidden_states.flatten(0, 1)
    _, weights, index = self.gate({gate})
    return self.experts({experts}).view_as(hidden_states)
"""


class CallsFitSignatures(Rule):
    """Match calls inside a generated file to the signatures that they call.

    The rule follows functions, methods of `self`, modules that `__init__` creates, and constructors of the file's
    classes. It checks only the named arguments, and known local values, of calls with `*args` or `**kwargs`.

    Why: the first forward that reaches the call raises TypeError. A patch keeps the parameters of the release that it
    was copied from, while its callers come from another release, or from the patch of another device.

    Fine when: never.
    """

    id = "VEO408"
    name = "calls-fit-signatures"
    target = "veomni"
    obligations = ("VEO-PG-40", "VEO-NPU-03", "VEO-PG-39")
    failure_modes = ("override-signature-drift", "gpu-npu-fork-drift")
    BAD = (
        {GPU_CONFIG: patch_config(_PATCH.format(gate="tokens", experts="tokens, index"))},
        {GPU_CONFIG: patch_config(_PATCH.format(gate="tokens, top_k=8", experts="tokens, index, weights"))},
    )
    GOOD = ({GPU_CONFIG: patch_config(_PATCH.format(gate="tokens", experts="tokens, index, weights"))},)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            made = {owner: dict(modules_of(item.source, owner)) for owner in ("", *item.classes)}
            for owner, function in _functions(item.source):
                callees = Callees(item.source, owner, function, made[owner])
                for call in within(function, ast.Call):
                    callee = callees.of(call)
                    wrong = callee.misfit(call, made=callees.made) if callee is not None else ""
                    if wrong and callee is not None:
                        message = f"{ast.unparse(call.func)}(...) does not fit {callee.name}: {wrong}"
                        yield Finding(message, item.file.path, call.lineno, call.col_offset + 1)


def _functions(source: SourceFile) -> Iterator[tuple[str, ast.FunctionDef]]:
    for name, node in source.classes.items():
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                yield name, item
    for function in source.functions.values():
        yield "", function
