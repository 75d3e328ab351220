"""`nn.MultiheadAttention`, whose kernel nobody can choose, becomes a class of the file with the same layers apart."""

import ast

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import chain, statement
from omni_kit.targets.diffusers.porting.visiting import visited, walk

_WRITTEN = "nn.MultiheadAttention"
_OTHERS = ("add_bias_kv", "add_zero_attn")

_PROCESSOR = """
class {name}Processor:
    _attention_backend = None
    _parallel_config = None

    def __call__(self, attn: "{name}", query, key, value, key_padding_mask=None, attn_mask=None, is_causal=False):
        if not attn.batch_first:
            query, key, value = (one.transpose(0, 1) for one in (query, key, value))
        query = attn.to_q(query).unflatten(-1, (attn.heads, -1))
        key = attn.to_k(key).unflatten(-1, (attn.heads, -1))
        value = attn.to_v(value).unflatten(-1, (attn.heads, -1))
        hidden_states = dispatch_attention_fn(
            query,
            key,
            value,
            attn_mask=attn.kept(query, attn_mask, key_padding_mask),
            dropout_p=attn.dropout if attn.training else 0.0,
            is_causal=is_causal and attn_mask is None,
            backend=self._attention_backend,
            parallel_config=self._parallel_config,
        )
        hidden_states = attn.to_out[1](attn.to_out[0](hidden_states.flatten(-2)))
        return hidden_states if attn.batch_first else hidden_states.transpose(0, 1)
"""

_CLASS = '''
class {name}(nn.Module, AttentionModuleMixin):
    """What torch's own MultiheadAttention computes, with its layers apart and a processor."""

    _default_processor_cls = {name}Processor
    _available_processors = [{name}Processor]

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, kdim=None, vdim=None, batch_first=False):
        super().__init__()
        self.heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.to_q = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.to_k = nn.Linear(embed_dim if kdim is None else kdim, embed_dim, bias=bias)
        self.to_v = nn.Linear(embed_dim if vdim is None else vdim, embed_dim, bias=bias)
        self.to_out = nn.ModuleList([nn.Linear(embed_dim, embed_dim, bias=bias), nn.Dropout(0.0)])
        self.set_processor({name}Processor())

    def kept(self, query, attn_mask, key_padding_mask):
        """One mask of two: torch's say where not to look, or what to add."""
        masks = []
        if attn_mask is not None:
            grouped = attn_mask.unflatten(0, (-1, self.heads)) if attn_mask.dim() == 3 else attn_mask
            masks.append(grouped)
        if key_padding_mask is not None:
            masks.append(key_padding_mask[:, None, None, :])
        added = [
            torch.zeros_like(one, dtype=query.dtype).masked_fill(one, float("-inf")) if one.dtype == torch.bool else one
            for one in masks
        ]
        return sum(added[1:], added[0]) if added else None

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        return self.processor(self, query, key, value, key_padding_mask, attn_mask, is_causal), None
'''
# What torch's module calls its parameters -> the layers here.
SPLIT = {"in_proj_weight": "weight", "in_proj_bias": "bias"}
RENAMED = {"q_proj_weight": "to_q.weight", "k_proj_weight": "to_k.weight", "v_proj_weight": "to_v.weight"}
OUT = "out_proj"


def port_multihead(parts: Parts, prefix: str) -> tuple[str, list[tuple[str, str]]]:
    """Put the class into the file where torch's is used, unless authors make that with more than the class has.

    Returns:
        Its name, empty if it is not there; what is left to do, by the definition that has it.
    """
    users = [part for part in parts.parts if any(chain(one) == _WRITTEN for one in walk(part.node))]
    calls = (one for part in users for one in walk(part.node) if isinstance(one, cst.Call))
    if not any(chain(one.func) == _WRITTEN for one in calls):  # torch's own layers may have some within
        return "", []
    name = f"{prefix}MultiheadAttention"
    todo = [
        (part.name, f"replace nn.MultiheadAttention with {asked} by a class with a processor")
        for part in users
        for asked in _asked(part)
    ]
    if todo:
        return "", todo
    for part in users:
        part.node = visited(part.node, _Other(name))
    users[0].before += [statement(text.format(name=name).strip("\n") + "\n") for text in (_PROCESSOR, _CLASS)]
    return name, []


def _asked(part: Part) -> list[str]:
    calls = (node for node in ast.walk(part.definition.node) if isinstance(node, ast.Call))
    return sorted({k.arg for call in calls for k in call.keywords if k.arg in _OTHERS})


class _Other(cst.CSTTransformer):
    def __init__(self, name: str) -> None:
        self.name = name

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:  # noqa: N802
        return cst.Name(self.name) if chain(updated_node) == _WRITTEN else updated_node
