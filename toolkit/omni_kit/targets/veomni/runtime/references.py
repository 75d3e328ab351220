"""Operations of VeOmni's kernel slots, in plain torch and from the definition of each operation.

They take the arguments that VeOmni's kernels take, and nothing else: an integration that passes a slot something that
no kernel knows raises here as it would there.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from omni_kit.targets.veomni.runtime.stand_ins import causal_conv1d, chunk_gated_delta_rule

_IGNORED = -100
Pair = tuple[torch.Tensor, torch.Tensor]


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over the last axis, the division in float32."""
    normed = functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype)
    return normed if weight is None else weight * normed


def centered_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * (1 + weight), all in float32."""
    normed = functional.rms_norm(x.float(), (x.shape[-1],), eps=eps)
    return (normed * (1.0 + weight.float())).to(x.dtype)


def rotary(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
) -> Pair:
    """Turn the first `cos.shape[-1]` channels of q and k, the halves of which are the two parts of each pair.

    Args:
        cos, sin: [batch, tokens, channels]; a head axis is put in at `unsqueeze_dim`.
    """
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return _turned(q, cos, sin), _turned(k, cos, sin)


def full_rotary(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, *rest: Any, **named: Any) -> Pair:
    """Apply `rotary` to whole heads; it takes the same arguments.

    Raises:
        ValueError: the tables are narrower than the heads; real kernels read beyond them.
    """
    if cos.shape[-1] != q.shape[-1]:
        raise ValueError(f"a kernel that turns whole heads of {q.shape[-1]} channels gets tables of {cos.shape[-1]}")
    return rotary(q, k, cos, *rest, **named)


def rotary_vision(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    """Apply `rotary` to [tokens, heads, channels], in float32."""
    cos, sin = cos.unsqueeze(-2).float(), sin.unsqueeze(-2).float()
    return _turned(q.float(), cos, sin).to(q.dtype), _turned(k.float(), cos, sin).to(k.dtype)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    width = cos.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    first, second = turned.chunk(2, dim=-1)
    return torch.cat([turned * cos + torch.cat([-second, first], dim=-1) * sin, kept], dim=-1)


def swiglu_mlp(module: Any, x: torch.Tensor) -> torch.Tensor:
    """down(silu(gate(x)) * up(x)) by the module's own projections."""
    down: torch.Tensor = module.down_proj(functional.silu(module.gate_proj(x)) * module.up_proj(x))
    return down


def experts(module: Any, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return each token's chosen experts, weighted: gate_up_proj [E, 2I, H], down_proj [E, H, I], tokens
    [tokens, H].
    """
    return fused_experts(
        module.num_experts,
        weights,
        chosen,
        x,
        None,
        None,
        module.down_proj,
        module.gate_up_proj,
        getattr(module, "limit", None),
    )


def fused_experts(
    num_experts: int,
    routing_weights: torch.Tensor,
    selected_experts: torch.Tensor,
    hidden_states: torch.Tensor,
    fc1_1_weight: torch.Tensor | None,
    fc1_2_weight: torch.Tensor | None,
    fc2_weight: torch.Tensor,
    fc1_1_2_weight: torch.Tensor | None = None,
    swiglu_limit: float | None = None,
) -> torch.Tensor:
    """Return all experts for all tokens, then the chosen ones: slow, and without any of the usual bookkeeping."""
    if fc1_1_2_weight is not None:
        gate, up = torch.einsum("th,eih->tei", hidden_states, fc1_1_2_weight).chunk(2, dim=-1)
    elif fc1_1_weight is not None and fc1_2_weight is not None:
        gate, up = (torch.einsum("th,eih->tei", hidden_states, weight) for weight in (fc1_1_weight, fc1_2_weight))
    else:
        raise TypeError("fused experts require fc1_1_weight and fc1_2_weight, or fc1_1_2_weight")
    if swiglu_limit is not None:
        gate, up = gate.clamp(max=swiglu_limit), up.clamp(-swiglu_limit, swiglu_limit)
    outputs = torch.einsum("tei,ehi->teh", functional.silu(gate) * up, fc2_weight)
    return _weighted(outputs, selected_experts, routing_weights)


def experts_with_sigmoid(module: Any, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """GPT-OSS: biases, gate and up interleaved, clamps, and (up + 1) * gate * sigmoid(alpha * gate)."""
    inner = torch.einsum("th,ehi->tei", x, module.gate_up_proj) + module.gate_up_proj_bias
    gate, up = inner[..., ::2].clamp(max=module.limit), inner[..., 1::2].clamp(-module.limit, module.limit)
    glu = (up + 1) * gate * torch.sigmoid(module.alpha * gate)
    return _weighted(torch.einsum("tei,eih->teh", glu, module.down_proj) + module.down_proj_bias, chosen, weights)


def _weighted(outputs: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of [tokens, experts, width], the chosen experts' weighted sum, [tokens, width]."""
    picked = outputs.gather(1, chosen.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))
    return (picked * weights.unsqueeze(-1).to(outputs.dtype)).sum(dim=1)


def causal_loss(
    logits: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
    vocab_size: int | None = None,
    hidden_states: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None, None]:
    """Return the mean over the labelled tokens, each foretold by the one before it, in float32."""
    if labels is None:
        raise TypeError("the loss requires labels")
    scores = _scores(logits, hidden_states, weights)
    return _cross_entropy(scores[..., :-1, :], labels[..., 1:]), None, None


def token_loss(
    logits: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
    num_labels: int | None = None,
    hidden_states: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None, None]:
    """Return the mean over the labelled tokens, each at its own place, in float32."""
    if labels is None:
        raise TypeError("the loss requires labels")
    return _cross_entropy(_scores(logits, hidden_states, weights), labels), None, None


def _scores(
    logits: torch.Tensor | None, hidden_states: torch.Tensor | None, weights: torch.Tensor | None
) -> torch.Tensor:
    if hidden_states is not None and weights is not None:
        return functional.linear(hidden_states, weights)
    if logits is None:
        raise TypeError("the loss requires hidden_states and weights, or logits")
    return logits


def _cross_entropy(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.float().flatten(0, -2), labels.flatten(), ignore_index=_IGNORED)


def load_balancing_loss(
    gate_logits: tuple[torch.Tensor, ...],
    num_experts: int,
    top_k: int = 2,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Experts times the sum over them of (share of the choices) * (mean probability), over the tokens of all layers."""
    probabilities = torch.cat([logits.float().softmax(dim=-1) for logits in gate_logits])
    counted = torch.ones(len(gate_logits[0])) if attention_mask is None else attention_mask.flatten()
    counted = counted.to(probabilities).repeat(len(gate_logits))[:, None]
    choices = torch.zeros_like(probabilities).scatter(1, probabilities.topk(top_k).indices, 1.0)
    share, mean = ((counted * tensor).sum(dim=0) / counted.sum() for tensor in (choices, probabilities))
    return num_experts * (share * mean).sum()


class GatedRMSNorm(nn.Module):
    """x / rms(x) * weight * silu(gate), the gate in float32. A slot that holds a class, not a function."""

    def __init__(self, hidden_size: int, eps: float = 1e-6, activation: str = "silu", **options: Any) -> None:
        super().__init__()
        if activation not in ("silu", "swish"):
            raise ValueError(f"no gated norm with activation {activation}")
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=options.get("dtype")))
        self.eps = eps

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Return the norm of `hidden_states` [..., width], scaled by its weight and by the activated gate."""
        return (rms_norm(x, self.weight, self.eps) * functional.silu(gate.float())).to(x.dtype)


def mhc_pre(
    streams: torch.Tensor,
    fn: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    norm_eps: float,
    count: int,
    iterations: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hyper-connections before a layer: how its output spreads, how the streams mix, and its input.

    Args:
        streams: [batch, tokens, count, width].
        fn: [(2 + count) * count, count * width]; base: as many numbers; scale: [3].

    Returns:
        post [..., count]; comb [..., count, count], its columns, then its rows and columns in turn, scaled to sum 1;
        and the streams collapsed, [batch, tokens, width].
    """
    sizes = [count, count, count * count]
    mixed = functional.linear(rms_norm(streams.flatten(2).float(), None, norm_eps), fn.float())
    pre, post, comb = torch.split(mixed, sizes, dim=-1)
    biases = torch.split(base, sizes)
    pre = torch.sigmoid(pre * scale[0] + biases[0]) + eps
    post = 2 * torch.sigmoid(post * scale[1] + biases[1])
    comb = (comb * scale[2] + biases[2]).reshape(*comb.shape[:-1], count, count).softmax(dim=-1) + eps
    for turn in range(2 * iterations - 1):
        comb = comb / (comb.sum(dim=-1 if turn % 2 else -2, keepdim=True) + eps)
    return post, comb, torch.einsum("btn,btnh->bth", pre, streams.float()).to(streams.dtype)


def mhc_post(output: torch.Tensor, residual: torch.Tensor, post: torch.Tensor, comb: torch.Tensor) -> torch.Tensor:
    """Hyper-connections after a layer: its output spread over the streams, and the streams mixed."""
    post, comb = post.to(residual.dtype), comb.to(residual.dtype)
    return torch.einsum("btn,bth->btnh", post, output) + torch.einsum("btmn,btmh->btnh", comb, residual)


def mhc_head(
    streams: torch.Tensor,
    fn: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    norm_eps: float,
    count: int,
    eps: float,
) -> torch.Tensor:
    """Hyper-connections at the end: the streams collapsed, [batch, tokens, width]."""
    mixed = functional.linear(rms_norm(streams.flatten(2).float(), None, norm_eps), fn.float())
    pre = torch.sigmoid(mixed * scale.float() + base.float()) + eps
    return torch.einsum("btn,btnh->bth", pre, streams.float()).to(streams.dtype)


# (operation, variant) of a slot -> what it computes. A slot that is not here cannot be judged, and the report says so.
REFERENCES: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("rms_norm", "standard"): rms_norm,
    ("rms_norm", "unweighted"): rms_norm,
    ("rms_norm", "qwen3_5"): centered_rms_norm,
    ("rms_norm_gated", "standard"): GatedRMSNorm,
    ("rotary_pos_emb", "full"): full_rotary,
    ("rotary_pos_emb", "partial"): rotary,
    ("rotary_pos_emb_vision", "full"): rotary_vision,
    ("swiglu_mlp", "standard"): swiglu_mlp,
    ("moe_experts", "standard"): experts,
    ("moe_experts", "gpt_oss"): experts_with_sigmoid,
    ("cross_entropy_loss", "causal"): causal_loss,
    ("cross_entropy_loss", "seq_cls"): token_loss,
    ("load_balancing_loss", "standard"): load_balancing_loss,
    ("mhc", "pre"): mhc_pre,
    ("mhc", "post"): mhc_post,
    ("mhc", "head"): mhc_head,
    ("causal_conv1d", "standard"): causal_conv1d,
    ("chunk_gated_delta_rule", "standard"): chunk_gated_delta_rule,
}
