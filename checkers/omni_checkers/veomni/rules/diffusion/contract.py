"""The rule about what receives from one model to the other: VEO627."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples_diffusion import CONDITION, CONDITIONS, FORWARD, MODEL, MODELING
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.conditions import returned_keys
from omni_checkers.veomni.facts.diffusion.patches import patched_forward
from omni_checkers.veomni.facts.diffusion.sides import Method
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.signatures import parameters, required, signature
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.kinds import Kind


class ConditionsFitForward(Rule):
    """Return from each step what the next accepts: get_condition, process_condition, forward, diffusers' forward.

    Each key of a returned dict is a parameter of the called function, each parameter without a default is a key, and
    the call of diffusers' forward uses its parameter names. The rule skips dicts from comprehensions.

    Why: the trainer calls `process_condition(**get_condition(...))` and `model(**process_condition(...))`. A wrong key
    raises TypeError at the first step, or disappears in `**kwargs` and the model never sees it.

    Fine when: the data set provides a key that get_condition does not; then give the parameter a default.
    """

    id = "VEO627"
    name = "conditions-fit-forward"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-20", "DIT-21", "DIT-22", "DIT-27")
    failure_modes = ("data-contract", "override-signature-drift")
    example_of = "wan_t2v"
    BAD = (
        {CONDITION: CONDITIONS.replace('"training_target"', '"target"')},
        {MODEL: MODELING.replace("latents=None", "latents=None, *, guidance"), CONDITION: CONDITIONS},
        {
            MODEL: MODELING.replace(
                FORWARD, FORWARD.replace("context, return_dict", "context, caption_mask=None, return_dict")
            )
        },
    )
    GOOD = ({MODEL: MODELING, CONDITION: CONDITIONS},)

    def check(self, diffusion: Diffusion) -> Findings:
        transformer, condition = diffusion.transformer, diffusion.condition
        forward = diffusion.method(transformer.model, "forward") if transformer is not None else None
        process = diffusion.method(condition.model, "process_condition") if condition is not None else None
        get = diffusion.method(condition.model, "get_condition") if condition is not None else None
        if process is None:
            raise NotApplicable("the condition model cannot be followed")
        if get is not None:
            yield from _hands_on(get, process)
        if forward is not None:
            yield from _hands_on(process, forward)
            yield from _backbone(diffusion, forward)


def _hands_on(giver: Method, taker: Method) -> Iterator[Finding]:
    keys, taken = returned_keys(giver), parameters(taker.node)
    what = f"{giver.owner.name}.{giver.node.name}"
    for name, line in keys.possible.items():
        if name not in taken and taker.node.args.kwarg is None:
            yield Finding(f"'{name}' is not a parameter of {taker.owner.name}.{taker.node.name}", giver.path, line)
    for name in required(signature(taker.node, bound=True)) if keys.whole else ():
        if name not in keys.certain:
            severity = Severity.warning if name in keys.possible else None
            message = f"'{name}' has no default, but {what} does not return it"
            yield Finding(message, taker.path, taker.node.lineno, severity=severity)


def _backbone(diffusion: Diffusion, forward: Method) -> Iterator[Finding]:
    """The calls of diffusers' forward in the class."""
    upstream = diffusion.upstream
    if upstream is None:
        return
    name, patched = upstream.node.name, patched_forward(diffusion)
    found = [(method, call) for method in _methods(diffusion, forward) for call in _forwards(method, name)]
    if (
        not found
        and not _by_super(diffusion, forward)
        and forward.owner == (diffusion.transformer.model if diffusion.transformer else None)
    ):
        yield Finding(f"{name}.forward is called nowhere in {forward.owner.name}", forward.path, forward.node.lineno)
    taken = parameters(patched[1]) if patched is not None else list(arguments(upstream, "forward"))
    needed = (
        required(signature(patched[1], bound=True))
        if patched is not None
        else [n for n, a in arguments(upstream, "forward").items() if a.required]
    )
    anything = patched is not None and patched[1].args.kwarg is not None
    for method, call in found:
        yield from _fits(method, call, taken, needed, anything, name)


def _fits(
    method: Method, call: ast.Call, taken: list[str], needed: list[str], anything: bool, name: str
) -> Iterator[Finding]:
    """Yield names and required arguments of one call."""
    here = method.path, call.lineno
    named = {keyword.arg for keyword in call.keywords if keyword.arg}
    spread = any(keyword.arg is None for keyword in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
    given = set(taken[: len(call.args) - 1]) | named
    if not call.args:
        yield Finding(f"{name}.forward is called without self", *here)
    for strange in sorted(named - set(taken)) if not anything else ():
        yield Finding(f"{name}.forward takes no '{strange}'", *here)
    for missing in [one for one in needed if one not in given] if not spread else ():
        yield Finding(f"{name}.forward needs '{missing}'", *here)


def _methods(diffusion: Diffusion, forward: Method) -> Iterator[Method]:
    """Yield all methods of the class, and what its forward may call."""
    for item in ast.walk(forward.owner.node):
        if isinstance(item, ast.FunctionDef):
            yield Method(forward.owner, item, forward.file)


def _forwards(method: Method, name: str) -> Iterator[ast.Call]:
    for call in calls(method.node, "forward"):
        if method.file.origin(call.func).startswith("diffusers.") and ast.unparse(call.func).endswith(
            f"{name}.forward"
        ):
            yield call


def _by_super(diffusion: Diffusion, forward: Method) -> bool:
    """Return whether the class reaches diffusers' forward in another way: by super, by a module inside, or by a
    helper.
    """
    text = ast.unparse(forward.owner.node)
    return "super()" in text.replace("super().__init__", "") or ".forward" in text or "__call__" in text
