"""Where VeOmni's kernels fit into an upstream model: recognised code is patched, the rest is left alone and said.

The slot names and variants are those of VeOmni's OpSlot registry (`veomni.ops`); what each kernel computes was read
there, and decides what may be replaced by it.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.layout.taxonomy import Memory, pair_orientation
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.match import match_function
from omni_kit.pysource.source import dotted, read_source
from omni_kit.targets.veomni.text.loss import OUTPUTS, balancing_call, output_class, own_loss, read_loss
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.transformers.autoclasses import CAUSAL_TABLE, auto_table
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import CAUSAL_ENDINGS, expert_parameters

SLOTS: Mapping[str, tuple[str, str, str]] = {
    "rms-norm": ("veomni_rms_norm", "rms_norm", "standard"),
    "rotary": ("veomni_apply_rotary_pos_emb", "rotary_pos_emb", "full"),
    "swiglu-mlp": ("veomni_swiglu_mlp", "swiglu_mlp", "standard"),
    "experts": ("veomni_moe_experts_forward", "moe_experts", "standard"),
    "causal-lm-loss": ("veomni_causal_lm_loss", "cross_entropy_loss", "causal"),
    "load-balancing-loss": ("veomni_load_balancing_loss", "load_balancing_loss", "standard"),
}
_SILU = {"silu", "swish"}

_RMS_NORM = """
def forward(self, x):
    dtype = x.dtype
    x = x.to(torch.float32)
    variance = x.pow(2).mean(-1, keepdim=True)
    x = x * torch.rsqrt(variance + self.EPS)
    return self.weight * x.to(dtype)
"""
_SWIGLU = (
    """
def forward(self, x):
    y = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
    return y
""",
    """
def forward(self, x):
    return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
""",
)
_ROTARY = """
def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    a = (q * cos) + (rotate_half(q) * sin)
    b = (k * cos) + (rotate_half(k) * sin)
    return a, b
"""
_ROTATE_HALF = """
def rotate_half(x):
    a = x[..., : x.shape[-1] // 2]
    b = x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)
"""
_EXPERTS = """
def forward(self, hidden_states, top_k_index, top_k_weights):
    final = torch.zeros_like(hidden_states)
    with torch.no_grad():
        mask = torch.nn.functional.one_hot(top_k_index, num_classes=self.num_experts)
        mask = mask.permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for index in hit:
        index = index[0]
        if index == self.num_experts:
            continue
        position, token = torch.where(mask[index])
        current = hidden_states[token]
        gate, up = nn.functional.linear(current, self.gate_up_proj[index]).chunk(2, dim=-1)
        state = self.act_fn(gate) * up
        state = nn.functional.linear(state, self.down_proj[index])
        state = state * top_k_weights[token, position, None]
        final.index_add_(0, token, state.to(final.dtype))
    return final
"""


@dataclass(frozen=True)
class Site:
    """One place where VeOmni could patch, and what was decided.

    Attributes:
        site: a key of SLOTS.
        target: the upstream class, method or function; "" when the model has none.
        decision: "patch", "adapt" (only to VeOmni's loss signature) or "skip".
    """

    site: str
    target: str
    decision: str
    reason: str
    evidence: str


def find_sites(model: UpstreamModel, profile: ModelProfile) -> list[Site]:
    """Every site of a text model with its decision, in the order of the source."""
    return [
        *_norms(model),
        *_rotary(model, profile),
        *_mlps(model),
        *_experts(model, profile),
        *_losses(model),
    ]


def _norms(model: UpstreamModel) -> Iterator[Site]:
    for name, node in model.source.classes.items():
        if not name.endswith("RMSNorm"):
            continue
        forward = _own_method(node, "forward")
        where = model.source.where(forward or node)
        if forward is not None and match_function(forward, _RMS_NORM) is not None:
            yield Site("rms-norm", f"{name}.forward", "patch", "computes weight * norm(x), as the kernel does", where)
        else:
            reason = "not the standard weight * norm(x): the kernel would compute something else"
            yield Site("rms-norm", f"{name}.forward", "skip", reason, where)


def _rotary(model: UpstreamModel, profile: ModelProfile) -> Iterator[Site]:
    target = "apply_rotary_pos_emb"
    node = model.source.functions.get(target)
    if node is None:
        yield Site("rotary", "", "skip", f"the model defines no {target}", model.source.where(model.source.tree))
        return
    where = model.source.where(node)
    half = model.source.functions.get("rotate_half")
    for name in ("partial-rotary", "interleaved-mrope", "mla"):
        if (trait := profile.trait(name)) is not None:
            reason = f"{name}: only a part of each head is rotated, the kernel rotates all of it"
            yield Site("rotary", target, "skip", reason, trait.evidence)
            return
    if match_function(node, _ROTARY) is None or half is None or match_function(half, _ROTATE_HALF) is None:
        yield Site("rotary", target, "skip", "not the standard half-split rotation of the whole head", where)
    else:
        yield Site("rotary", target, "patch", "rotates the whole head in halves, as the kernel does", where)


def _mlps(model: UpstreamModel) -> Iterator[Site]:
    used = {parameter.owner for parameter in model.skeleton.parameters} | _built_classes(model)
    for name, node in model.source.classes.items():
        forward = _own_method(node, "forward")
        if not name.endswith("MLP") or forward is None:
            continue
        target, where = f"{name}.forward", model.source.where(forward)
        activation = model.config.find("hidden_act", "hidden_activation")
        if all(match_function(forward, pattern) is None for pattern in _SWIGLU):
            yield Site("swiglu-mlp", target, "skip", "not down(act(gate(x)) * up(x))", where)
        elif activation is None or activation.value not in _SILU:
            shown = activation.value if activation else "unknown"
            reason = f"the activation is {shown}, the kernel computes SiLU"
            yield Site("swiglu-mlp", target, "skip", reason, activation.evidence if activation else where)
        elif name not in used:
            yield Site("swiglu-mlp", target, "skip", "no layer of this config builds the class", where)
        else:
            yield Site("swiglu-mlp", target, "patch", "computes down(silu(gate(x)) * up(x)), as the kernel does", where)


def _built_classes(model: UpstreamModel) -> set[str]:
    """Classes that the modeling file calls anywhere: a toy of another config may build what this one does not."""
    return {dotted(n.func) or "" for n in ast.walk(model.source.tree) if isinstance(n, ast.Call)}


def _experts(model: UpstreamModel, profile: ModelProfile) -> Iterator[Site]:
    if profile.experts is None:
        return
    stacked = {parameter.name.rpartition(".")[2]: parameter for parameter in expert_parameters(model.skeleton)}
    gate_up, down = stacked.get("gate_up_proj"), stacked.get("down_proj")
    if gate_up is None or down is None:
        evidence = model.source.where(model.source.tree)
        yield Site("experts", "", "skip", "the experts are not held as gate_up_proj and down_proj", evidence)
        return
    name = gate_up.owner
    node = model.source.classes.get(name)
    forward = _own_method(node, "forward") if node is not None else None
    where = model.source.where(forward) if forward is not None else gate_up.where
    shapes = [tuple(d or 0 for d in parameter.shape or ()) for parameter in (gate_up, down)]
    if pair_orientation(shapes[0], shapes[1]) is not Memory.canonical:
        yield Site("experts", name, "skip", "the weights are not [E, 2I, H] and [E, H, I] in memory", gate_up.where)
    elif forward is None or match_function(forward, _EXPERTS) is None:
        yield Site(
            "experts", name, "skip", "not act(gate) * up per expert: the fused kernel would drop something", where
        )
    elif (act := model.config.find("hidden_act", "hidden_activation")) is None or act.value not in _SILU:
        yield Site("experts", name, "skip", "the fused kernel computes SiLU only", act.evidence if act else where)
    else:
        yield Site("experts", name, "patch", "the standard expert loop over [E, 2I, H] and [E, H, I]", where)


def causal_head(model: UpstreamModel) -> str | None:
    """The class that answers in tokens of text: the model's own, else the first of its file."""
    known = auto_table(model.library, CAUSAL_TABLE).values()
    names = (model.class_name, *model.heads)
    return next((name for name in names if name.endswith(CAUSAL_ENDINGS) or name in known), None)


def answers_with_a_loss(model: UpstreamModel) -> bool:
    """Whether the forward of the model's class makes a loss from labels: by the loss function, or its own."""
    found = model.source.resolve_class(model.class_name)
    forward = ClassRef(*found).method("forward") if found is not None else None
    return forward is not None and (read_loss(forward[1]).call is not None or own_loss(forward[1]) is not None)


def _losses(model: UpstreamModel) -> Iterator[Site]:
    name = causal_head(model)
    node = model.source.classes.get(name) if name else None
    forward = _own_method(node, "forward") if node is not None else None
    if name is None or forward is None:
        reason = "the file has no causal head with a forward of its own"
        yield Site("causal-lm-loss", "", "skip", reason, model.source.where(model.source.tree))
        return
    target, loss = f"{name}.forward", read_loss(forward)
    has_bias = any(p.name == "lm_head.bias" for p in model.skeleton.parameters)
    if loss.fusible and not has_bias and output_class(forward) in OUTPUTS:
        reason = "logits come straight from lm_head, so the fused loss may skip them"
        yield Site("causal-lm-loss", target, "patch", reason, model.source.where(loss.statements[-1]))
    elif loss.call is not None:
        reason = "the logits are changed between lm_head and the loss"
        if loss.fusible:
            reason = "lm_head has a bias" if has_bias else f"VeOmni has no {output_class(forward)} with log-probs"
        reason += ": only the signature of VeOmni's loss function is adopted"
        yield Site("causal-lm-loss", target, "adapt", reason, model.source.where(loss.call))
    else:
        own = own_loss(forward)
        reason = "upstream's own cross-entropy stays" if own is not None else "no loss from labels was found"
        yield Site("causal-lm-loss", target, "skip", reason, model.source.where(own or forward))
    yield from _balancing(model, target, forward)


def _balancing(model: UpstreamModel, target: str, forward: ast.FunctionDef) -> Iterator[Site]:
    call = balancing_call(forward)
    if call is None:
        return
    where = model.source.where(call)
    if _standard_balancing(model):
        reason = "load_balancing_loss_func is transformers' standard one, over raw router logits"
        yield Site("load-balancing-loss", target, "patch", reason, where)
    else:
        yield Site("load-balancing-loss", target, "skip", "load_balancing_loss_func differs from Mixtral's", where)


def _standard_balancing(model: UpstreamModel) -> bool:
    own = model.source.functions.get("load_balancing_loss_func")
    file = model.library.module_file("transformers.models.mixtral.modeling_mixtral")
    if own is None or file is None:
        return False
    standard = read_source(model.library, file).functions.get("load_balancing_loss_func")
    return standard is not None and match_function(own, ast.unparse(standard)) is not None


def _own_method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)
