"""Attention of QwenImageTransformer2DModel by VeOmni's kernels.

diffusers' own processors stay in charge of projections, norms and rotary embeddings. Only the name
`dispatch_attention_fn`, by which they call a kernel, stands for `Kernel` in them. Nothing in diffusers is changed.

Attention is over whole sequences, also where each process holds a share of the tokens.
"""

import copy
import sys
from types import FunctionType, ModuleType, SimpleNamespace

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .sequence_parallel import SequenceShare

_CALLED = "dispatch_attention_fn"
_OF_TORCH = (None, "eager", "sdpa")  # a model that was not built by VeOmni has none selected


class Kernel:
    """Calls the attention function of a name; what VeOmni's functions read of a module is here.

    Attributes:
        attn_implementation: the name, in ALL_ATTENTION_FUNCTIONS; "eager" and "sdpa" are torch's attention, by
            diffusers' own dispatch.
    """

    is_causal = False
    layer_idx = None

    def __init__(self, attn_implementation: str, share: SequenceShare):
        self.attn_implementation = attn_implementation
        self.config = SimpleNamespace(_attn_implementation=attn_implementation, _pre_quantization_dtype=torch.bfloat16)
        self.share = share

    def __call__(
        self,
        query,
        key,
        value,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        scale=None,
        enable_gqa=False,
        attention_kwargs=None,
        *,
        backend=None,
        parallel_config=None,
    ):
        """Replaces diffusers' `dispatch_attention_fn`: tensors are [batch, tokens, heads, width]."""
        if is_causal:
            raise ValueError("QwenImageTransformer2DModel asks for causal attention, which no denoiser has")

        def attend(query, key, value, attn_mask):
            # Flash attention has no argument for a mask: it would be silently dropped.
            if self.attn_implementation in _OF_TORCH or attn_mask is not None:
                return dispatch_attention_fn(
                    query, key, value, attn_mask, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa
                )
            answer, _ = ALL_ATTENTION_FUNCTIONS[self.attn_implementation](
                self,
                query.transpose(1, 2),
                key.transpose(1, 2),
                value.transpose(1, 2),
                attention_mask=attn_mask,
                scaling=scale,
                dropout=dropout_p,
                is_causal=False,
                skip_ulysses=True,  # heads and tokens are exchanged here
            )
            return answer

        # diffusers' processors pass this only when both sides of attention are sharded.
        if parallel_config is not None and self.share.enabled:
            return self.share.exchanged(attend, query, key, value, attn_mask)
        return attend(query, key, value, attn_mask)


def use_veomni_attention(model, attn_implementation: str, share: SequenceShare) -> None:
    """Gives every attention module of a model a processor that attends through a `Kernel`."""
    kernel = Kernel(attn_implementation, share)
    classes: dict[type, type] = {}
    for module in model.modules():
        processor = getattr(module, "processor", None)
        if processor is None or _CALLED not in getattr(type(processor).__call__, "__code__", _NO_CODE).co_names:
            continue
        adapted = classes.setdefault(type(processor), _adapted(type(processor), kernel))
        processor = copy.copy(processor)
        processor.__class__ = adapted
        module.set_processor(processor)


_NO_CODE = SimpleNamespace(co_names=())


def _adapted(kind: type, kernel: Kernel) -> type:
    """A processor class with upstream's code and another kernel."""
    call = kind.__call__
    # A module of its own: torch.compile looks names up by the module's name, and would find upstream's.
    module = ModuleType(f"{__name__}.{kind.__name__}_{id(kernel)}")
    vars(module).update({**call.__globals__, "__name__": module.__name__, _CALLED: kernel})
    sys.modules[module.__name__] = module
    changed = FunctionType(call.__code__, vars(module), call.__name__, call.__defaults__, call.__closure__)
    changed.__kwdefaults__, changed.__module__ = call.__kwdefaults__, call.__module__
    body = {
        "__call__": changed,
        "attn_implementation": kernel.attn_implementation,
        "config": kernel.config,
        "is_causal": False,
        "layer_idx": None,
        "_parallel_config": kernel.share,
    }
    return type(f"VeOmni{kind.__name__}", (kind,), body)
