"""Places where VeOmni's kernels fit into an upstream model: recognised code is patched, the rest stays, reported.

The slot names and variants are those of VeOmni's OpSlot registry (`veomni.ops`); what each kernel computes was read
there, and decides what may be replaced by it.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

from omni_kit.errors import Refusal
from omni_kit.layout.taxonomy import Memory, pair_orientation
from omni_kit.pysource.classes import ClassRef, FunctionRef
from omni_kit.pysource.eval import UNKNOWN, Unsupported
from omni_kit.pysource.source import dotted, read_source
from omni_kit.targets.veomni.text.attention import asks_registry, attention_difference
from omni_kit.targets.veomni.text.kernels import (
    balancing_difference,
    experts_difference,
    floats,
    mlp_difference,
    norm_difference,
    rotary_difference,
)
from omni_kit.targets.veomni.text.loss import (
    balancing_calls,
    gives_router_logits,
    labels_of_codebooks,
    labels_passed_on,
    length_raised,
    output_with_aux,
    own_loss,
    read_loss,
    recorded_logits,
    shifted_before,
)
from omni_kit.targets.veomni.text.precision import guarded_methods, products
from omni_kit.targets.veomni.text.replay import REPLAY, choices, is_installed, known_features, routing_methods
from omni_kit.targets.veomni.text.routing import Block, returns_logits, routing_block, routing_scheme
from omni_kit.toys.modules import parts, small_model
from omni_kit.upstream.construction import Module, Tensor
from omni_kit.upstream.construction.interpreter import construct
from omni_kit.upstream.kinds import MULTIMODAL, Kind
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.torch.agreement import Difference
from omni_kit.upstream.transformers.autoclasses import CAUSAL_TABLE, IMAGE_TEXT_TABLE, MULTIMODAL_TABLE, auto_table
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import (
    CAUSAL_ENDINGS,
    EXPERT_COUNTS,
    expert_parameters,
    holds_experts,
    profile,
    text_config,
)

SLOTS: Mapping[str, tuple[str, str, str]] = {
    "rms-norm": ("veomni_rms_norm", "rms_norm", "standard"),
    "rotary": ("veomni_apply_rotary_pos_emb", "rotary_pos_emb", "full"),
    "swiglu-mlp": ("veomni_swiglu_mlp", "swiglu_mlp", "standard"),
    "experts": ("veomni_moe_experts_forward", "moe_experts", "standard"),
    "causal-lm-loss": ("veomni_causal_lm_loss", "cross_entropy_loss", "causal"),
    "load-balancing-loss": ("veomni_load_balancing_loss", "load_balancing_loss", "standard"),
}
_SILU = {"silu", "swish"}


@dataclass(frozen=True)
class Site:
    """One place where VeOmni could patch, and what was decided.

    Attributes:
        site: a key of SLOTS; "router", "router-replay", "router-precision" or "attention", for which VeOmni
            has none.
        target: the upstream class, method or function; "" when the model has none.
        decision: "patch", "adapt" (VeOmni's loss signature, its calls after a choice of experts,
            or its guard of products in float32), "upstream"
            (VeOmni's functions take its place without a patch) or "skip".
        epsilon: the attribute of a norm that the kernel takes as its epsilon.
        router: of a choice of experts, the class of the module that makes the logits, and the module as its code says.
        read: what reading it next to the kernel found; empty if the decision rests on something else.
    """

    site: str
    target: str
    decision: str
    reason: str
    evidence: str
    epsilon: str = ""
    router: tuple[str, str] = ("", "")
    read: Literal["", "alike", "different", "unreadable"] = ""


@lru_cache(maxsize=4)
def find_sites(model: UpstreamModel) -> tuple[Site, ...]:
    """Return every site of a text model with its decision, in the order of the source."""
    small, about = small_model(model), profile(model)
    built = {part.class_name: part for part in parts(small)}
    return (
        *_norms(model, built),
        *_rotary(model, about),
        *_mlps(model, built, small.attributes.get("config", [UNKNOWN])[0]),
        *_experts(model, about, built),
        *_routers(model, about, small),
        *_attentions(model, built),
        *_losses(model, small),
    )


@lru_cache(maxsize=4)
def takes_experts(model: UpstreamModel) -> bool:
    """Return whether VeOmni's kernel computes what upstream's loop over the experts does, with the same weights."""
    built = {part.class_name: part for part in parts(small_model(model))}
    return any(site.decision == "patch" for site in _experts(model, profile(model), built))


def _decided(
    site: str, target: str, where: str, computes: str, kernel: str, compare: Callable[[], Difference | str | None]
) -> Site:
    """Return the decision for code that is evaluated next to the kernel.

    Args:
        computes: what the code does where it agrees.
        kernel: what the kernel computes.
    """
    try:
        found = compare()
    except Unsupported as error:
        reason = f"cannot be compared with {kernel}: {_told(error)}"
        return Site(site, target, "skip", reason, where, read="unreadable")
    if found is None:
        return Site(site, target, "patch", f"{computes}, as the kernel does", where, read="alike")
    reason = f"does not compute {kernel}: {found}".removesuffix(": ")
    return Site(site, target, "skip", reason, where, read="different")


def _told(error: Unsupported) -> str:
    """Return the unreadable code, after its line."""
    return f"{error.path.name}:{error.line} {error}" if error.path is not None else str(error)


def _norms(model: UpstreamModel, built: Mapping[str, Module]) -> Iterator[Site]:
    for name, node in model.source.classes.items():
        if not name.endswith("RMSNorm"):
            continue
        forward = _own_method(node, "forward")
        norm = construct(ClassRef(model.source, node), [8], {})
        norm = norm if _is_known(norm) else built.get(name, norm)
        where = model.source.where(forward or node)
        if not norm.unresolved and "weight" not in norm.attributes:
            reason = "has no weight, and the kernel computes weight * norm(x)"
            yield Site("rms-norm", f"{name}.forward", "skip", reason, where)
            continue
        tried = []
        for epsilon in floats(norm) or [""]:
            compare = partial(_norm_difference, norm, forward, epsilon)
            formula = "weight * norm(x)"
            site = _decided("rms-norm", f"{name}.forward", where, f"computes {formula}", formula, compare)
            tried.append(replace(site, epsilon=epsilon))
            if site.decision == "patch":
                break
        yield tried[-1] if tried[-1].decision == "patch" else tried[0]


def _is_known(norm: Module) -> bool:
    """Return whether a norm that was made of a size alone has a weight of that size."""
    weight = norm.attributes.get("weight", [None])[0]
    return isinstance(weight, Tensor) and bool(weight.shape) and None not in (weight.shape or ())


def _norm_difference(norm: Module, forward: ast.FunctionDef | None, epsilon: str) -> Difference | None:
    if forward is None or not epsilon:
        raise Unsupported("has no forward of its own" if forward is None else "has no epsilon")
    return norm_difference(norm, epsilon)


def _rotary(model: UpstreamModel, profile: ModelProfile) -> Iterator[Site]:
    target = "apply_rotary_pos_emb"
    node = model.source.functions.get(target)
    if node is None:
        yield Site("rotary", "", "skip", f"the model defines no {target}", model.source.where(model.source.tree))
        return
    where = model.source.where(node)
    for name in ("partial-rotary", "interleaved-mrope", "mla"):
        if (trait := profile.trait(name)) is not None:
            reason = f"{name}: only a part of each head is rotated, the kernel rotates all of it"
            yield Site("rotary", target, "skip", reason, trait.evidence)
            return
    compare = partial(rotary_difference, FunctionRef(model.source, node))
    kernel = "the half-split rotation of the whole head"
    yield _decided("rotary", target, where, "rotates the whole head in halves", kernel, compare)


def _mlps(model: UpstreamModel, built: Mapping[str, Module], config: Any) -> Iterator[Site]:
    used = {parameter.owner for parameter in model.skeleton.parameters} | _named_classes(model)
    for name, node in model.source.classes.items():
        forward = _own_method(node, "forward")
        if not name.endswith("MLP") or forward is None:
            continue
        target, where = f"{name}.forward", model.source.where(forward)
        if name not in used:
            yield Site("swiglu-mlp", target, "skip", "nothing in the modeling file builds the class", where)
        elif (other := _other_activation(model)) is not None:
            yield Site("swiglu-mlp", target, "skip", *other, read="different")
        else:
            mlp = built.get(name) or construct(ClassRef(model.source, node), [config], {})
            compare = partial(mlp_difference, mlp)
            computes = "computes down(silu(gate(x)) * up(x))"
            yield _decided("swiglu-mlp", target, where, computes, computes.removeprefix("computes "), compare)


def _other_activation(model: UpstreamModel) -> tuple[str, str] | None:
    """Return why a SiLU kernel does not fit, and the evidence; None if it does or nothing is declared."""
    activation = model.config.find("hidden_act", "hidden_activation")
    if activation is None or activation.value in _SILU:
        return None
    return f"the activation is {activation.value}, the kernel computes SiLU", activation.evidence


def _named_classes(model: UpstreamModel) -> set[str]:
    """Return the classes that the modeling file names as values: another config may build those that this one does not.

    A class may be called, or chosen first and called by another name; what is only inherited from is not built.
    """
    nodes = [*ast.walk(model.source.tree)]
    apart = {id(base) for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
    apart |= {id(hint) for node in nodes for hint in _annotations(node)}
    named = (node for node in nodes if isinstance(node, ast.Name | ast.Attribute))
    return {dotted(node) or "" for node in named if isinstance(node.ctx, ast.Load) and id(node) not in apart}


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything in the annotations of a statement or argument."""
    for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        yield from ast.walk(hint) if isinstance(hint, ast.AST) else ()


def _experts(model: UpstreamModel, profile: ModelProfile, built: Mapping[str, Module]) -> Iterator[Site]:
    if profile.experts is None and profile.kind is not Kind.moe:
        return
    stacked = {parameter.name.rpartition(".")[2]: parameter for parameter in expert_parameters(model.skeleton)}
    gate_up, down = stacked.get("gate_up_proj"), stacked.get("down_proj")
    if gate_up is None or down is None:
        held = [parameter for parameter in model.skeleton.patterns().values() if holds_experts(parameter)]
        owner = held[0].owner if held else ""
        leaves = dict.fromkeys(one.name.rpartition(".")[2] for one in held if one.owner == owner)
        reason = "the experts are not stored as gate_up_proj and down_proj"
        reason += f": {owner} holds {', '.join(leaves)}" if held else ""
        where = held[0].where if held else model.source.where(model.source.tree)
        yield Site("experts", owner, "skip", reason, where)
        return
    name = gate_up.owner
    if profile.experts is None:
        single = next(iter(filter(None, map(text_config(model).find, EXPERT_COUNTS))), None)
        reason = "the config does not have several experts: decide fused experts on a config that has them"
        yield Site("experts", name, "skip", reason, single.evidence if single is not None else gate_up.where)
        return
    node = model.source.classes.get(name)
    forward = _own_method(node, "forward") if node is not None else None
    where = model.source.where(forward) if forward is not None else gate_up.where
    shapes = [tuple(d or 0 for d in parameter.shape or ()) for parameter in (gate_up, down)]
    experts = built.get(name)
    if shapes[0][0] != shapes[1][0]:
        reason = f"{shapes[0][0]} of gate_up_proj are stacked and {shapes[1][0]} of down_proj, the kernel takes as many"
        yield Site("experts", name, "skip", reason, down.where)
    elif pair_orientation(shapes[0], shapes[1]) is not Memory.canonical:
        yield Site("experts", name, "skip", "the weights are not [E, 2I, H] and [E, H, I] in memory", gate_up.where)
    elif forward is None or experts is None:
        yield Site("experts", name, "skip", "the class has no forward of its own in the modeling file", where)
    elif (other := _other_activation(model)) is not None:
        yield Site("experts", name, "skip", *other, read="different")
    else:
        kernel = "weight * down(silu(gate(x)) * up(x)) per expert"
        computes = "sums weight * down(silu(gate(x)) * up(x)) over [E, 2I, H] and [E, H, I]"
        computes += ", clamped at its limit" if "limit" in experts.attributes else ""
        yield _decided("experts", name, where, computes, kernel, partial(experts_difference, experts))


def _routing_blocks(model: UpstreamModel, small: Module) -> Iterator[Block]:
    held = [parameter for parameter in model.skeleton.patterns().values() if holds_experts(parameter)]
    for owner in dict.fromkeys(parameter.owner for parameter in held):
        if (block := routing_block(small, owner)) is not None:
            yield block


def _routers(model: UpstreamModel, profile: ModelProfile, small: Module) -> Iterator[Site]:
    """Yield the routers of tokens to experts: reported, and never patched."""
    for block in _routing_blocks(model, small):
        own = block.router if block.router.cls is not None else block.module
        found = own.cls.method("forward") if own.cls is not None else None
        where = found[0].source.where(found[1]) if found is not None else model.source.where(model.source.tree)
        try:
            scheme = routing_scheme(block)
            told = f"by {scheme.told}" if scheme is not None else "by a rule of its own"
        except Unsupported as error:
            told = f"by a rule that cannot be compared ({_told(error)})"
        reason = f"VeOmni has no slot for routers: upstream's code is kept; it weighs experts {told}"
        yield Site("router", own.class_name, "skip", reason, where)
        yield from _replayed(model, block)
        yield from _guarded(model, block)
        return
    if profile.kind is Kind.moe:
        reason = "VeOmni has no slot for routers: upstream's code is kept, and no module was found that calls experts"
        yield Site("router", "", "skip", reason, profile.kind_evidence)


def _replayed(model: UpstreamModel, block: Block) -> Iterator[Site]:
    """Yield where experts are chosen, for VeOmni's calls after it; none if the installed VeOmni lacks them."""
    owners = [block.router.class_name, block.module.class_name]
    decision, reason = "adapt", "VeOmni replays an earlier choice of experts, and counts how often each is chosen"
    if not is_installed():
        decision = "skip"
        reason = "VeOmni is not installed, so its support for router replay is unknown: upstream's code is kept"
    elif REPLAY not in known_features():
        return
    for owner, method in routing_methods(model.source, owners):
        held = next((name for name, found in block.module.attributes.items() if block.router in found), "")
        # A router of torch's own class cannot be distinguished from other layers by its class, as VeOmni tells it.
        apart = owner != block.router.class_name and held and block.router.class_name in model.source.classes
        name, known = (f"self.{held}", block.router.class_name) if apart else ("self", owner)
        where = model.source.where(choices(method)[0].statement)
        target = f"{owner}.{method.name}"
        yield Site("router-replay", target, decision, reason, where, router=(known, name))


def _guarded(model: UpstreamModel, block: Block) -> Iterator[Site]:
    """Yield the methods that multiply in float32 where autocast would lower it."""
    for owner, method in guarded_methods(model.source, [block.router.class_name, block.module.class_name]):
        reason = "upstream multiplies in float32, which autocast would lower"
        where = model.source.where(products(method)[0].statement)
        yield Site("router-precision", f"{owner}.{method.name}", "adapt", reason, where)


def _attentions(model: UpstreamModel, built: Mapping[str, Module]) -> Iterator[Site]:
    """Yield the classes that attend: VeOmni's functions are called where they take theirs from transformers' table."""
    for name, node in model.source.classes.items():
        forward = _own_method(node, "forward")
        if name not in built or forward is None:
            continue
        target, where = f"{name}.forward", model.source.where(forward)
        if asks_registry(node):
            computes = "computes the same attention through transformers' attention interface"
            kernel = "what VeOmni's attention functions compute"
            compare = partial(attention_difference, built[name])
            site = _decided("attention", target, where, computes, kernel, compare)
            yield replace(site, decision="upstream") if site.decision == "patch" else site
        elif name.endswith("Attention"):
            reason = (
                "takes no function from transformers' registry, where VeOmni registers its own: upstream's code is kept"
            )
            yield Site("attention", target, "skip", reason, where)


def causal_head(model: UpstreamModel) -> str | None:
    """Return the class that answers in tokens of text: the model's own, else the first of its file."""
    media = profile(model).kind in MULTIMODAL
    tables = (CAUSAL_TABLE, IMAGE_TEXT_TABLE, MULTIMODAL_TABLE) if media else (CAUSAL_TABLE,)
    known = {name for table in tables for name in auto_table(model.library, table).values()}
    names = (model.class_name, *model.heads)
    return next((name for name in names if name.endswith(CAUSAL_ENDINGS) or name in known), None)


def refuse_without_loss(model: UpstreamModel) -> None:
    """Raise unless the forward of the model's class makes a loss from labels: by the loss function, or its own.

    Raises:
        Refusal: it makes none; with the line of the forward, or of the call that gets the labels instead.
    """
    found, name = model.source.resolve_class(model.class_name), model.class_name
    forward = ClassRef(*found).method("forward") if found is not None else None
    if forward is None:
        where = model.source.where(model.source.classes[name])
        part = trained_part(model)
        help_ = f"pass its part that has one: {part}" if part else ""
        raise Refusal(
            f"{name} ({where}) has no forward: {f'train its part {part}' if part else 'nothing to train by'}", help_
        )
    cls, node = forward
    if (labels := labels_of_codebooks(node)) is not None:
        raise Refusal(
            f"{name}.forward reads `{ast.unparse(labels)}` ({cls.source.where(labels)}): VeOmni's labels have one "
            "token at each position, and no codebooks"
        )
    if (test := length_raised(cls.source.tree)) is not None:
        raise Refusal(
            f"upstream raises in training where `{ast.unparse(test.test)}` ({cls.source.where(test)}): VeOmni's packs "
            "have any length"
        )
    if (call := shifted_before(cls.source, node)) is not None:
        raise Refusal(
            f"{name}.forward shifts labels, and the loss function that it calls ({cls.source.where(call)}) shifts them "
            "again: upstream trains on the token after the next one, across samples"
        )
    if read_loss(cls.source, node).calls or own_loss(node) is not None:
        return
    if (call := labels_passed_on(node)) is not None:
        raise Refusal(
            f"{name}.forward passes labels to {ast.unparse(call.func)} ({cls.source.where(call)}), which computes the "
            "loss: VeOmni's loss replaces one in the class's own forward"
        )
    where = cls.source.where(node)
    if "labels" not in {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}:
        raise Refusal(f"{name}.forward ({where}) takes no labels: VeOmni trains by them")
    raise Refusal(f"no loss from labels was recognised in {name}.forward ({where}): there is nothing to train by")


def trained_part(model: UpstreamModel) -> str:
    """Return the model_type of the first part whose own forward takes labels, as an omni model's thinker, or ""."""
    return next((kind for _, part, kind in model.skeleton.submodels if kind and _takes_labels(model, part)), "")


def _takes_labels(model: UpstreamModel, part: str) -> bool:
    forward = model.source.method(part, "forward") if part in model.source.classes else None
    return forward is not None and any(one.arg == "labels" for one in forward.args.args)


def _losses(model: UpstreamModel, small: Module) -> Iterator[Site]:
    name = causal_head(model)
    node = model.source.classes.get(name) if name else None
    forward = _own_method(node, "forward") if node is not None else None
    if name is None or forward is None:
        reason = "the file has no causal head with a forward of its own"
        yield Site("causal-lm-loss", "", "skip", reason, model.source.where(model.source.tree))
        return
    target, loss = f"{name}.forward", read_loss(model.source, forward)
    has_bias = any(p.name == "lm_head.bias" for p in model.skeleton.parameters)
    if loss.fusible and not has_bias and output_with_aux(model.source, loss.output):
        reason = "logits come straight from lm_head, so the fused loss may skip them"
        if loss.factor:
            reason = f"logits are lm_head's{loss.factor}: the fused loss takes hidden states scaled so, and skips them"
        yield Site("causal-lm-loss", target, "patch", reason, model.source.where(loss.calls[-1]))
    elif loss.calls:
        reason = loss.obstacle
        if loss.fusible:
            reason = "lm_head has a bias" if has_bias else f"VeOmni has no {loss.output} with log-probs"
        reason += ": only the signature of VeOmni's loss function is adopted"
        yield Site("causal-lm-loss", target, "adapt", reason, model.source.where(loss.calls[0]))
    else:
        own = own_loss(forward)
        reason = "upstream's own cross-entropy is kept" if own is not None else "no loss from labels was found"
        yield Site("causal-lm-loss", target, "skip", reason, model.source.where(own or forward))
    yield from _balancing(model, target, forward, small)


def _balancing(model: UpstreamModel, target: str, forward: ast.FunctionDef, small: Module) -> Iterator[Site]:
    calls = balancing_calls(forward)
    if not calls:
        return
    where = model.source.where(calls[0])
    if not gives_router_logits(model.source, forward):
        reason = "nothing in this file gives the model's output router_logits: upstream cannot compute it either"
        yield Site("load-balancing-loss", target, "skip", reason, where)
        return
    own = model.source.functions.get("load_balancing_loss_func")
    file = model.library.module_file("transformers.models.mixtral.modeling_mixtral")
    standard = read_source(model.library, file) if file is not None else None
    loss = standard.functions.get("load_balancing_loss_func") if standard is not None else None
    if own is None or standard is None or loss is None:
        reason = "there is no load_balancing_loss_func here, or none in Mixtral to compare it with"
        yield Site("load-balancing-loss", target, "skip", reason, where)
        return
    compare = partial(balancing_difference, FunctionRef(model.source, own), FunctionRef(standard, loss))
    computes = f"load_balancing_loss_func computes transformers' standard loss{_over(model, small)}"
    yield _decided("load-balancing-loss", target, where, computes, "the load-balancing loss of Mixtral", compare)


def _over(model: UpstreamModel, small: Module) -> str:
    """Return the tensor that the load-balancing loss is computed over; empty if unknown."""
    recorded = recorded_logits(model.source)
    routers = {part.class_name: part for part in parts(small)}
    if recorded is None or recorded[0] not in routers:
        return ""
    name, index = recorded
    try:
        raw = returns_logits(routers[name], index)
    except Unsupported:
        return ""
    return " over raw router logits" if raw else f" over what {name} returns, which are not raw logits"


def _own_method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)
