"""The rule about patches of diffusers: VEO622."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import File, functions
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.veomni.examples_diffusion import MODEL, MODELING, PARALLEL, PATCHED, REGISTER, REGISTERS, WITH_PATCH
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.patches import patches
from omni_kit.pysource.nodes import calls
from omni_kit.upstream.kinds import Kind

_INSTALLED = "def apply_veomni_wan_transformer_patch():\n    _WanTransformer3DModel.forward"
_AT_ONCE = PATCHED.replace(_INSTALLED, "_WanTransformer3DModel.forward")
_SHARING = ("slice_input_tensor", "slice_input_tensor_scale_grad", "gather_outputs", "sp_pad_and_slice")


class PatchedWhenBuilt(Rule):
    """Patch diffusers in a function that the register function calls, not at import.

    No file assigns to a class of diffusers at import. Some code calls each function that does, and a forward for
    sequence parallelism is installed.

    Why: a patch at import changes diffusers for every program that imports VeOmni, including the reference of a
    comparison. A patch that nobody calls leaves diffusers' forward in place: with sequence parallelism each process
    computes everything, or attention mixes unrelated tokens.

    Fine when: never; hooks on the wrapper's modules replace a patch.
    """

    id = "VEO622"
    name = "diffusers-is-patched-when-the-model-is-built"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-28", "DIT-38", "DIT-39")
    example_of = "wan_t2v"
    BAD = (
        {PARALLEL: _AT_ONCE, REGISTER: REGISTERS},
        {PARALLEL: PATCHED, REGISTER: REGISTERS.replace("    apply_veomni_wan_transformer_patch()\n", "")},
    )
    GOOD = ({MODEL: MODELING, PARALLEL: PATCHED, REGISTER: WITH_PATCH},)

    def check(self, diffusion: Diffusion) -> Findings:
        files = list(diffusion.files.values())
        used = {name for file in files for name in _used(file)}
        for patch in patches(files):
            if patch.function is None:
                message = f"{patch.target} is replaced at import"
                yield Finding(message, patch.file.path, patch.node.lineno)
            elif patch.function.name not in used:
                message = f"{patch.target} is replaced by {patch.function.name}, which nothing calls"
                yield Finding(message, patch.file.path, patch.function.lineno)
        for file, node in functions(files):
            if (
                file.tree is not None
                and node in file.tree.body
                and node.name.endswith("forward")
                and node.name not in used
                and any(calls(node, *_SHARING))
            ):
                yield Finding(f"{node.name} splits a sequence, but is installed nowhere", file.path, node.lineno)


def _used(file: File) -> Iterator[str]:
    """The names that a file reads or calls; that it imports them is no use of them."""
    for node in file.nodes(ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
    for attribute in file.nodes(ast.Attribute):
        yield attribute.attr
    renamed = {alias.asname: alias.name for node in file.nodes(ast.ImportFrom) for alias in node.names if alias.asname}
    yield from (real for name, real in renamed.items() if any(one.id == name for one in file.nodes(ast.Name)))
