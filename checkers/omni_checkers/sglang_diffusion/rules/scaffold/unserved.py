"""The rule about arguments that no request carries: SGD603."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import QWEN, README, SAMPLING
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.sources import fields, own_classes
from omni_kit.pysource.source import dotted
from omni_kit.targets.sglang_diffusion.context import ASKED
from omni_kit.targets.sglang_diffusion.unserved_arguments import unserved

_REQUESTS = ("batch", "req")
_LISTED = "| argument | stays |\n|---|---|\n"


class UnservedArgumentsAreListed(Rule):
    """List in the README each argument of the pipeline's call that requests do not support.

    An argument is supported if SGLang's requests have it, if the integration derives it from the request, or if
    SamplingParams has a field of that name. The rule ignores arguments that callers prepare in Python (embeddings,
    masks).

    Why: users who move from diffusers to the server set a system prompt or a second guidance scale, and nothing
    happens.

    Fine when: the package has no README; the rule then does not apply.
    """

    id = "SGD603"
    name = "unserved-arguments-are-listed"
    target = "sglang-diffusion"
    severity = Severity.warning
    obligations = ("SGL-51",)
    BAD = ({README: "# Qwen\n"}, {README: f"# Qwen\n\n{_LISTED}| `prompt` | `None` |\n"})
    GOOD = ({README: f"# Qwen\n\n{_LISTED}| `sigmas` | `None` |\n", SAMPLING: QWEN[SAMPLING]},)

    def check(self, serving: Serving, path: Path, files: dict[Path, File]) -> Findings:
        readme = path / README
        if serving.upstream is None or not readme.is_file():
            raise NotApplicable("diffusers has no class with this name, or the package has no README")
        text = readme.read_text(encoding="utf-8", errors="replace")
        trees = (file.tree for file in files.values() if file.tree is not None)
        served = {*ASKED, *(name for tree in trees for name in _passed(tree))}
        if serving.sampling is not None:
            served |= {name for entry in own_classes(serving.sampling) for name in fields(entry)}
        for one in unserved(serving.upstream, served):
            if not one.ready and f"`{one.name}`" not in text:
                yield at(serving.cls.source, serving.cls.node, f"requests lack '{one.name}' of {serving.name} "
                         f"({one.where}), and {README} does not list it")  # fmt: skip


def _passed(tree: ast.AST) -> Iterator[str]:
    """Yield the names that are given something of a request, and those that are read of one."""
    for node in walked(tree):
        if isinstance(node, ast.keyword) and node.arg and _of_request(node.value):
            yield node.arg
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (str(key.value) for key, value in pairs if isinstance(key, ast.Constant) and _of_request(value))
        elif isinstance(node, ast.Attribute) and dotted(node.value) in _REQUESTS:
            yield node.attr


def _of_request(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Name) and one.id in _REQUESTS for one in walked(node))
