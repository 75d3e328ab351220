"""The rule about calls of attention: VEO631."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples_diffusion import ATTENTION, PROCESSOR
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.attention import Kernel, kernels
from omni_checkers.veomni.facts.diffusion.flows import Flows
from omni_kit.pysource.nodes import constant, names_in
from omni_kit.pysource.signatures import parameters
from omni_kit.upstream.kinds import Kind

_TURNS = frozenset({"transpose", "permute", "swapaxes", "swapdims", "movedim", "rearrange"})
_SPLITS = frozenset({"unflatten", "view", "reshape"})
_MASKS = ("attention_mask", "attn_mask", "mask", "joint_attention_mask")


class AttentionSeesEverything(Rule):
    """Use non-causal attention with its mask and axis order in a diffusion transformer.

    Pass `is_causal=False` if the kernel defaults to causal. A mask that a function accepts reaches every kernel that it
    calls, or raises. Kernels of ALL_ATTENTION_FUNCTIONS and torch expect (batch, heads, sequence, dim); diffusers'
    dispatcher and flash-attn expect (batch, sequence, heads, dim).

    Why: a causal kernel hides later parts of an image from earlier ones, and unmasked padding takes part in attention.
    Both train slightly worse. With exchanged axes, heads attend to each other instead of tokens, and often nothing
    fails. The CPU fallback ignores the flag, so only GPUs show the difference.

    Fine when: the model generates frame by frame and is causal on purpose; then suppress the finding.
    """

    id = "VEO631"
    name = "attention-sees-everything"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-33", "DIT-34", "DIT-35")
    failure_modes = ("dit-attention-mask-causal", "attention-layout-transpose")
    example_of = "wan_t2v"
    BAD = (
        {ATTENTION: PROCESSOR.replace("is_causal=False", "is_causal=True")},
        {ATTENTION: PROCESSOR.replace("attention_mask=attention_mask", "attention_mask=None")},
        {ATTENTION: PROCESSOR.replace("key.transpose(1, 2)", "key")},
    )
    GOOD = ({ATTENTION: PROCESSOR},)

    def check(self, diffusion: Diffusion) -> Findings:
        found = list(kernels(diffusion))
        if not found:
            raise NotApplicable("the package calls no attention kernel itself")
        for kernel in found:
            for message in (*_causal(diffusion, kernel), *_axes(kernel)):
                yield Finding(message, kernel.file.path, kernel.call.lineno)
        for name, kernel in _dropped(found):
            message = f"'{name}' of {kernel.function.name} does not reach this kernel: attention includes masked tokens"
            yield Finding(message, kernel.file.path, kernel.call.lineno)


def _causal(diffusion: Diffusion, kernel: Kernel) -> Iterator[str]:
    said = kernel.named("is_causal", "causal")
    flows = Flows(kernel.function)
    known = flows.sources(said, kernel.call.lineno) if said is not None else []
    if said is not None and any(constant(one) is True for one in known):
        yield "attention is causal: earlier parts of an image cannot see later ones"
    elif (
        said is None
        and kernel.kind == "table"
        and not kernel.spread
        and _module_says(diffusion, kernel) is not False
        and (_module_says(diffusion, kernel) is True or _is_self(kernel))
    ):
        yield "is_causal is not passed, and the module does not set it to False: transformers' kernels are causal then"


def _is_self(kernel: Kernel) -> bool:
    first = kernel.call.args[0] if kernel.call.args else None
    return isinstance(first, ast.Name) and first.id == "self"


def _module_says(diffusion: Diffusion, kernel: Kernel) -> bool | None:
    """Return the `is_causal` of the module that the kernel gets; None if nothing sets it."""
    first = kernel.call.args[0] if kernel.call.args else None
    if first is None:
        return None
    names = {name for one in Flows(kernel.function).sources(first, kernel.call.lineno) for name in names_in(one)}
    for file in diffusion.files.values():
        for node in file.nodes(ast.ClassDef):
            if node.name in names or ("self" in names and kernel.function in walked(node)):
                for item in walked(node):
                    if isinstance(item, ast.Assign) and any("is_causal" in ast.unparse(t) for t in item.targets):
                        said = constant(item.value)
                        return said if isinstance(said, bool) else None
    return None


def _axes(kernel: Kernel) -> Iterator[str]:
    flows = Flows(kernel.function)
    turned, split = [], []
    for state in kernel.states:
        on_the_way = flows.called_on_the_way(state, kernel.call.lineno)
        turned.append(bool(_TURNS & on_the_way))
        split.append(bool(_SPLITS & on_the_way))
    if not kernel.states or not all(split):
        return
    if kernel.heads_first and any(not one for one in turned):
        which = ", ".join(name for name, one in zip(("query", "key", "value"), turned, strict=True) if not one)
        yield f"{which} reach the kernel as (batch, sequence, heads, dim); it takes heads before the sequence"
    elif not kernel.heads_first and any(_last_turns(state) for state in kernel.states):
        yield "the kernel takes (batch, sequence, heads, dim), but receives the heads first"


def _last_turns(state: ast.expr) -> bool:
    """Return whether an argument is turned where it is given."""
    return isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute) and state.func.attr in _TURNS


def _dropped(found: list[Kernel]) -> Iterator[tuple[str, Kernel]]:
    """Masks that a function takes, with the kernels in it that do not get them."""
    for kernel in found:
        for name in (one for one in _MASKS if one in parameters(kernel.function)):
            if kernel.spread and kernel.named("attention_mask", "attn_mask", "mask") is None:
                continue
            if _refused(kernel.function, name) or _reaches(kernel, name) or _for_none(kernel, name):
                continue
            others = [one for one in found if one.function is kernel.function and one is not kernel]
            reads = sum(isinstance(n, ast.Name) and n.id == name for n in walked(kernel.function))
            if any(_reaches(one, name) and not _apart(kernel, one) for one in others) and reads:
                continue  # two kernels one after the other, as for text and pictures
            yield name, kernel


def _reaches(kernel: Kernel, name: str) -> bool:
    flows = Flows(kernel.function)
    given = [*kernel.call.args, *(word.value for word in kernel.call.keywords)]
    return any(name in names_in(one) for arg in given for one in flows.sources(arg, kernel.call.lineno))


def _refused(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a mask that is given ends in an error."""
    for node in walked(function):
        if isinstance(node, ast.Assert) and name in names_in(node.test):
            return True
        if (
            isinstance(node, ast.If)
            and name in names_in(node.test)
            and any(isinstance(item, ast.Raise) for inner in node.body for item in walked(inner))
        ):
            return True
    return False


def _for_none(kernel: Kernel, name: str) -> bool:
    """Return whether a kernel stands in a branch that asks about the mask."""
    for node in walked(kernel.function):
        if isinstance(node, ast.If) and name in names_in(node.test) and kernel.call in walked(node):
            return True
        if isinstance(node, ast.IfExp) and name in names_in(node.test) and kernel.call in walked(node):
            return True
    return False


def _apart(one: Kernel, two: Kernel) -> bool:
    """Return whether two kernels stand in different branches of one condition."""
    for node in walked(one.function):
        if isinstance(node, ast.If):
            body = [item for inner in node.body for item in walked(inner)]
            other = [item for inner in node.orelse for item in walked(inner)]
            if (one.call in body and two.call in other) or (one.call in other and two.call in body):
                return True
            ends = isinstance(node.body[-1], (ast.Return, ast.Raise))
            if ends and (one.call in body) != (two.call in body):
                return True
    return False
