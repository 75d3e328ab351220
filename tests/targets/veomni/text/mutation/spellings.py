"""Spellings of whole lines of Mixtral's attention, routing, rotary embedding and router loss, written by hand.

Each is a line of the function as `ast.unparse` gives it, and what stands there instead. Torch confirms which of them
keep what is computed.
"""

REPEATED = "    key_states = repeat_kv(key, module.num_key_value_groups)\n"
SCORES = "torch.matmul(query, key_states.transpose(2, 3)) * scaling"
MASKED = "        attn_weights = attn_weights + attention_mask\n"
SOFTMAX = "nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)"
MIXED = "torch.matmul(attn_weights, value_states)"
LAST = "attn_output.transpose(1, 2).contiguous()"
LOGITS = "F.linear(hidden_states, self.weight)"
SHARES = "torch.nn.functional.softmax(router_logits.float(), dim=-1)"
CHOSEN = "torch.topk(router_probs, self.top_k, dim=-1)"
SUMMED = "    router_top_value /= router_top_value.sum(dim=-1, keepdim=True)\n"
FLAT = "hidden_states.reshape(-1, self.hidden_dim)"
Q, K = "q * cos + rotate_half(q) * sin", "k * cos + rotate_half(k) * sin"
COS, SIN = "cos.unsqueeze(unsqueeze_dim)", "sin.unsqueeze(unsqueeze_dim)"
JOINED = "torch.cat((-x2, x1), dim=-1)"
ALL_LOGITS = "torch.cat([layer_gate.to(compute_device) for layer_gate in gate_logits], dim=0)"
WEIGHTS = "torch.nn.functional.softmax(concatenated_gate_logits, dim=-1)"
PICKED = "    _, selected_experts = torch.topk(routing_weights, top_k, dim=-1)\n"
ONE_HOT = "torch.nn.functional.one_hot(selected_experts, num_experts)"
TOKENS = "torch.mean(expert_mask.float(), dim=0)"
PROBABILITY = "torch.mean(routing_weights, dim=0)"
LOSS = "torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0))"
SCALED = "overall_loss * num_experts"
GROUPED = "torch.einsum('bgnqd,bgkd->bgnqk', query.unflatten(1, (key.shape[1], -1)), key).flatten(1, 2) * scaling"

KEEPING: dict[str, list[tuple[str, str]]] = {
    "eager_attention_forward": [
        (REPEATED, "    key_states = key.repeat_interleave(module.num_key_value_groups, dim=1)\n"),
        (
            REPEATED,
            "    key_states = key[:, :, None].expand(-1, -1, module.num_key_value_groups, -1, -1).flatten(1, 2)\n",
        ),
        (REPEATED, "    key_states = torch.stack([key] * module.num_key_value_groups, dim=2).flatten(1, 2)\n"),
        (REPEATED, "    key_states = repeat_kv(key, query.shape[1] // key.shape[1])\n"),
        (SCORES, "torch.einsum('bhqd,bhkd->bhqk', query, key_states) * scaling"),
        (SCORES, "torch.matmul(query * scaling, key_states.mT)"),
        (SCORES, "scaling * (query @ key_states.transpose(-1, -2))"),
        (SCORES, "torch.matmul(key_states, query.transpose(2, 3)).transpose(2, 3) * scaling"),
        (SCORES, "(query @ key_states.permute(0, 1, 3, 2)).mul(scaling)"),
        (SCORES, "torch.stack([q @ k.mT for q, k in zip(query.unbind(1), key_states.unbind(1))], dim=1) * scaling"),
        (SCORES, "(query[..., None, :] * key_states[:, :, None]).sum(-1) * scaling"),
        (SCORES, GROUPED),
        (MASKED, "        attn_weights += attention_mask\n"),
        (MASKED, "        attn_weights = torch.add(attn_weights, attention_mask[..., : key_states.shape[-2]])\n"),
        (SOFTMAX, "torch.softmax(attn_weights.float(), -1).type_as(query)"),
        (SOFTMAX, "attn_weights.log_softmax(-1).exp()"),
        (SOFTMAX, "(attn_weights - attn_weights.logsumexp(-1, keepdim=True)).exp()"),
        (SOFTMAX, "attn_weights.sub(attn_weights.amax(-1, keepdim=True)).softmax(-1)"),
        (MIXED, "attn_weights @ value_states"),
        (MIXED, "torch.einsum('bhqk,bhkd->bhqd', attn_weights, value_states)"),
        (MIXED, "(value_states.mT @ attn_weights.mT).mT"),
        (LAST, "attn_output.permute(0, 2, 1, 3)"),
    ],
    "MixtralTopKRouter.forward": [
        (FLAT, "hidden_states.view(-1, hidden_states.shape[-1])"),
        (FLAT, "hidden_states.flatten(0, -2)"),
        (LOGITS, "hidden_states @ self.weight.t()"),
        (LOGITS, "torch.einsum('th,eh->te', hidden_states, self.weight)"),
        (LOGITS, "(self.weight @ hidden_states.T).T"),
        (LOGITS, "F.linear(hidden_states.float(), self.weight.float())"),
        (SHARES, "router_logits.softmax(-1, dtype=torch.float32)"),
        (SHARES, "(router_logits - router_logits.logsumexp(-1, keepdim=True)).exp()"),
        (SHARES, "F.softmax(router_logits, dim=1)"),
        (SHARES, "router_logits.exp() / router_logits.exp().sum(-1, keepdim=True)"),
        (CHOSEN, "router_probs.topk(self.top_k)"),
        (CHOSEN, "torch.topk(router_probs, k=self.top_k, dim=-1, sorted=False)"),
        (CHOSEN, "tuple(one[:, : self.top_k] for one in router_probs.sort(dim=-1, descending=True))"),
        (SUMMED, "    router_top_value = router_top_value / router_top_value.sum(-1, keepdim=True)\n"),
        (SUMMED, "    router_top_value = router_top_value.div(router_top_value.sum(1)[:, None])\n"),
        (SUMMED, "    router_top_value = F.normalize(router_top_value, p=1.0, dim=-1)\n"),
        (SUMMED, "    router_top_value = router_logits.gather(-1, router_indices).softmax(-1)\n"),
    ],
    "apply_rotary_pos_emb": [
        (Q, "(cos * q).add(sin * rotate_half(q))"),
        (Q, "rotate_half(q).mul(sin).add(cos * q)"),
        (Q, "(q * cos) - (-rotate_half(q)) * sin"),
        (K, "torch.stack([k * cos, rotate_half(k) * sin]).sum(0)"),
        (K, "sum((k * cos, rotate_half(k) * sin))"),
        (K, "torch.add(torch.mul(k, cos), torch.mul(rotate_half(k), sin))"),
        (COS, "torch.unsqueeze(cos, dim=unsqueeze_dim)"),
        (COS, "cos[:, None] if unsqueeze_dim == 1 else cos[:, :, None]"),
        (SIN, "torch.stack([sin], dim=unsqueeze_dim)"),
    ],
    "rotate_half": [
        (JOINED, "torch.cat([x2.neg(), x1], -1)"),
        (JOINED, "torch.cat([x1, -x2], dim=-1).roll(x.shape[-1] // 2, -1)"),
        (JOINED, "torch.stack((-x2, x1), dim=-2).flatten(-2)"),
        (JOINED, "torch.hstack([-x2.movedim(-1, 1), x1.movedim(-1, 1)]).movedim(1, -1)"),
    ],
    "load_balancing_loss_func": [
        (ALL_LOGITS, "torch.stack(gate_logits).flatten(0, 1)"),
        (ALL_LOGITS, "torch.concat(gate_logits)"),
        (WEIGHTS, "concatenated_gate_logits.softmax(-1)"),
        (WEIGHTS, "concatenated_gate_logits.log_softmax(-1).exp()"),
        (PICKED, "    selected_experts = routing_weights.topk(top_k).indices\n"),
        (PICKED, "    selected_experts = torch.topk(concatenated_gate_logits, top_k, dim=-1)[1]\n"),
        (PICKED, "    selected_experts = routing_weights.argsort(dim=-1, descending=True)[:, :top_k]\n"),
        (ONE_HOT, "(selected_experts[..., None] == torch.arange(num_experts)).long()"),
        (ONE_HOT, "torch.eye(num_experts)[selected_experts]"),
        (TOKENS, "expert_mask.sum(0) / expert_mask.shape[0]"),
        (TOKENS, "expert_mask.to(torch.float32).mean(dim=0)"),
        (PROBABILITY, "routing_weights.sum(dim=0) / len(routing_weights)"),
        (LOSS, "(router_prob_per_expert[None] * tokens_per_expert).sum((0, 1))"),
        (LOSS, "(router_prob_per_expert * tokens_per_expert.sum(0)).sum()"),
        (SCALED, "num_experts * overall_loss"),
    ],
}
CHANGING: dict[str, list[tuple[str, str]]] = {
    "eager_attention_forward": [
        (SCORES, "torch.matmul(query, key_states.transpose(2, 3))"),
        (SCORES, "torch.matmul(query, key_states.transpose(2, 3)) * scaling * scaling"),
        (SCORES, "30.0 * torch.tanh(torch.matmul(query, key_states.transpose(2, 3)) * scaling / 30.0)"),
        (SCORES, "(torch.matmul(query, key_states.transpose(2, 3)) * scaling).clamp(-2, 2)"),
        (SCORES, "torch.matmul(query, key_states.transpose(2, 3)) * scaling - 0.1 * torch.arange(key.shape[2])"),
        (SCORES, "torch.matmul(nn.functional.normalize(query, dim=-1), key_states.transpose(2, 3)) * scaling"),
        (REPEATED, "    key_states = key.repeat(1, module.num_key_value_groups, 1, 1)\n"),
        (MASKED, "        attn_weights = attn_weights - attention_mask\n"),
        (MASKED, "        attn_weights = attn_weights * 1\n"),
        (MASKED, "        attn_weights = attn_weights.masked_fill(attention_mask < 0, -1e4)\n"),
        (SOFTMAX, "nn.functional.softmax(attn_weights, dim=-2)"),
        (SOFTMAX, "torch.sigmoid(attn_weights)"),
        (SOFTMAX, "attn_weights.exp() / (1 + attn_weights.exp().sum(-1, keepdim=True))"),
        (SOFTMAX, "nn.functional.softmax(attn_weights / 2, dim=-1)"),
        (MIXED, "torch.matmul(attn_weights, value_states) * 2"),
        (MIXED, "torch.matmul(attn_weights.detach(), value_states)"),
        (MIXED, "torch.matmul(attn_weights, value_states) + value_states.mean(2, keepdim=True)"),
        (LAST, "attn_output.transpose(1, 2).flip(2)"),
    ],
    "MixtralTopKRouter.forward": [
        (LOGITS, "F.linear(hidden_states, self.weight) / 2"),
        (LOGITS, "F.linear(hidden_states, self.weight).clamp(max=0.3)"),
        (SHARES, "router_logits.sigmoid()"),
        (SHARES, "torch.nn.functional.softmax(router_logits.float(), dim=0)"),
        (SHARES, "torch.nn.functional.softmax(router_logits.float() * 1.3, dim=-1)"),
        (CHOSEN, "torch.topk(-router_probs, self.top_k, dim=-1)"),
        (CHOSEN, "torch.topk(router_probs, self.top_k - 1, dim=-1)"),
        (SUMMED, ""),
        (SUMMED, "    router_top_value = router_top_value / (router_top_value.sum(-1, keepdim=True) + 0.1)\n"),
        (SUMMED, "    router_top_value = router_top_value / router_top_value.norm(dim=-1, keepdim=True)\n"),
        (SUMMED, SUMMED + "    router_top_value = 2.5 * router_top_value\n"),
        (SUMMED, SUMMED.replace("sum(", "detach().sum(")),
    ],
    "apply_rotary_pos_emb": [
        (Q, "q * cos - rotate_half(q) * sin"),
        (Q, "q * sin + rotate_half(q) * cos"),
        (Q, "(q * cos + rotate_half(q) * sin).to(torch.bfloat16).to(q.dtype)"),
        (K, "k * cos"),
        (K, "0.5 * (k * cos + rotate_half(k) * sin)"),
        (K, "k * cos + rotate_half(q[:, : k.shape[1]]) * sin"),
        (SIN, "sin.unsqueeze(unsqueeze_dim).abs()"),
        (COS, "cos.unsqueeze(unsqueeze_dim).detach() + 0.01"),
    ],
    "rotate_half": [
        (JOINED, "torch.cat((x2, -x1), dim=-1)"),
        (JOINED, "torch.cat((x2, x1), dim=-1)"),
        (JOINED, "torch.stack((-x2, x1), dim=-1).flatten(-2)"),
        (JOINED, "torch.cat((-x1, x2), dim=-1)"),
    ],
    "load_balancing_loss_func": [
        (WEIGHTS, "torch.sigmoid(concatenated_gate_logits)"),
        (WEIGHTS, "torch.nn.functional.softmax(concatenated_gate_logits, dim=0)"),
        (PICKED, PICKED.replace("top_k, dim", "1, dim")),
        (PICKED, PICKED.replace("(routing_weights,", "(-routing_weights,")),
        (TOKENS, "torch.sum(expert_mask.float(), dim=0)"),
        (PROBABILITY, "torch.amax(routing_weights, dim=0)"),
        (LOSS, "torch.sum(tokens_per_expert + router_prob_per_expert.unsqueeze(0))"),
        (LOSS, "torch.sum(tokens_per_expert * router_prob_per_expert.detach()) + 0 * routing_weights.sum()"),
        (LOSS, "torch.mean(tokens_per_expert * router_prob_per_expert.unsqueeze(0))"),
        (SCALED, "overall_loss * num_experts * num_experts"),
        (SCALED, "overall_loss * num_experts / top_k"),
        (SCALED, "overall_loss"),
    ],
}
