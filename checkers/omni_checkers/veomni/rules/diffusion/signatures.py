"""The rule about a forward that takes the place of diffusers': VEO628."""

import ast
from collections.abc import Iterator
from typing import Any

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples_diffusion import MODEL, MODELING, PARALLEL, PATCHED, REGISTER, WITH_PATCH
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.patches import patched_forward
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.signatures import defaults, parameters, signature
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.kinds import Kind

_ORDER = "    encoder_hidden_states,\n    encoder_hidden_states_image=None,\n"


class PatchKeepsSignature(Rule):
    """Keep names, order and defaults of diffusers' forward in a function that replaces it, and use them.

    Why: other callers of the class get the patch too, such as a pipeline that samples during training, or adapter code.
    `return_dict=False` that disappears in `**kwargs` returns a tensor instead of a tuple, and `[0]` is the first sample
    of the batch, without an error.

    Fine when: the process runs no diffusers pipeline; hooks on modules avoid the patch.
    """

    id = "VEO628"
    name = "patched-forward-keeps-signature"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-28",)
    failure_modes = ("override-signature-drift", "upstream-drift-body")
    example_of = "wan_t2v"
    BAD = (
        {
            MODEL: MODELING,
            PARALLEL: PATCHED.replace("    attention_kwargs=None,\n", "    **kwargs,\n"),
            REGISTER: WITH_PATCH,
        },
        {MODEL: MODELING, PARALLEL: PATCHED.replace("return_dict=True", "return_dict=False"), REGISTER: WITH_PATCH},
    )
    GOOD = ({MODEL: MODELING, PARALLEL: PATCHED, REGISTER: WITH_PATCH},)

    def check(self, diffusion: Diffusion) -> Findings:
        found, upstream = patched_forward(diffusion), diffusion.upstream
        if found is None or upstream is None:
            raise NotApplicable("diffusers' forward is not replaced")
        file, node = found
        taken = arguments(upstream, "forward")
        yield from _names(file, node, taken, upstream.node.name)
        yield from _defaults(file, node, taken, upstream.node.name)


def _names(file: File, node: ast.FunctionDef, taken: dict[str, Argument], name: str) -> Iterator[Finding]:
    own = parameters(node)
    read = {item.value for item in walked(node) if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    rest = node.args.kwarg.arg if node.args.kwarg is not None else ""
    passed = any(
        isinstance(item, ast.keyword) and item.arg is None and rest in ast.unparse(item) for item in walked(node)
    )
    lost = [one for one in taken if one not in own and not (rest and (one in read or passed))]
    if lost:
        how = f"disappears in **{rest}" if rest else "is refused"
        yield Finding(f"{name}.forward takes '{lost[0]}', which {how} in {node.name}", file.path, node.lineno)
    kept = [one for one in own if one in taken]
    if kept != [one for one in taken if one in own]:
        yield Finding(
            f"the parameters of {node.name} are in another order than {name}.forward's", file.path, node.lineno
        )
    for one in own:
        if one not in taken and one not in defaults(signature(node, bound=True)):
            yield Finding(f"{node.name} requires '{one}', which {name}.forward does not accept", file.path, node.lineno)


def _defaults(file: File, node: ast.FunctionDef, taken: dict[str, Argument], name: str) -> Iterator[Finding]:
    own = defaults(signature(node, bound=True))
    for one, argument in taken.items():
        if one not in parameters(node) or argument.required:
            continue
        mine: Any = UNKNOWN
        if one in own:
            try:
                mine = ast.literal_eval(own[one])
            except (ValueError, TypeError):
                continue
        if one not in own:
            yield Finding(f"'{one}' has a default in {name}.forward, but not in {node.name}", file.path, node.lineno)
        elif argument.default is not UNKNOWN and mine != argument.default:
            message = f"'{one}' is {mine!r} by default in {node.name}, but {argument.default!r} in {name}.forward"
            yield Finding(message, file.path, own[one].lineno)
