"""Rules about dummy forwards, which keep ranks without images in step: VEO505 and VEO506."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.upstream.python.source import dotted

_DUMMY = """\


@config.override_method("OlmoeModel.dummy_forward", description="for ranks without input")
def olmoe_dummy_forward(self):
{body}"""
_KEPT = """\
    if getattr(self, "_dummy", None) is None:
        self._dummy = torch.zeros(1, 4, self.config.hidden_size)
    return self(inputs_embeds=self._dummy)
"""


def _example(body: str) -> dict[str, str]:
    return {GPU_CONFIG: patch_config(_DUMMY.format(body=body))}


def _fresh(dtype: str) -> dict[str, str]:
    made = f"    embeds = torch.zeros(1, 4, self.config.hidden_size, dtype={dtype})\n"
    return _example(made + "    return self(inputs_embeds=embeds)\n")


class DummyDtypeFromWeight(Rule):
    """`dummy_forward` takes the dtype of its input from a weight, not from `self.dtype`.

    Why: `self.dtype` is the dtype of the first parameter. Under FSDP2's mixed precision, or with adapters, that is not
    what the first layer computes in, and the dummy batch of a rank without images ends in a dtype mismatch.

    Fine when: the model is never trained in mixed precision.
    """

    id = "VEO505"
    name = "dummy-forward-takes-dtype-from-weight"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-VLM-05",)
    failure_modes = ("dummy-forward-dtype",)
    BAD = (_fresh("self.dtype"),)
    GOOD = (_fresh("self.embed_tokens.weight.dtype"),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in _dummies(item):
                node = next((n for n in walked(function) if dotted(n) == "self.dtype"), None)
                if isinstance(node, ast.expr):
                    message = f"{owner}.{function.name} takes self.dtype, the dtype of the first parameter"
                    yield Finding(message, item.file.path, node.lineno, node.col_offset + 1)


class DummyIsNotKept(Rule):
    """`dummy_forward` makes its input anew each time.

    Why: a tensor that is kept on the module stays on the device and in the dtype of the first call, while parameters
    are moved and cast; later calls end in a mismatch.

    Fine when: the module is never moved or cast after its first forward.
    """

    id = "VEO506"
    name = "dummy-forward-keeps-nothing"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-VLM-06",)
    failure_modes = ("dummy-forward-dtype",)
    BAD = (_example(_KEPT),)
    GOOD = (_fresh("self.embed_tokens.weight.dtype"),)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for owner, function in _dummies(item):
                for name, node in _kept(function):
                    message = f"{owner}.{function.name} keeps {name} for the next call"
                    yield Finding(message, item.file.path, node.lineno)


def _dummies(item: Generated) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The dummy forwards of a file, with the methods that they call."""
    for name, node in item.classes.items():
        methods = {function.name: function for function in node.body if isinstance(function, ast.FunctionDef)}
        for function in methods.values():
            if not function.name.endswith("dummy_forward"):
                continue
            yield name, function
            for call in (n for n in walked(function) if isinstance(n, ast.Call)):
                called = (dotted(call.func) or "").removeprefix("self.")
                if called.startswith("_") and called in methods and "dummy" in called:
                    yield name, methods[called]


def _kept(function: ast.FunctionDef) -> Iterator[tuple[str, ast.stmt]]:
    for node in walked(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = dotted(target) or ""
                if name.startswith("self."):
                    yield name, node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if dotted(call.func) in {"setattr", "self.register_buffer"} and call.args:
                yield ast.unparse(call), node
