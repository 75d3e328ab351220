"""WanTransformer3DModel on SGLang's BaseDiT: diffusers' own modules and parameter names, attention by SGLang's backends."""

import copy
import inspect
from functools import partial
from types import FunctionType, SimpleNamespace

import torch
from accelerate import init_empty_weights
from diffusers import WanTransformer3DModel
from sglang.multimodal_gen.runtime.distributed import (
    get_sp_parallel_rank,
    get_sp_world_size,
    sequence_model_parallel_all_gather,
)
from sglang.multimodal_gen.runtime.layers.attention.layer import LocalAttention, USPAttention
from sglang.multimodal_gen.runtime.managers.memory_managers.layerwise_offload import LayerwiseOffloadableModuleMixin
from sglang.multimodal_gen.runtime.models.dits.base import BaseDiT

_DISPATCHED, _OF_TORCH = "dispatch_attention_fn", "scaled_dot_product_attention"  # as diffusers' processors attend
_NO_CODE = SimpleNamespace(co_names=())


class Attention:
    """Stands where diffusers' processors call a kernel; one layer of SGLang for each shape of heads.

    Where processors say that tokens are shared between devices, USPAttention exchanges them for heads.
    """

    def __init__(self, backends):
        self.backends = backends
        self.layers: dict[tuple, LocalAttention] = {}

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
        """Tensors are [batch, tokens, heads, width], as diffusers and SGLang have them."""
        if is_causal or dropout_p:
            raise ValueError("WanTransformer3DModel asks for causal attention or dropout, which no denoiser has")
        is_cross_attention = query.shape[1] != key.shape[1]
        shape = (query.shape[2], key.shape[2], query.shape[3], scale, is_cross_attention)
        is_shared = parallel_config is not None
        if is_shared and attn_mask is not None:
            attn_mask = _of_keys(attn_mask, key.shape[1])
        return self.layer(*shape, is_shared)(query, key, value, attn_mask)

    def layer(self, heads, key_heads, width, scale=None, is_cross_attention=False, is_shared=False):
        """The layer for a shape; SGLang selects its backend on first use."""
        known = (heads, key_heads, width, scale, is_cross_attention, is_shared)
        if known not in self.layers:
            kind = USPAttention if is_shared else LocalAttention
            self.layers[known] = kind(
                heads,
                width,
                num_kv_heads=key_heads,
                softmax_scale=scale,
                supported_attention_backends=self.backends,
                is_cross_attention=is_cross_attention,
            )
        return self.layers[known]


def use_sglang_attention(model, attention: Attention) -> None:
    """Gives every module that attends a processor that calls `attention`; nothing in diffusers is changed."""
    classes: dict[type, type] = {}
    for module in model.modules():
        processor = getattr(module, "processor", None)
        called = getattr(type(processor).__call__, "__code__", _NO_CODE).co_names
        if processor is None or not {_DISPATCHED, _OF_TORCH}.intersection(called):
            continue
        adapted = classes.setdefault(type(processor), _adapted(type(processor), attention))
        processor = copy.copy(processor)
        processor.__class__ = adapted
        if get_sp_world_size() > 1:
            processor._parallel_config = True  # passed on when tokens are sharded
        module.processor = processor


def _adapted(kind: type, attention: Attention) -> type:
    """A processor class with upstream's code and another kernel."""
    call = kind.__call__
    names = {**call.__globals__, _DISPATCHED: attention}
    changed = FunctionType(call.__code__, names, call.__name__, call.__defaults__, call.__closure__)
    changed.__kwdefaults__ = call.__kwdefaults__
    return type(f"SGLang{kind.__name__}", (kind,), {"__call__": changed})


def _of_keys(mask: torch.Tensor, count: int) -> torch.Tensor:
    """A mask [batch, keys] of this device's keys, as USPAttention takes it."""
    plain = mask[:, 0, 0] if mask.dim() == 4 and mask.shape[2] == 1 else mask
    if plain.dim() != 2 or plain.shape[1] != count:
        raise ValueError(f"devices cannot share tokens under a mask of shape {tuple(mask.shape)}: serve on one device")
    return plain


def share_tokens(model) -> None:
    """Splits tokens between devices, and gathers them again, where WanTransformer3DModel._cp_plan says it (diffusers/models/transformers/transformer_wan.py:552)."""
    for name, plan in WanTransformer3DModel._cp_plan.items():
        parts = _parts(model, name) if name else []
        for part in parts:
            if isinstance(plan, dict):
                part.register_forward_pre_hook(partial(_split_inputs, plan), with_kwargs=True)
                part.register_forward_hook(partial(_split_outputs, plan))
            else:
                part.register_forward_hook(partial(_gather, plan))


def _parts(model, name: str) -> list:
    """The modules of a name; `blocks.*` are all of them."""
    outer, _, every = name.partition(".*")
    found = model.get_submodule(outer)
    return list(found) if every == "" and name.endswith(".*") else [found]


def _split_inputs(plan, module, args, kwargs):
    given = inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments
    return (), split({name: value for name, value in list(given.items())[1:]}, plan)


def split(given: dict, plan: dict) -> dict:
    """Arguments, with those that a plan names sharded for this device."""
    return {name: _share(value, plan[name]) if name in plan else value for name, value in given.items()}


def _split_outputs(plan, module, args, output):
    whole = [output] if isinstance(output, torch.Tensor) else list(output)
    shared = [_share(one, plan[place]) if place in plan else one for place, one in enumerate(whole)]
    return shared[0] if isinstance(output, torch.Tensor) else tuple(shared)


def _gather(plan, module, args, output):
    return sequence_model_parallel_all_gather(output.contiguous(), dim=plan.gather_dim)


def _share(value, plan):
    if isinstance(value, (list, tuple)):
        plans = plan if isinstance(plan, (list, tuple)) else [plan] * len(value)
        return type(value)(_share(one, its) for one, its in zip(value, plans, strict=True))
    if not isinstance(value, torch.Tensor) or value.dim() != plan.expected_dims:
        return value
    count, devices = value.shape[plan.split_dim], get_sp_world_size()
    if count % devices:
        raise ValueError(f"{count} tokens cannot be shared evenly by {devices} devices: choose another size or degree")
    return value.chunk(devices, dim=plan.split_dim)[get_sp_parallel_rank()].contiguous()


def is_block(name: str, module) -> bool:
    """Whether a module is one of those that are sharded, compiled and offloaded one by one."""
    kinds = {*(WanTransformer3DModel._repeated_blocks or ()), *(WanTransformer3DModel._no_split_modules or ())}
    return type(module).__name__ in kinds


class WanT2vDiT(BaseDiT, WanTransformer3DModel, LayerwiseOffloadableModuleMixin):
    """Takes latents and steps as SGLang's DenoisingStage has them, and passes them on as WanPipeline does."""

    _fsdp_shard_conditions = [is_block]
    _compile_conditions = [is_block]
    param_names_mapping = {}
    reverse_param_names_mapping = {}

    def __init__(self, config, hf_config, quant_config=None, **kwargs):
        if quant_config is not None:
            raise ValueError("WanT2vDiT has diffusers' own layers, which are not quantised here")
        arch = config.arch_config
        values = {
            name: getattr(arch, name)
            for name in (
                "patch_size",
                "num_attention_heads",
                "attention_head_dim",
                "in_channels",
                "out_channels",
                "text_dim",
                "freq_dim",
                "ffn_dim",
                "num_layers",
                "cross_attn_norm",
                "qk_norm",
                "eps",
                "image_dim",
                "added_kv_proj_dim",
                "rope_max_seq_len",
                "pos_embed_seq_len",
            )
        }
        # SGLang builds on the meta device: weights stay there until they are loaded, tables of positions are computed.
        with torch.device("cpu"), init_empty_weights(include_buffers=False):
            WanTransformer3DModel.__init__(self, **values)
        self.prefix, self.hf_config = config.prefix, hf_config
        self.hidden_size = arch.hidden_size
        self.num_attention_heads = arch.num_attention_heads
        self.num_channels_latents = arch.num_channels_latents
        attention = Attention(self._supported_attention_backends)
        attention.layer(
            self.num_attention_heads, self.num_attention_heads, self.hidden_size // self.num_attention_heads
        )
        use_sglang_attention(self, attention)
        lists = [(name, one) for name, one in self.named_modules() if isinstance(one, torch.nn.ModuleList)]
        self.layer_names = [name for name, one in lists if any(is_block(name, block) for block in one)]
        if get_sp_world_size() > 1:
            share_tokens(self)

    def forward(
        self,
        hidden_states,
        encoder_hidden_states,
        timestep,
        guidance=None,
        encoder_hidden_states_image=None,
        attention_kwargs=None,
    ):
        """The prediction that the scheduler takes, for its latents and steps."""
        given = {
            "encoder_hidden_states": encoder_hidden_states,
            "encoder_hidden_states_image": encoder_hidden_states_image,
            "attention_kwargs": attention_kwargs,
        }
        given = {name: value for name, value in given.items() if value is not None}
        given["hidden_states"] = hidden_states
        given["timestep"] = _step(timestep)
        if get_sp_world_size() > 1:
            given = split(given, WanTransformer3DModel._cp_plan.get("", {}))
        answer = WanTransformer3DModel.forward(
            self,
            **given,
            return_dict=False,
        )
        answer = answer[0] if isinstance(answer, (tuple, list)) else answer
        return answer


def _step(step: torch.Tensor) -> torch.Tensor:
    """A scheduler step as WanPipeline passes it to its denoiser (diffusers/pipelines/wan/pipeline_wan.py:608)."""
    return step


EntryClass = WanT2vDiT
