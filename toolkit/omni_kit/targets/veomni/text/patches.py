"""Derives the patches of a model: upstream's own text with a guard where a kernel fits.

Nothing is written from memory: every patched function is the upstream function, edited at positions that its ast gives.
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from omni_kit.pysource.nodes import without_docstring
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.veomni.text.editing import Edit, edited, renamed, snake, span
from omni_kit.targets.veomni.text.loss import (
    AUX,
    OUTPUTS,
    Loss,
    balancing_calls,
    output_with_aux,
    read_loss,
    standard_block,
    statement_of,
)
from omni_kit.targets.veomni.text.precision import products
from omni_kit.targets.veomni.text.replay import (
    MONITOR,
    called_after,
    called_before,
    choices,
    known_features,
    watched_routers,
)
from omni_kit.targets.veomni.text.sites import SLOTS, Site
from omni_kit.upstream.transformers.models import UpstreamModel

_GENERIC, _CLASSIFIED = "GenericForSequenceClassification", "SequenceClassifierOutputWithPast"
_CLASSIFIER = """def {name}_forward_patched(
    self,
    input_ids=None,
    attention_mask=None,
    position_ids=None,
    past_key_values=None,
    inputs_embeds=None,
    labels=None,
    use_cache=None,
    **kwargs,
):
    given = {{
        "attention_mask": attention_mask,
        "position_ids": position_ids,
        "past_key_values": past_key_values,
        "inputs_embeds": inputs_embeds,
        "use_cache": use_cache,
    }}
{apart}    if labels is None:
        return {generic}.forward(self, input_ids, **given, **kwargs)
    # Modification: VeOmni's labels are those of tokens, and its loss function returns (loss, logits, fused_linear_aux).
    outputs = getattr(self, self.base_model_prefix)(input_ids, **given, **kwargs)
    logits = self.score(outputs.last_hidden_state)
    loss, _, _ = self.loss_function(logits=logits, labels=labels, num_labels=self.num_labels, **kwargs)
    return {output}(
        loss=loss,
        logits=logits,
        past_key_values=outputs.past_key_values,
        hidden_states=outputs.hidden_states,
        attentions=outputs.attentions,
    )
"""
_APART = """
# Modification: upstream's code takes a row for one sequence, so packed samples run as rows of their own.
if {rest}.get("cu_seq_lens_q") is not None:
    return rows_of_their_own(self.forward, {given}, {rest})
"""
_WHOLE = """
# Modification: a state goes from token to token, so the layer runs on each packed sample alone and whole.
if {rest}.get("cu_seq_lens_q") is not None:
    return on_whole_samples(self.forward, {given}, {rest})
"""
_LABELLED = """
# Modification: VeOmni's labels are those of tokens, and its loss function returns (loss, logits, fused_linear_aux).
if labels is not None:
    loss, _, _ = self.loss_function(logits=logits, labels=labels, num_labels=self.num_labels, **{rest})
    return {output}(loss=loss, logits=logits)
"""
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
    """Everything that the patch config of a model declares.

    Attributes:
        functions: module of VeOmni -> the functions of it that patches call.
    """

    patches: tuple[Patch, ...]
    slots: tuple[tuple[str, str, str], ...]
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    outputs: tuple[str, ...] = field(default=())
    functions: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def extended(self, source: SourceFile, patches: Iterable[Patch]) -> "PatchSet":
        """Return the set with further patches, and with what they need imported."""
        whole = (*self.patches, *patches)
        return replace(self, patches=whole, imports=tuple(_imports(source, whole)))


def derive_patches(
    model: UpstreamModel,
    sites: Sequence[Site],
    head: Sequence[Edit] = (),
    *,
    apart: bool = False,
    whole: Sequence[str] = (),
) -> PatchSet:
    """Return the patches for the sites that were decided to be patched or adapted.

    Args:
        head: further edits of the method that holds the loss.
        apart: upstream's code takes packed samples for one sequence, so each runs as a row of its own.
        whole: the classes of layers that run on each packed sample alone and whole.
    """
    wanted = [site for site in sites if site.decision in {"patch", "adapt"}]
    edits = [*head, *(_diverted(model, model.class_name, _APART) if apart else ())]
    patches = [patch for site in wanted for patch in _patch(model, site, wanted, edits)]
    target = f"{model.class_name}.forward"
    if apart and not any(patch.target == target for patch in patches):
        patches.append(_forward_patch(model, model.class_name, edits, "packed samples run as rows of their own"))
    description = "the layer runs on each packed sample alone and whole"
    patches += [_forward_patch(model, name, [*_diverted(model, name, _WHOLE)], description) for name in whole]
    patches += [*_classifiers(model, apart=apart), *_own_initialisation(model)]
    slots = tuple(SLOTS[name] for name in SLOTS if any(s.site == name and s.decision == "patch" for s in wanted))
    named = (*OUTPUTS.values(), AUX)
    outputs = tuple(name for name in named if any(re.search(rf"\b{name}\b", p.text) for p in patches))
    called = {name for patch in patches for name in _free_names(patch.text)}
    functions = [(module, tuple(sorted(names & called))) for module, names in known_features().items()]
    if _CLASSIFIED in called and _CLASSIFIED not in model.source.imports:
        functions.append(("transformers.modeling_outputs", (_CLASSIFIED,)))
    imports = tuple(_imports(model.source, patches))
    return PatchSet(tuple(patches), slots, imports, outputs, tuple(one for one in functions if one[1]))


def plain_classifiers(model: UpstreamModel) -> list[str]:
    """Return the sequence classifiers that are transformers' generic one and nothing more."""
    named = [(name, node) for name, node in model.source.classes.items() if name.endswith("ForSequenceClassification")]
    generic = [name for name, node in named if _GENERIC in {dotted(base) for base in node.bases}]
    return [name for name in generic if name in model.heads and "forward" not in _methods(model.source.classes[name])]


def _methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def _forward_patch(model: UpstreamModel, name: str, edits: Sequence[Edit], description: str) -> Patch:
    """Return the forward of a class with edits."""
    forward = model.source.method(name, "forward")
    assert forward is not None
    text = renamed(edited(model.source, forward, edits), "forward", f"{snake(name)}_forward_patched")
    return Patch("override_method", f"{name}.forward", description, text)


def _diverted(model: UpstreamModel, name: str, guard: str) -> Iterator[Edit]:
    """Yield a guard at the beginning of a forward, if it takes further keywords, as VeOmni's are."""
    forward = model.source.method(name, "forward")
    if forward is None or forward.args.kwarg is None:
        return
    names = [argument.arg for argument in [*forward.args.args[1:], *forward.args.kwonlyargs]]
    block = guard.format(given=_as_dict(names), rest=forward.args.kwarg.arg)
    yield Edit.before(model.source, without_docstring(forward.body)[0], block)


def _as_dict(names: Sequence[str]) -> str:
    """Return a call of dict, one name a line."""
    lines = "".join(f"        {name}={name},\n" for name in names)
    return f"dict(\n{lines}    )"


def _classifiers(model: UpstreamModel, *, apart: bool) -> Iterator[Patch]:
    """VeOmni labels tokens where transformers labels sequences, and its loss function returns three values."""
    description = "VeOmni's loss contract for labels of tokens"
    given = "dict(given, input_ids=input_ids, labels=labels)"
    guard = textwrap.indent(_APART.format(given=given, rest="kwargs").lstrip("\n"), "    ") if apart else ""
    for name in plain_classifiers(model):
        text = _CLASSIFIER.format(name=snake(name), generic=_GENERIC, output=_CLASSIFIED, apart=guard)
        yield Patch("override_method", f"{name}.forward", description, text)
    for name, forward in _own_classifiers(model):
        whole, rest = _logits_of_tokens(forward), forward.args.kwarg
        if whole is not None and rest is not None:
            edit = Edit.after(model.source, whole, _LABELLED.format(rest=rest.arg, output=_CLASSIFIED))
            edits = [edit, *(_diverted(model, name, _APART) if apart else ())]
            yield _forward_patch(model, name, edits, description)


def without_labels_of_tokens(model: UpstreamModel) -> Mapping[str, ast.FunctionDef]:
    """Return the sequence classifiers, with their forwards, without logits of every token: VeOmni cannot train them."""
    return {
        name: forward
        for name, forward in _own_classifiers(model)
        if _logits_of_tokens(forward) is None or forward.args.kwarg is None
    }


def _own_classifiers(model: UpstreamModel) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the sequence classifiers that are not transformers' generic one, with their forwards."""
    plain = plain_classifiers(model)
    for name in model.heads:
        forward = model.source.method(name, "forward") if name.endswith("ForSequenceClassification") else None
        if forward is not None and name not in plain:
            yield name, forward


def _logits_of_tokens(forward: ast.FunctionDef) -> ast.Assign | None:
    """Return the statement `logits = self.head(hidden_states)`, of which upstream takes one token's afterwards."""
    statements = [node for node in forward.body if isinstance(node, ast.Assign)]
    pooled = any(ast.unparse(node).startswith("pooled_logits = logits[") for node in ast.walk(forward))
    heads = [node for node in statements if re.match(r"logits = self\.\w+\(\w+\)$", ast.unparse(node))]
    return heads[0] if pooled and heads else None


def _own_initialisation(model: UpstreamModel) -> Iterator[Patch]:
    """Initialises as upstream's own classes do, where transformers takes what is defined elsewhere for another's code.

    There it passes over modules without parameters of their own, and what `_init_weights` does to their children.
    """
    found = model.source.method(model.class_name, "_init_weights")
    base = next((name for name, node in model.source.classes.items() if found in node.body), "")
    reaches = found is not None and re.search(r"\bmodule(\.\w+){2,}", ast.unparse(found)) is not None
    loader = model.library.root / "modeling_utils.py"
    if not base or not reaches or "is_custom_code" not in loader.read_text(encoding="utf-8"):
        return
    text = f"""def {snake(base)}_initialize_weights_patched(self, module, is_custom_code=False):
    # Modification: generated from upstream's own code, so initialised as that is.
    PreTrainedModel._initialize_weights(self, module)
"""
    description = "initialise children of modules as upstream does"
    yield Patch("override_method", f"{base}._initialize_weights", description, text)


def _patch(model: UpstreamModel, site: Site, sites: Sequence[Site], head: Sequence[Edit]) -> Iterator[Patch]:
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
    elif site.site == "router-replay":
        yield _replayed(source, site)
    elif site.site == "router-precision" and not any(
        other.site == "router-replay" and other.target == site.target for other in sites
    ):
        yield _overridden(source, site, [], "Disable autocast around products in float32")
    elif site.site == "causal-lm-loss":
        balanced = any(other.site == "load-balancing-loss" for other in sites)
        if site.decision == "patch":
            yield from _own_output(source, site)
        yield _loss_patch(source, site, balanced, model.built_config.has("text_config"), head)


def _own_output(source: SourceFile, site: Site) -> Iterator[Patch]:
    """Yield an output class next to upstream's, where VeOmni has none for it."""
    node = source.method(*site.target.split("."))
    name = read_loss(source, node).output if node is not None else ""
    if name and name not in OUTPUTS:
        text = f"""@dataclass
class {output_with_aux(source, name)}({AUX}, {name}):
    \"\"\"Upstream's output, with what a fused loss returns.

    Args:
        fused_linear_aux (`FusedLinearAuxOutput`, *optional*):
            What a fused loss returns beside loss and logits.
    \"\"\"
"""
        yield Patch("add_helper_after", name, "an output that carries what a fused loss returns", text)


def _guarded_method(source: SourceFile, site: Site, call: str, description: str) -> Patch:
    class_name, _, method = site.target.rpartition(".")
    node = source.method(class_name, method)
    assert node is not None
    first = node.args.args[1].arg
    text = _with_guard(source, node, call.split("(")[0], call.format(x=first))
    return Patch(
        "override_method", site.target, description, renamed(text, method, f"{snake(class_name)}_{method}_patched")
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
        renamed(text, site.target, f"{site.target}_patched"),
    )


def _guarded_experts(source: SourceFile, site: Site) -> Patch:
    """Return the experts class with a guard, and without upstream's decorators: they would reroute the forward."""
    node = source.classes[site.target]
    forward = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward")
    names = ", ".join(arg.arg for arg in forward.args.args)
    guard = _guard(source, "veomni_moe_experts_forward", f"veomni_moe_experts_forward({names})", forward)
    text = edited(source, node, [guard])
    text = re.sub(rf"^class {site.target}\b", f"class Patched{site.target}", text)
    description = "OpSlot guard for the fused MoE experts; upstream's experts decorator is dropped"
    return Patch("replace_class", site.target, description, text)


def _replayed(source: SourceFile, site: Site) -> Patch:
    class_name, _, method = site.target.rpartition(".")
    node = source.method(class_name, method)
    assert node is not None
    edits = []
    records = MONITOR in known_features() and site.router[0] not in watched_routers()
    for choice in choices(node):
        if before := called_before(choice):
            edits.append(Edit.before(source, choice.statement, before))
        edits.append(Edit.after(source, choice.statement, called_after(choice, site.router[1], records=records)))
    return _overridden(source, site, edits, "Replay and count the choice of experts")


def _overridden(source: SourceFile, site: Site, edits: Sequence[Edit], description: str) -> Patch:
    """Return a router's method with these edits, its products in float32 out of autocast's reach."""
    class_name, _, method = site.target.rpartition(".")
    node = source.method(class_name, method)
    assert node is not None
    text = edited(source, node, [*edits, *(product.guarded(source) for product in products(node))])
    return Patch(
        "override_method", site.target, description, renamed(text, method, f"{snake(class_name)}_{method}_patched")
    )


def _loss_patch(source: SourceFile, site: Site, balanced: bool, nested: bool, head: Sequence[Edit]) -> Patch:
    class_name, _, method = site.target.rpartition(".")
    node = source.method(class_name, method)
    assert node is not None
    loss, edits = read_loss(source, node), []
    if balanced:
        edits = [_balancing_edit(source, node, call) for call in balancing_calls(node)]
    if site.decision == "patch":
        edits += [*_fused_loss_edits(source, node, loss, nested), *_output_edits(source, loss)]
    else:
        edits += [_adapted_loss_edit(source, node, call) for call in loss.calls]
    text = edited(source, node, [*edits, *head])
    if site.decision == "patch":
        text = _new_annotation(text, loss.output, output_with_aux(source, loss.output))
    description = "VeOmni's loss contract: fused cross entropy through the OpSlot, or its loss function"
    return Patch(
        "override_method", site.target, description, renamed(text, method, f"{snake(class_name)}_{method}_patched")
    )


def _fused_loss_edits(source: SourceFile, node: ast.FunctionDef, loss: Loss, nested: bool) -> Iterator[Edit]:
    """Loss and logits by VeOmni's kernel: for the three statements that most models have, else before lm_head."""
    assert node.args.kwarg is not None
    rest, standard = node.args.kwarg.arg, standard_block(node, loss)
    vocabulary = "self.config.text_config.vocab_size" if nested else "self.config.vocab_size"
    fused = _with_bias(_FUSED_LOSS) if _computes_bias(source, node) else _FUSED_LOSS
    fused = fused.replace("self.config.vocab_size", vocabulary)
    if standard:
        hidden = ast.unparse(loss.heads[0][1])
        names = {"given": "hidden_states", "loss": "loss", "logits": "logits"}
        block = fused.format(hidden=hidden, rest=rest, factor=loss.factor, **names)
        block = block.replace("hidden_states = hidden_states\n", "")
        yield Edit.lines(source, standard[0], standard[-1], block)
        return
    names = {"given": "head_inputs", "loss": "head_loss", "logits": "head_logits"}
    for head, hidden_states in loss.heads:
        block = fused.format(hidden=ast.unparse(hidden_states), rest=rest, factor=loss.factor, **names)
        yield Edit.before(source, statement_of(node, head), block)
        yield Edit.at(source, head, names["logits"])
    for scale in loss.scales:
        yield Edit(span(source, scale.left)[1], span(source, scale)[1], "")
    for call in loss.calls:
        yield Edit.at(source, call, names["loss"])


def _output_edits(source: SourceFile, loss: Loss) -> Iterator[Edit]:
    """Yield the output carries what the kernel returns other than loss and logits."""
    data = source.text.encode()
    for call in loss.outputs:
        yield Edit.at(source, call.func, output_with_aux(source, loss.output))
        end = span(source, call)[1] - 1
        before = data[:end].rstrip(b" \n")
        last = b"\n" in data[len(before) : end]
        pad = " " * (source.lines[(call.end_lineno or call.lineno) - 1].index(")") if last else 0)
        added = "fused_linear_aux=fused_linear_aux"
        text = f"\n{pad}    {added},\n{pad}" if last else f", {added}"
        text = text if before.endswith(b",") or not last else f",{text}"
        yield Edit(len(before), end, text)


def _adapted_loss_edit(source: SourceFile, node: ast.FunctionDef, call: ast.Call) -> Edit:
    statement = statement_of(node, call)
    if isinstance(statement, ast.Assign) and statement.value is call:
        comment = "# Modification: VeOmni's loss function returns (loss, logits, fused_linear_aux)."
        assignment = f"{ast.unparse(statement.targets[0])}, _, _ = {ast.unparse(call)}"
        return Edit.lines(source, statement, statement, f"{comment}\n{assignment}")
    return Edit.at(source, call, f"{ast.unparse(call)}[0]")


def _balancing_edit(source: SourceFile, node: ast.FunctionDef, call: ast.Call) -> Edit:
    slot, statement = "veomni_load_balancing_loss", statement_of(node, call)
    arguments = [ast.unparse(arg) for arg in call.args]
    arguments += [ast.unparse(keyword) for keyword in call.keywords]
    inner = ", ".join(arguments)
    if not isinstance(statement, ast.Assign) or statement.value is not call:
        function = f"({slot} if {slot}.use_non_eager_impl else load_balancing_loss_func)"
        return Edit.at(source, call.func, function)
    target = ast.unparse(statement.targets[0])
    lines = [
        "# Modification: the load-balancing kernel bound to this slot, if any.",
        f"if {slot}.use_non_eager_impl:",
        f"    {target} = {slot}({inner})",
        "else:",
        f"    {target} = load_balancing_loss_func({inner})",
    ]
    return Edit.lines(source, statement, statement, "\n".join(lines))


_FUSED_LOSS = """
# Modification: with labels, the bound kernel or VeOmni's loss function gives (loss, logits, fused_linear_aux) from
# the hidden states; a fused kernel never makes the logits.
{given} = {hidden}
{loss} = None
{logits} = None
fused_linear_aux = None
if labels is not None:
    if veomni_causal_lm_loss.use_non_eager_impl:
        {loss}, {logits}, fused_linear_aux = veomni_causal_lm_loss(
            logits={logits},
            labels=labels,
            vocab_size=self.config.vocab_size,
            hidden_states={given}{factor},
            weights=self.lm_head.weight,
            **{rest},
        )
    else:
        {logits} = self.lm_head({given}){factor}
        {loss}, _, fused_linear_aux = self.loss_function(
            logits={logits},
            labels=labels,
            vocab_size=self.config.vocab_size,
            hidden_states={given}{factor},
            weights=self.lm_head.weight,
            **{rest},
        )
        if fused_linear_aux is not None:
            {logits} = None
else:
    {logits} = self.lm_head({given}){factor}
"""


# For a head whose bias the config decides: kernels and VeOmni's own losses multiply hidden states by its weight alone.
_BIASED = """
    if self.lm_head.bias is not None:  # which a fused loss would leave out
        {logits} = self.lm_head({given}){factor}
        {loss}, _, fused_linear_aux = self.loss_function(
            logits={logits}, labels=labels, vocab_size=self.config.vocab_size, **{rest}
        )
    elif veomni"""


def _with_bias(block: str) -> str:
    return block.replace("\n    if veomni", _BIASED, 1)


def _computes_bias(source: SourceFile, node: ast.FunctionDef) -> bool:
    """Return whether the class of a forward makes its lm_head with a bias that is not a constant."""
    owner = next((one for one in source.classes.values() if node in one.body), None)
    assigned = [one for one in ast.walk(owner) if isinstance(one, ast.Assign)] if owner is not None else []
    heads = [one.value for one in assigned if any(dotted(place) == "self.lm_head" for place in one.targets)]
    keywords = [keyword for head in heads if isinstance(head, ast.Call) for keyword in head.keywords]
    return any(one.arg == "bias" and not isinstance(one.value, ast.Constant) for one in keywords)


def _with_guard(source: SourceFile, node: ast.FunctionDef, slot: str, call: str) -> str:
    return edited(source, node, [_guard(source, slot, call, node)])


def _guard(source: SourceFile, slot: str, call: str, node: ast.FunctionDef) -> Edit:
    block = f"{_GUARD}\nif {slot}.use_non_eager_impl:\n    return {call}"
    return Edit.before(source, without_docstring(node.body)[0], block)


def _new_annotation(text: str, old: str, new: str) -> str:
    return re.sub(rf"(\)\s*->[^:]*)\b{old}\b", rf"\1{new}", text, count=1)


def _imports(source: SourceFile, patches: Sequence[Patch]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the imports that the config needs to read the patched definitions: (module, names), sorted.

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
