"""Seeded changes of upstream, each with the right merged answer, written before the merge was tuned.

A change is a list of replacements in the files of the small library; the answer is a list of replacements in the
config, or the status of the one patch that a person has to look at.
"""

from dataclasses import dataclass

A = "models/a/modeling_a.py"
Edits = list[tuple[str, str]]


@dataclass(frozen=True)
class Seed:
    """One change of upstream.

    Attributes:
        upstream: (old, new) in modeling_a.py; a third entry names another file.
        patch: (old, new) in the config: the right answer.
        conflict: targets that are left to a person; their text stays.
        dropped: targets whose patch goes.
    """

    name: str
    upstream: list[tuple[str, ...]]
    patch: Edits
    conflict: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


_ATTENTION = "    def forward(self, hidden_states, position_embeddings, attention_mask=None, past_key_values=None, cache_position=None):\n        shape"
_OURS = "def attention_forward(self, hidden_states, position_embeddings, attention_mask=None, past_key_values=None, cache_position=None, ranks=None):"

SEEDS = [
    # Renames.
    Seed("local renamed", [("shape = (*hidden", "hidden_shape = (*hidden"), (".view(shape)", ".view(hidden_shape)")],
         [("shape = (*hidden", "hidden_shape = (*hidden"), (".view(shape)", ".view(hidden_shape)")]),
    Seed("local renamed that the patch reads", [("        gate = self", "        gated = self"), ("F.silu(gate)", "F.silu(gated)")],
         [("    gate = self", "    gated = self"), ("fused_silu(gate, up)", "fused_silu(gated, up)")]),
    Seed("parameter renamed", [("    def forward(self, x):\n        gate = self.gate_proj(x)\n        up = self.up_proj(x)",
                                "    def forward(self, hidden):\n        gate = self.gate_proj(hidden)\n        up = self.up_proj(hidden)")],
         [("def mlp_forward(self, x)", "def mlp_forward(self, hidden)"), ("gate_proj(x)", "gate_proj(hidden)"), ("up_proj(x)", "up_proj(hidden)")]),
    Seed("attribute renamed", [("self.up_proj", "self.w3")], [("self.up_proj", "self.w3")]),
    Seed("attribute renamed that the patch's own line reads", [("self.eps", "self.variance_epsilon")], [("self.eps", "self.variance_epsilon")]),
    Seed("attribute renamed in an injected method", [("self.embed", "self.embed_tokens")], [("self.embed", "self.embed_tokens")]),
    Seed("method renamed", [("self.rotary(", "self.rotary_embeddings("), ("def rotary(", "def rotary_embeddings(")], [("self.rotary(", "self.rotary_embeddings(")]),
    Seed("class renamed", [("AAttention", "ASelfAttention")], [("AAttention.forward", "ASelfAttention.forward")]),
    Seed("function renamed", [("apply_rotary", "apply_rotary_pos_emb")], [('"apply_rotary"', '"apply_rotary_pos_emb"'), ("= apply_rotary(", "= apply_rotary_pos_emb(")]),
    Seed("helper renamed that the patch calls", [("rotate_half", "rotate_pairs")], [("rotate_half", "rotate_pairs")]),
    Seed("keyword renamed in a call", [("attention_mask=causal_mask", "mask=causal_mask"),
                                       ("position_embeddings, attention_mask=None, past_key_values=None, cache_position=None):\n        residual",
                                        "position_embeddings, mask=None, past_key_values=None, cache_position=None):\n        residual"),
                                       ("attention_mask=attention_mask, past_key_values=past_key_values, cache_position=cache_position\n        )", "attention_mask=mask, past_key_values=past_key_values, cache_position=cache_position\n        )")],
         [("attention_mask=causal_mask", "mask=causal_mask")]),
    Seed("annotation's class is gone", [("class ADynamicCache(Cache):\n    pass\n\n\n", ""), ("cache: ADynamicCache | None", "cache: Cache | None")],
         [("cache: ADynamicCache | None", "cache: Cache | None"), ("from small.models.a.modeling_a import ADynamicCache", "from small.cache import Cache")]),
    # Signatures.
    Seed("parameter gone", [("            past_key_values=past_key_values,\n            cache_position=cache_position,\n        )", "            past_key_values=past_key_values,\n        )") if False else
                            ("input_ids=None, attention_mask=None, cache: ADynamicCache | None = None, labels=None, cache_position=None, **kwargs", "input_ids=None, attention_mask=None, cache: ADynamicCache | None = None, labels=None, **kwargs"),
                            ("past_key_values=cache, cache_position=cache_position, **kwargs", "past_key_values=cache, **kwargs")],
         [("labels=None, cache_position=None, **kwargs", "labels=None, **kwargs"), ("past_key_values=cache, cache_position=cache_position, **kwargs", "past_key_values=cache, **kwargs")]),
    Seed("parameter new", [("labels=None, cache_position=None, **kwargs", "labels=None, cache_position=None, keep=0, **kwargs"),
                           ("past_key_values=cache, cache_position=cache_position, **kwargs", "past_key_values=cache, cache_position=cache_position, keep=keep, **kwargs")],
         [("labels=None, cache_position=None, **kwargs", "labels=None, cache_position=None, keep=0, **kwargs"),
          ("past_key_values=cache, cache_position=cache_position, **kwargs", "past_key_values=cache, cache_position=cache_position, keep=keep, **kwargs")]),
    Seed("parameter new beside the patch's own", [(_ATTENTION, _ATTENTION.replace("cache_position=None)", "cache_position=None, **kwargs)")),
                                                  ("past_key_values.update(key, value, self.layer_idx)", "past_key_values.update(key, value, self.layer_idx, **kwargs)")],
         [(_OURS, _OURS.replace("ranks=None)", "ranks=None, **kwargs)")), ("value, self.layer_idx)", "value, self.layer_idx, **kwargs)")]),
    Seed("default changed", [("num_experts, top_k=2)", "num_experts, top_k=4)")], [("num_experts, top_k=2)", "num_experts, top_k=4)")]),
    Seed("annotation added", [("def load_balancing(gate_logits,", "def load_balancing(gate_logits: torch.Tensor,")],
         [("def load_balancing(gate_logits,", "def load_balancing(gate_logits: torch.Tensor,"), ("from small.models", "import torch\nfrom small.models")]),
    Seed("return annotation added", [("num_experts, top_k=2):", "num_experts, top_k=2) -> float:")], [("num_experts, top_k=2):", "num_experts, top_k=2) -> float:")]),
    Seed("keyword gone from a callee", [("attention_mask, cache_position=None, past_key_values=None):", "attention_mask, past_key_values=None):", "masking.py"),
                                        ("            attention_mask=attention_mask,\n            cache_position=cache_position,\n            past", "            attention_mask=attention_mask,\n            past")],
         [("        attention_mask=attention_mask,\n        cache_position=cache_position,\n        past", "        attention_mask=attention_mask,\n        past")]),
    # Bodies.
    Seed("cast added", [("probs = F.softmax(scores, dim=-1)", "probs = F.softmax(scores, dim=-1).to(query.dtype)")], [("probs = F.softmax(scores, dim=-1)", "probs = F.softmax(scores, dim=-1).to(query.dtype)")]),
    Seed("keyword added to a call", [("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=-1, dtype=torch.float32)")], [("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=-1, dtype=torch.float32)")]),
    Seed("statement added", [("        cos, sin = position_embeddings\n", "        cos, sin = position_embeddings\n        cos = cos.to(query.dtype)\n")],
         [("    cos, sin = position_embeddings\n", "    cos, sin = position_embeddings\n    cos = cos.to(query.dtype)\n")]),
    Seed("statement gone", [("        if attention_mask is not None:\n            scores = scores + attention_mask\n", "")], [("    if attention_mask is not None:\n        scores = scores + attention_mask\n", "")]),
    Seed("statements reordered", [("        key = self.k_proj(hidden_states).view(shape).transpose(1, 2)\n        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)\n",
                                   "        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)\n        key = self.k_proj(hidden_states).view(shape).transpose(1, 2)\n")],
         []),  # the order does not matter
    Seed("condition changed", [("        if past_key_values is not None:\n            key", "        if past_key_values is not None and self.layer_idx >= 0:\n            key")],
         [("    if past_key_values is not None:\n        key", "    if past_key_values is not None and self.layer_idx >= 0:\n        key")]),
    Seed("branch added", [("            scores = scores + attention_mask\n", "            scores = scores + attention_mask\n        else:\n            scores = scores.tril()\n")],
         [("        scores = scores + attention_mask\n", "        scores = scores + attention_mask\n    else:\n        scores = scores.tril()\n")]),
    Seed("loop changed", [("for layer in self.layers:", "for layer in self.layers[: self.config.num_layers]:")], [("for layer in self.layers:", "for layer in self.layers[: self.config.num_layers]:")]),
    Seed("loop and its body changed", [("for layer in self.layers:", "for index, layer in enumerate(self.layers):"), ("attention_mask=causal_mask,", "attention_mask=causal_mask[index],")],
         [("for layer in self.layers:", "for index, layer in enumerate(self.layers):"), ("attention_mask=causal_mask,", "attention_mask=causal_mask[index],")]),
    Seed("keyword gone beside the patch's own", [("                cache_position=cache_position,\n            )\n        hidden", "            )\n        hidden")], [("            cache_position=cache_position,\n            ranks", "            ranks")]),
    Seed("expression inside a wrapped one", [("rotate_half(k) * sin)\n", "rotate_half(k) * sin.to(k.dtype))\n")], [("rotate_half(k) * sin)\n", "rotate_half(k) * sin.to(k.dtype))\n")]),
    Seed("docstring changed", [('"""Runs the model."""', '"""Runs the whole model."""')], [('"""Runs the model."""', '"""Runs the whole model."""')]),
    Seed("comment changed only", [("        dtype = hidden_states.dtype\n", "        # Norms are computed in float32.\n        dtype = hidden_states.dtype\n")], []),
    Seed("function that no patch touches", [("hidden_states + self.mlp(hidden_states)", "hidden_states + self.mlp(hidden_states).to(hidden_states.dtype)")], []),
    Seed("dict entry added", [('"logits": logits, "cache": cache}', '"logits": logits, "cache": cache, "hidden": hidden_states}')], [('"logits": logits, "cache": cache}', '"logits": logits, "cache": cache, "hidden": hidden_states}')]),
    Seed("result added to a tuple", [("reshape(*hidden_states.shape[:-1], -1)), probs", "reshape(*hidden_states.shape[:-1], -1)), probs, key"),
                                     ("hidden_states, _ = self.self_attn", "hidden_states, _, _ = self.self_attn")], [("reshape(*hidden_states.shape[:-1], -1)), probs", "reshape(*hidden_states.shape[:-1], -1)), probs, key")]),
    # Moves.
    Seed("lines that the patch left split into a helper", [("        cos, sin = position_embeddings\n        query, key = apply_rotary(query, key, cos, sin)\n", "        query, key = self.rotated(query, key, position_embeddings)\n"),
                                    ("class ALayer", "    def rotated(self, query, key, position_embeddings):\n        cos, sin = position_embeddings\n        return apply_rotary(query, key, cos, sin)\n\n\nclass ALayer")],
         [("    cos, sin = position_embeddings\n    query, key = apply_rotary(query, key, cos, sin)\n", "    query, key = self.rotated(query, key, position_embeddings)\n")]),
    Seed("lines that the patch changed split into a helper", [("        out = F.silu(gate) * up\n        return self.down_proj(out)\n", "        return self.joined(gate, up)\n\n    def joined(self, gate, up):\n        out = F.silu(gate) * up\n        return self.down_proj(out)\n")], []),
    Seed("function moved to another module", [("def apply_rotary(q, k, cos, sin):\n    q_embed = (q * cos) + (rotate_half(q) * sin)\n    k_embed = (k * cos) + (rotate_half(k) * sin)\n    return q_embed, k_embed\n\n\n", ""),
                                              ("from ...masking import create_mask", "from ...masking import create_mask\nfrom ...rotary import apply_rotary"),
                                              ("", "import torch\n\n\ndef rotate_half(x):\n    half = x.shape[-1] // 2\n    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)\n\n\ndef apply_rotary(q, k, cos, sin):\n    q_embed = (q * cos) + (rotate_half(q) * sin)\n    k_embed = (k * cos) + (rotate_half(k) * sin)\n    return q_embed, k_embed\n", "rotary.py")],
         [('@config.replace_function("apply_rotary")', 'config.drop_import_names("apply_rotary")\n\n\n@config.add_helper')]),
    Seed("method inherited from another module", [("class AMLP(nn.Module):", "class AMLP(BMLP):"), ("    def forward(self, x):\n        gate = self.gate_proj(x)\n        up = self.up_proj(x)\n        out = F.silu(gate) * up\n        return self.down_proj(out)\n", ""),
                                                  ("from ...masking import create_mask", "from ...masking import create_mask\nfrom ..b.modeling_b import BMLP"),
                                                  ("", "", "models/b/__init__.py"),
                                                  ("", "import torch.nn.functional as F\nfrom torch import nn\n\n\nclass BMLP(nn.Module):\n    def forward(self, x):\n        gate = self.gate_proj(x)\n        up = self.up_proj(x)\n        out = F.silu(gate) * up\n        return self.down_proj(out)\n", "models/b/modeling_b.py")],
         [('@config.override_method("AMLP.forward")', '@config.override_method("AMLP.forward", inject=True)')]),
    Seed("alias of an import gone", [("import torch.nn.functional as F\n", ""), ("F.silu", "nn.functional.silu"), ("F.softmax", "nn.functional.softmax"), ("F.linear", "nn.functional.linear"), ("F.one_hot", "nn.functional.one_hot")],
         [('config.add_import("framework.parallel"', 'config.add_import("torch.nn.functional", alias="F", is_from_import=False)\nconfig.add_import("framework.parallel"')]),
    Seed("patch made unnecessary", [("    return q_embed, k_embed", "    return q_embed.contiguous(), k_embed.contiguous()")], [], dropped=("apply_rotary",)),
    Seed("injected method comes upstream", [("    def rotary(self", "    def dummy_forward(self):\n        return self.rotary(self.embed.weight)\n\n    def rotary(self")], [], dropped=("AModel.dummy_forward",)),
    # What only a person can decide.
    Seed("layers fused", [("        self.gate_proj = nn.Linear(config.hidden_size, config.inner_size)\n        self.up_proj = nn.Linear(config.hidden_size, config.inner_size)\n", "        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.inner_size)\n"),
                          ("        gate = self.gate_proj(x)\n        up = self.up_proj(x)\n", "        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)\n")],
         [("    gate = self.gate_proj(x)\n    up = self.up_proj(x)\n", "    gate, up = self.gate_up_proj(x).chunk(2, dim=-1)\n")]),
    Seed("activation changed where the patch has a kernel", [("F.silu(gate)", "F.gelu(gate)")], [], ("AMLP.forward",)),
    Seed("clamp added where the patch has a kernel", [("out = F.silu(gate) * up", "out = F.silu(gate).clamp(max=7.0) * up")], [], ("AMLP.forward",)),
    Seed("norm computed otherwise", [("hidden_states * torch.rsqrt(variance + self.eps)", "hidden_states * torch.rsqrt(variance + self.eps) * 0.5")], [], ("ANorm.forward",)),
    Seed("loss computed otherwise", [("self.loss_function(logits, labels, self.config.vocab_size, **kwargs)", "self.loss_function(logits.float(), labels, self.config.vocab_size, **kwargs)")], [], ("AForCausalLM.forward",)),
    Seed("attribute gone that the patch reads", [("        self.eps = eps\n", ""), ("variance + self.eps", "variance + 1e-6")], [], ("ANorm.forward",)),
    Seed("result means something else", [("        router_logits = F.linear(hidden_states, self.weight)\n        router_probs = F.softmax(router_logits, dim=-1)\n        top_value, top_index = torch.topk(router_probs,",
                                          "        router_logits = F.softmax(F.linear(hidden_states, self.weight), dim=-1)\n        top_value, top_index = torch.topk(router_logits,")], [], ("AMoE.forward",)),
    Seed("method gone that the patch calls", [("self.rotary(hidden_states)", "(hidden_states, hidden_states)"), ("\n    def rotary(self, hidden_states):\n        return hidden_states, hidden_states\n", "")], [("position_embeddings = self.rotary(hidden_states)", "position_embeddings = (hidden_states, hidden_states)")], ("AModel.dummy_forward",)),
    Seed("argument new that a method needs", [("    def rotary(self, hidden_states):", "    def rotary(self, hidden_states, length):"), ("self.rotary(hidden_states)", "self.rotary(hidden_states, input_ids.shape[1])")], [("self.rotary(hidden_states)", "self.rotary(hidden_states, input_ids.shape[1])")], ("AModel.dummy_forward",)),
    Seed("kernel's line gone", [("        out = F.silu(gate) * up\n        return self.down_proj(out)", "        return self.down_proj(F.silu(gate) * up)")], [], ("AMLP.forward",)),
    Seed("method gone", [("    def forward(self, hidden_states):\n        router_logits = F.linear(hidden_states, self.weight)", "    def route(self, hidden_states):\n        router_logits = F.linear(hidden_states, self.weight)"), ("self.gate(flat)", "self.gate.route(flat)")],
         [("self.gate(flat)", "self.gate.route(flat)")]),
    Seed("both change one line", [("out = torch.matmul(probs, value).transpose(1, 2).contiguous()\n        return self.o_proj(out.reshape(*hidden_states.shape[:-1], -1)), probs",
                                   "out = torch.matmul(probs, value).transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)\n        return self.o_proj(out), probs")],
         [("out = torch.matmul(probs, value).transpose(1, 2).contiguous()", "out = torch.matmul(probs, value).transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)"), ("self.o_proj(out.reshape(*hidden_states.shape[:-1], -1)), probs", "self.o_proj(out), probs")], ("AAttention.forward",)),
]  # fmt: skip
