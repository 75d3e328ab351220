"""The rule about the layout of rotary positions: SGD303."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.examples import DIT, QWEN, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import keyword, last_name
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.classes import find_class

_FLAGS = ("neox", "interleave", "rope_type", "rotary_type", "rope_layout", "rope_style")
_STYLE = "is_neox_style"
_ROTATES = "apply_rotary_emb"


class PositionsHaveUpstreamsLayout(Rule):
    """Rotate the same pairs as diffusers in rotary embeddings, and read the flag that selects the pairing.

    `is_neox_style=True` pairs the halves of a head, False pairs neighbours. diffusers' model shows its pairing by
    `use_real_unbind_dim` (-1 for neighbours, -2 for halves), or by complex numbers (neighbours). A flag that the class
    accepts or stores, and never reads, has no effect.

    Why: the weights were trained for one pairing. With the other one attention sees scrambled positions, and the image
    falls apart into patches without an error.

    Fine when: the loader permutes the weights.
    """

    id = "SGD303"
    name = "positions-have-upstreams-layout"
    target = "sglang-diffusion"
    obligations = ("SGL-47",)
    failure_modes = ("rope-layout",)
    BAD = (
        changed(DIT, ("is_neox_style=False", "is_neox_style=True")),
        changed(DIT, ("dim, heads, head_dim):", "dim, heads, head_dim, interleaved=True):")),
    )  # fmt: skip
    GOOD = ({DIT: QWEN[DIT]},)

    def check(self, serving: Serving, denoiser: ClassRef) -> Findings:
        source = denoiser.source
        if source.path not in serving.own:
            raise NotApplicable("the denoiser is SGLang's own")
        yield from _dead(source)
        wanted = _upstreams(serving)
        for call in (node for node in walked(source.tree) if isinstance(node, ast.Call)):
            style = keyword(call, _STYLE)
            if wanted is not None and isinstance(style, ast.Constant) and style.value is (not wanted):
                pairs = "halves" if wanted else "neighbours"
                yield at(
                    source, style, f"is_neox_style is {style.value}, but {serving.upstream_denoiser} pairs {pairs}"
                )


def _dead(source: SourceFile) -> Iterator[Finding]:
    for node in walked(source.tree):
        if isinstance(node, ast.FunctionDef):
            read = {item.id for item in walked(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)}
            for one in [*node.args.args, *node.args.kwonlyargs]:
                if _is_flag(one.arg) and one.arg not in read and not _is_stub(node):
                    yield at(source, one, f"'{one.arg}' is accepted, but nothing reads it")
    loads = {
        item.attr for item in walked(source.tree) if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Load)
    }
    strings = {
        item.value for item in walked(source.tree) if isinstance(item, ast.Constant) and isinstance(item.value, str)
    }
    for node in walked(source.tree):
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load) or dotted(node.value) != "self":
            continue
        if _is_flag(node.attr) and node.attr not in loads | strings:
            yield at(source, node, f"'self.{node.attr}' is stored, but nothing reads it")


def _is_flag(name: str) -> bool:
    return any(word in name for word in _FLAGS)


def _is_stub(function: ast.FunctionDef) -> bool:
    """Return whether a function has no body of its own."""
    return all(isinstance(item, (ast.Pass, ast.Raise, ast.Expr)) for item in function.body)


def _upstreams(serving: Serving) -> bool | None:
    """Return whether diffusers' denoiser pairs halves; None if it does both, or that cannot be determined."""
    if serving.upstream is None or not serving.upstream_denoiser:
        return None
    cls = find_class(serving.upstream.library, serving.upstream_denoiser)
    found = {_layout(call) for call in _rotations(cls.source)} if cls is not None else set()
    return next(iter(found)) if len(found) == 1 else None


def _rotations(source: SourceFile) -> Iterator[ast.Call]:
    for node in walked(source.tree):
        if isinstance(node, ast.Call) and last_name(node.func).startswith("apply_rotary_emb"):
            yield node


def _layout(call: ast.Call) -> bool | None:
    """Return whether a call of `apply_rotary_emb` pairs halves."""
    if last_name(call.func) not in (_ROTATES, "apply_rotary_emb_qwen"):
        return None
    unbound = keyword(call, "use_real_unbind_dim")
    return unbound is not None and ast.unparse(unbound) == "-2"
