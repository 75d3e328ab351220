"""The rule about a forward that shares sequences between processes: VEO633."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import File, functions, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples_diffusion import MODEL, MODELING, PARALLEL, PATCHED, REGISTER, WITH_PATCH
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.attention import IN
from omni_checkers.veomni.facts.diffusion.gathering import (
    computed_again,
    in_block_loop,
    is_cut,
    on_another_dimension,
    pads,
)
from omni_checkers.veomni.facts.diffusion.patches import patched_forward
from omni_checkers.veomni.facts.diffusion.sharing import Split, gathered, made_by, plan_of, sliced
from omni_kit.pysource.nodes import calls, last_name, names_in
from omni_kit.upstream.kinds import Kind

_ROPE = "        cos = slice_input_tensor(cos, dim=1, group=state.sp_group)\n"
_GATHER = "        tokens = gather_outputs(tokens, gather_dim=1, group=state.sp_group)[:, :length]\n"
_SINE = _ROPE.replace("cos", "sin")


def _with(old: str, new: str) -> dict[str, str]:
    return {PARALLEL: PATCHED.replace(old, new), MODEL: MODELING, REGISTER: WITH_PATCH}


class SharedSequenceIsWholeAgain(Rule):
    """Slice every tensor of the sequence in a forward that slices tokens, and gather before the output.

    The forward splits what diffusers splits in `_cp_plan`, on the same dimension. It slices rotary embeddings too, or
    applies them after the exchange. It gathers after the loop over blocks, outside checkpointed code, and then removes
    the padding.

    Why: tokens with the positions of other tokens train without an error. Without the gather each process compares its
    own part with the whole target. A gather in recomputed code waits for processes that never arrive, and the job
    hangs. Padding that stays raises for images whose tokens do not divide evenly.

    Fine when: hooks split the sequence by diffusers' own plan; the rule then does not apply.
    """

    id = "VEO633"
    name = "shared-sequence-is-whole-again"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-29", "DIT-31", "DIT-32")
    failure_modes = ("sp-sharding-set-wrong", "sp-gather-wrong-dim")
    example_of = "wan_t2v"
    BAD = (
        _with(_ROPE + _SINE, ""),
        _with(_GATHER, "        pass\n"),
        _with("[:, :length]\n", "\n"),
    )
    GOOD = (_with("tokens", "sequence"),)

    def check(self, diffusion: Diffusion) -> Findings:
        found = patched_forward(diffusion)
        own = [found] if found is not None else []
        named = [
            (f, n)
            for f, n in functions(list(diffusion.files.values()))
            if n.name.endswith("forward") and f.tree and n in f.tree.body
        ]
        judged = [pair for pair in dict.fromkeys([*own, *named]) if any(sliced(pair[1]))]
        if not judged:
            raise NotApplicable("no forward slices a sequence itself")
        for file, node in judged:
            yield from _gathers(file, node)
            if found is not None and node is found[1]:
                yield from _planned(diffusion, file, node)


def _gathers(file: File, node: ast.FunctionDef) -> Iterator[Finding]:
    brought = gathered(node)
    if not brought:
        if not any(last_name(call).startswith(("gather", "all_gather", "_gather")) for call in calls(node)):
            yield Finding(f"{node.name} slices the sequence, but never gathers it", file.path, node.lineno)
        return
    for call in brought:
        if computed_again(node, call):
            yield Finding(
                "this gather is computed again for checkpointing: it waits forever for the other processes",
                file.path,
                call.lineno,
            )
        elif in_block_loop(node, call):
            yield Finding("the sequence is gathered in the loop over the blocks", file.path, call.lineno)
        elif on_another_dimension(node, call):
            message = "the sequence is gathered on another dimension than the slice"
            yield Finding(message, file.path, call.lineno)
        elif pads(node) and not is_cut(node, call):
            message = "padding is not removed after the gather: it fails if the tokens do not divide evenly"
            yield Finding(message, file.path, call.lineno, severity=Severity.warning)


def _planned(diffusion: Diffusion, file: File, node: ast.FunctionDef) -> Iterator[Finding]:
    """Yield the outputs that diffusers' plan splits and this forward does not."""
    plan = plan_of(diffusion.upstream) if diffusion.upstream is not None else []
    parts = list(sliced(node))
    names = {name for value, _, _ in parts for name in names_in(value)}
    for module in sorted({one.module for one in plan if one.output}):
        made = made_by(node, module)
        if made and not made & names and not _late(diffusion):
            yield Finding(
                f"diffusers splits the output of self.{module} with the tokens; this forward does not",
                file.path,
                node.lineno,
            )
        for half in [one for one in _halves(node, made) if one not in names] if made & names else ():
            message = f"'{half}' of self.{module} is not sliced, but the other part is"
            yield Finding(message, file.path, node.lineno)
    inside = [
        one for one in plan if not one.output and one.module.startswith(("blocks", "transformer_blocks", "single"))
    ]
    for one in inside:
        yield from _argument(file, node, one, parts, names)


def _argument(
    file: File, node: ast.FunctionDef, one: Split, parts: list[tuple[ast.expr, int | None, int]], names: set[str]
) -> Iterator[Finding]:
    """Yield one argument of the blocks that diffusers splits."""
    known = {n.id for n in walked(node) if isinstance(n, ast.Name)} | {arg.arg for arg in node.args.args}
    if one.name in known and one.name not in names and (one.name != "hidden_states" or not _renamed(node, names)):
        yield Finding(
            f"diffusers splits '{one.name}' for {one.module}, but {node.name} does not", file.path, node.lineno
        )
    for value, dim, line in parts:
        if (
            isinstance(value, ast.Name)
            and value.id == one.name
            and dim is not None
            and one.dim is not None
            and dim != one.dim
        ):
            yield Finding(
                f"'{one.name}' is sliced on dimension {dim}; diffusers splits it on {one.dim}", file.path, line
            )


def _renamed(node: ast.FunctionDef, names: set[str]) -> bool:
    """Return whether what the blocks get has another name here."""
    for loop in (item for item in walked(node) if isinstance(item, ast.For)):
        if any(names & names_in(call) for call in calls(loop)):
            return True
    return False


def _halves(node: ast.FunctionDef, made: set[str]) -> list[str]:
    """Return the names that a pair of values is unpacked into."""
    for item in walked(node):
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Tuple):
            parts = [n.id for n in item.targets[0].elts if isinstance(n, ast.Name)]
            if len(parts) > 1 and set(parts) <= made:
                return parts
    return []


def _late(diffusion: Diffusion) -> bool:
    """Return whether a processor of the directory rotates after it has gathered the sequence."""
    for _, node in functions(list(diffusion.files.values())):
        gone = [call.lineno for call in calls(node, *IN)]
        turned = [call.lineno for call in calls(node) if "rotary" in last_name(call) or "rope" in last_name(call)]
        if gone and turned and min(gone) < min(turned):
            return True
    return False
