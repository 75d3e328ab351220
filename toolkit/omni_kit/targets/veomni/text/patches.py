"""Derives the patches of a model: upstream's own text with a guard where a kernel fits.

Nothing is written from memory: every patched function is the upstream function, edited at positions that its ast gives.
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.match import body_without_docstring
from omni_kit.pysource.source import SourceFile
from omni_kit.targets.veomni.text.loss import OUTPUTS, balancing_call, output_call, output_class, read_loss
from omni_kit.targets.veomni.text.sites import SLOTS, Site
from omni_kit.upstream.transformers.models import UpstreamModel

_GUARD = "# Modification: the kernel bound to this slot, if any; otherwise the upstream code below."


@dataclass(frozen=True)
class Patch:
    """One decorated definition of the patch config.

    Attributes:
        decorator: "override_method", "replace_function" or "replace_class".
        text: the definition, from `def` or `class` on.
    """

    decorator: str
    target: str
    description: str
    text: str


@dataclass(frozen=True)
class PatchSet:
    """Everything that the patch config of a model declares."""

    patches: tuple[Patch, ...]
    slots: tuple[tuple[str, str, str], ...]
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    outputs: tuple[str, ...] = field(default=())


def derive_patches(model: UpstreamModel, sites: Sequence[Site]) -> PatchSet:
    """The patches for the sites that were decided to be patched or adapted."""
    wanted = [site for site in sites if site.decision != "skip"]
    patches = [patch for site in wanted for patch in _patch(model, site, wanted)]
    slots = tuple(SLOTS[name] for name in SLOTS if any(s.site == name and s.decision == "patch" for s in wanted))
    outputs = tuple(name for name in OUTPUTS.values() if any(re.search(rf"\b{name}\b", p.text) for p in patches))
    return PatchSet(tuple(patches), slots, tuple(_imports(model.source, patches)), outputs)


def _patch(model: UpstreamModel, site: Site, sites: Sequence[Site]) -> Iterator[Patch]:
    source = model.source
    if site.site == "rms-norm":
        call = f"veomni_rms_norm({{x}}, self.weight, self.{site.epsilon})"
        yield _guarded_method(source, site, call, "OpSlot guard for the fused RMSNorm")
    elif site.site == "swiglu-mlp":
        yield _guarded_method(source, site, "veomni_swiglu_mlp(self, {x})", "OpSlot guard for the fused SwiGLU MLP")
    elif site.site == "rotary":
        yield _guarded_rotary(source, site)
    elif site.site == "experts":
        yield _guarded_experts(source, site)
    elif site.site == "causal-lm-loss":
        balanced = any(other.site == "load-balancing-loss" for other in sites)
        yield _loss_patch(source, site, balanced)


def _guarded_method(source: SourceFile, site: Site, call: str, description: str) -> Patch:
    class_name, _, method = site.target.rpartition(".")
    node = source.method(class_name, method)
    assert node is not None
    first = node.args.args[1].arg
    text = _with_guard(source, node, call.split("(")[0], call.format(x=first))
    return Patch(
        "override_method", site.target, description, _renamed(text, method, f"{_snake(class_name)}_{method}_patched")
    )


def _guarded_rotary(source: SourceFile, site: Site) -> Patch:
    node = source.functions[site.target]
    q, k, cos, sin, dim = (arg.arg for arg in node.args.args[:5])
    call = f"veomni_apply_rotary_pos_emb({q}, {k}, {cos}, {sin}, {dim}={dim})"
    text = _with_guard(source, node, "veomni_apply_rotary_pos_emb", call)
    return Patch(
        "replace_function",
        site.target,
        "OpSlot guard for the fused RoPE",
        _renamed(text, site.target, f"{site.target}_patched"),
    )


def _guarded_experts(source: SourceFile, site: Site) -> Patch:
    """The experts class with a guard, and without upstream's decorators: they would reroute the forward."""
    node = source.classes[site.target]
    forward = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward")
    names = ", ".join(arg.arg for arg in forward.args.args)
    guard = _guard_lines("veomni_moe_experts_forward", f"veomni_moe_experts_forward({names})", forward)
    text = _edited(source, node, [_Edit.before(body_without_docstring(forward)[0], guard)])
    text = re.sub(rf"^class {site.target}\b", f"class Patched{site.target}", text)
    description = "OpSlot guard for the fused MoE experts; upstream's experts decorator is dropped"
    return Patch("replace_class", site.target, description, text)


def _loss_patch(source: SourceFile, site: Site, balanced: bool) -> Patch:
    class_name, _, method = site.target.rpartition(".")
    node = source.method(class_name, method)
    assert node is not None
    edits = _fused_loss_edits(node) if site.decision == "patch" else _adapted_loss_edits(node)
    call = balancing_call(node)
    if balanced and call is not None:
        edits.append(_balancing_edit(call))
    text = _edited(source, node, edits)
    if site.decision == "patch":
        text = _new_annotation(text, output_class(node))
    description = "VeOmni's loss contract: fused cross entropy through the OpSlot, or its loss function"
    return Patch(
        "override_method", site.target, description, _renamed(text, method, f"{_snake(class_name)}_{method}_patched")
    )


def _fused_loss_edits(node: ast.FunctionDef) -> "list[_Edit]":
    loss, output = read_loss(node), output_call(node)
    assert output is not None
    pad = " " * loss.statements[0].col_offset
    block = _FUSED_LOSS.format(hidden=loss.hidden).replace("hidden_states = hidden_states\n", "")
    lines = [f"{pad}{line}".rstrip() for line in block.strip().splitlines()]
    edits = [_Edit(loss.statements[0].lineno, loss.statements[-1].end_lineno or 0, lines)]
    old, new = output_class(node), OUTPUTS[output_class(node)]
    arguments = [f"{k.arg}={ast.unparse(k.value)}" for k in output.keywords] + ["fused_linear_aux=fused_linear_aux"]
    body = [f"{pad}return {new}(", *(f"{pad}    {argument}," for argument in arguments), f"{pad})"]
    assert old
    return [*edits, _Edit(node.body[-1].lineno, node.body[-1].end_lineno or 0, body)]


def _adapted_loss_edits(node: ast.FunctionDef) -> "list[_Edit]":
    call = read_loss(node).call
    assert call is not None
    pad = " " * call.col_offset
    comment = f"{pad}# Modification: VeOmni's loss function returns (loss, logits, fused_linear_aux)."
    return [
        _Edit(
            call.lineno,
            call.end_lineno or 0,
            [comment, f"{pad}{ast.unparse(call.targets[0])}, _, _ = {ast.unparse(call.value)}"],
        )
    ]


def _balancing_edit(call: ast.Assign) -> "_Edit":
    pad = " " * call.col_offset
    assert isinstance(call.value, ast.Call)
    arguments = [ast.unparse(arg) for arg in call.value.args]
    arguments += [f"{k.arg}={ast.unparse(k.value)}" for k in call.value.keywords]
    inner = ", ".join(arguments)
    lines = [
        "# Modification: the load-balancing kernel bound to this slot, if any.",
        "if veomni_load_balancing_loss.use_non_eager_impl:",
        f"    aux_loss = veomni_load_balancing_loss({inner})",
        "else:",
        f"    aux_loss = load_balancing_loss_func({inner})",
    ]
    return _Edit(call.lineno, call.end_lineno or 0, [pad + line for line in lines])


_FUSED_LOSS = """
# Modification: with labels, the bound kernel or VeOmni's loss function gives (loss, logits, fused_linear_aux) from
# the hidden states; a fused kernel never makes the logits.
hidden_states = {hidden}
loss = None
logits = None
fused_linear_aux = None
if labels is not None:
    if veomni_causal_lm_loss.use_non_eager_impl:
        loss, logits, fused_linear_aux = veomni_causal_lm_loss(
            logits=logits,
            labels=labels,
            vocab_size=self.config.vocab_size,
            hidden_states=hidden_states,
            weights=self.lm_head.weight,
            **kwargs,
        )
    else:
        logits = self.lm_head(hidden_states)
        loss, _, fused_linear_aux = self.loss_function(
            logits=logits,
            labels=labels,
            vocab_size=self.config.vocab_size,
            hidden_states=hidden_states,
            weights=self.lm_head.weight,
            **kwargs,
        )
        if fused_linear_aux is not None:
            logits = None
else:
    logits = self.lm_head(hidden_states)
"""


@dataclass(frozen=True)
class _Edit:
    """Lines `first` to `last` of the file (1-based, inclusive) become `lines`; last < first inserts before `first`."""

    first: int
    last: int
    lines: list[str]

    @staticmethod
    def before(node: ast.stmt, lines: list[str]) -> "_Edit":
        return _Edit(node.lineno, node.lineno - 1, lines)


def _edited(source: SourceFile, node: ast.FunctionDef | ast.ClassDef, edits: Sequence[_Edit]) -> str:
    """The text of a definition without its decorators, edited and dedented."""
    lines = source.text.splitlines()
    last = node.end_lineno or node.lineno
    for edit in sorted(edits, key=lambda e: -e.first):
        lines[edit.first - 1 : edit.last] = edit.lines
        last += len(edit.lines) - (edit.last - edit.first + 1)
    return textwrap.dedent("\n".join(lines[node.lineno - 1 : last])) + "\n"


def _with_guard(source: SourceFile, node: ast.FunctionDef, slot: str, call: str) -> str:
    return _edited(source, node, [_Edit.before(body_without_docstring(node)[0], _guard_lines(slot, call, node))])


def _guard_lines(slot: str, call: str, node: ast.FunctionDef) -> list[str]:
    pad = " " * body_without_docstring(node)[0].col_offset
    return [f"{pad}{_GUARD}", f"{pad}if {slot}.use_non_eager_impl:", f"{pad}    return {call}"]


def _new_annotation(text: str, old: str) -> str:
    return re.sub(rf"(\)\s*->[^:]*)\b{old}\b", rf"\1{OUTPUTS[old]}", text, count=1)


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"^def {old}\b", f"def {new}", text)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _imports(source: SourceFile, patches: Sequence[Patch]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the config must import so that the patched definitions can be read: (module, names), sorted.

    No names means `import module`.
    """
    plain: set[str] = set()
    needed: dict[str, set[str]] = {}
    for name in sorted({name for patch in patches for name in _free_names(patch.text)}):
        imported = source.imports.get(name)
        if name in source.classes or name in source.functions or name in source.constants:
            needed.setdefault(source.module, set()).add(name)
        elif imported is not None and imported.name is None:
            whole, _, last = imported.module.rpartition(".")
            if name == imported.module.split(".")[0]:  # "import torch.nn" binds torch
                plain.add(imported.module)
            elif whole:
                needed.setdefault(whole, set()).add(last if last == name else f"{last} as {name}")
            else:
                plain.add(f"{imported.module} as {name}")
        elif imported is not None:
            shown = imported.name if imported.name == name else f"{imported.name} as {name}"
            needed.setdefault(imported.module, set()).add(shown or name)
    yield from ((module, ()) for module in sorted(plain))
    yield from ((module, tuple(sorted(names))) for module, names in sorted(needed.items()))


def _free_names(text: str) -> set[str]:
    tree = ast.parse(text)
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    stored |= {arg.arg for arg in ast.walk(tree) if isinstance(arg, ast.arg)}
    loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    quoted = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    loaded |= {word for text in quoted if text.isidentifier() for word in [text]}
    return {name for name in loaded - stored if not hasattr(builtins, name)}
