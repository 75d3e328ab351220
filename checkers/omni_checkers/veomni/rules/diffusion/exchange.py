"""The rule about the exchange of heads and tokens between processes: VEO632."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import functions, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples_diffusion import (
    ATTENTION,
    MODEL,
    MODELING,
    PARALLEL,
    PATCHED,
    PROCESSOR,
    REGISTER,
    WITH_PATCH,
)
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.attention import IN, OUT, Kernel, kernels
from omni_checkers.veomni.facts.diffusion.flows import Flows
from omni_kit.pysource.nodes import calls, constant
from omni_kit.pysource.signatures import parameters
from omni_kit.upstream.kinds import Kind

SLICES = ("slice_input_tensor", "slice_input_tensor_scale_grad", "sp_pad_and_slice")
_OTHERS = {MODEL: MODELING, PARALLEL: PATCHED, REGISTER: WITH_PATCH}


def _with(old: str, new: str) -> dict[str, str]:
    return {ATTENTION: PROCESSOR.replace(old, new), **_OTHERS}


class TokensAreExchangedOnce(Rule):
    """Exchange tokens for heads once in each self-attention under sequence parallelism, and back once.

    Either the processor exchanges query, key and value and passes `skip_ulysses=True`, or VeOmni's attention function
    exchanges, for self-attention only: text that every process has in full is not gathered.

    Why: two exchanges duplicate tokens, and without one each process attends only to its own part of the image. Shapes
    agree and the loss is finite; only a comparison with one process shows the error.

    Fine when: a helper of another package exchanges; the rule cannot see it and does not judge it.
    """

    id = "VEO632"
    name = "tokens-are-exchanged-once"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-30", "DIT-36", "DIT-37")
    failure_modes = ("sp-gather-wrong-dim",)
    example_of = "wan_t2v"
    BAD = (
        _with("skip_ulysses=crossing", "skip_ulysses=True"),
        _with("            skip_ulysses=crossing,\n", ""),
        _with("skip_ulysses=crossing", "skip_ulysses=not crossing"),
    )
    GOOD = (_with("crossing", "is_cross"),)

    def check(self, diffusion: Diffusion) -> Findings:
        found = list(kernels(diffusion))
        shares = any(
            calls(node, *SLICES) and any(calls(node, *SLICES)) for _, node in functions(list(diffusion.files.values()))
        )
        by_hand = [
            (file, node) for file, node in functions(list(diffusion.files.values())) if any(calls(node, *IN, *OUT))
        ]
        if not found or not (shares or by_hand):
            raise NotApplicable("the package has no readable function that splits sequences")
        for file, node in by_hand:
            for message in _one_way(node):
                yield Finding(message, file.path, node.lineno)
        for kernel in found:
            for message in (*_twice(kernel), *_partly(kernel)):
                yield Finding(message, kernel.file.path, kernel.call.lineno)
        for kernel, message in _by_wrapper(found, shares):
            yield Finding(message, kernel.file.path, kernel.call.lineno)


def _one_way(node: ast.FunctionDef) -> Iterator[str]:
    """Out and back within one function; a function that only wraps one of them is a helper."""
    gone, back = list(calls(node, *IN)), list(calls(node, *OUT))
    attends = any("attention" in (ast.unparse(call.func)) or "attn" in ast.unparse(call.func) for call in calls(node))
    if attends and gone and not back:
        yield f"{node.name} gathers the sequence for attention, but never gives the parts back"
    parts = [
        call
        for call in calls(node, "cat", "concat", "concatenate")
        if call.lineno > min((c.lineno for c in gone), default=0)
    ]
    streams = (
        len(parts[0].args[0].elts) if gone and parts and parts[0].args and isinstance(parts[0].args[0], ast.List) else 1
    )
    if attends and gone and back and len(back) < streams and not _in_loop(node, back):
        yield f"{node.name} gathers {streams} streams, but gives {len(back)} of them back"
    if attends and back and not gone:
        yield f"{node.name} gives parts of the sequence back, which it never gathered"


def _in_loop(node: ast.FunctionDef, found: list[ast.Call]) -> bool:
    """Return whether one of the calls stands for several."""
    loops = [one for one in walked(node) if isinstance(one, (ast.For, ast.ListComp, ast.GeneratorExp))]
    return any(call in walked(loop) for loop in loops for call in found)


def _twice(kernel: Kernel) -> Iterator[str]:
    if kernel.kind == "table" and not kernel.spread and any(calls(kernel.function, *IN)):
        said = kernel.named("skip_ulysses")
        if said is None or constant(said) is False:
            yield "the sequence is gathered here and by VeOmni's attention function again: pass skip_ulysses=True"


def _partly(kernel: Kernel) -> Iterator[str]:
    flows = Flows(kernel.function)
    ways = [bool(set(IN) & flows.called_on_the_way(one, kernel.call.lineno)) for one in kernel.states]
    streams = [one for state in kernel.states for one in _joined(flows, state, kernel.call.lineno)]
    here = [bool(set(IN) & flows.called_on_the_way(one, one.lineno + 1)) for one in streams]
    if any(here) and not all(here):
        lost = ast.unparse(next(one for one, way in zip(streams, here, strict=True) if not way))
        yield f"'{lost}' is joined with a gathered tensor, but is not gathered itself"
    elif any(ways) and not all(ways):
        lost = ", ".join(name for name, one in zip(("query", "key", "value"), ways, strict=True) if not one)
        yield f"{lost} is not gathered, but the others are"


def _joined(flows: Flows, state: ast.expr, line: int) -> list[ast.expr]:
    """Return the parts of a state that is joined of several, as of text and picture; nothing for one that is not."""
    for one in flows.sources(state, line):
        for call in calls(one, "cat", "concat", "concatenate"):
            if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):
                return [part for part in call.args[0].elts if isinstance(part, ast.Name)]
    return []


def _by_wrapper(found: list[Kernel], shares: bool) -> Iterator[tuple[Kernel, str]]:
    """Yield the kernels left to VeOmni's attention functions, by function of the package."""
    for function in dict.fromkeys(kernel.function for kernel in found):
        own = [kernel for kernel in found if kernel.function is function]
        table = [kernel for kernel in own if kernel.kind == "table"]
        if (
            not table
            or len(table) != len(own)
            or any(calls(function, *IN))
            or any(k.spread and not k.named("skip_ulysses") for k in table)
        ):
            continue
        said = [kernel.named("skip_ulysses") for kernel in table]
        if shares and all(constant(one) is True for one in said):
            yield table[0], "skip_ulysses is always True, but nothing else gathers the split sequence"
        crossing = "encoder_hidden_states" in parameters(function) and not any(calls(function, "cat", "concat"))
        for kernel, one in zip(table, said, strict=True):
            if crossing and (one is None or constant(one) is False):
                yield kernel, "cross-attention is exchanged too, but every process has the whole text"
            elif one is not None and _reversed(function, one, kernel):
                yield kernel, "skip_ulysses is True for self-attention, and False for cross-attention"


def _reversed(function: ast.FunctionDef, said: ast.expr, kernel: Kernel) -> bool:
    """Return whether the exchange is skipped where there is no text."""
    sources = Flows(function).sources(said, kernel.call.lineno)
    negated = sum(isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.Not) for one in sources for n in walked(one))
    tests = [
        n
        for one in sources
        for n in walked(one)
        if isinstance(n, ast.Compare) and "encoder_hidden_states" in ast.unparse(n)
    ]
    if len(tests) != 1 or not isinstance(tests[0].ops[0], (ast.Is, ast.IsNot)):
        return False
    return isinstance(tests[0].ops[0], ast.Is) != bool(negated % 2)
