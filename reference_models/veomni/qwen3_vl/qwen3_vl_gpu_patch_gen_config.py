# ruff: noqa: F821
"""What VeOmni changes in transformers' modeling_qwen3_vl, written for transformers 5.9.0.

Regenerate with:

    omni-kit patchgen run qwen3_vl/qwen3_vl_gpu_patch_gen_config.py

Every patched definition is upstream's own code with a guard where a kernel slot fits; code that was not recognised is left
as it is. The slots are declared in the generated module, which is why this file does not define them.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    BaseModelOutputWithDeepstackFeatures,
    Qwen3VLCausalLMOutputWithPast,
    Qwen3VLModel,
    Qwen3VLModelOutputWithPast,
    rotate_half,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from veomni.patchgen.patch_spec import PatchConfig
from veomni.utils.model_outputs import FusedLinearAuxOutputMixin

config = PatchConfig(
    source_module="transformers.models.qwen3_vl.modeling_qwen3_vl",
    target_file="patched_modeling_qwen3_vl_gpu.py",
    description="Qwen3Vl with OpSlot guards and VeOmni's loss contract",
)

config.add_import("veomni.utils.model_outputs", names=["FusedLinearAuxOutputMixin"])

config.add_post_import_block(
    "from ..media import collate_infos, collate_metadata, from_pipeline, positions_of, sounds_of, tower_arguments"
)

config.add_post_import_block(
    """
    # Kernel slots: bound when VeOmni builds the model; unbound, the upstream code runs.
    from veomni.ops.dispatch import OpSlot

    veomni_rms_norm = OpSlot("rms_norm", "standard")
    veomni_apply_rotary_pos_emb = OpSlot("rotary_pos_emb", "full")
    veomni_swiglu_mlp = OpSlot("swiglu_mlp", "standard")
    veomni_causal_lm_loss = OpSlot("cross_entropy_loss", "causal")
    """
)


# Patch: Qwen3VLTextRMSNorm.forward
# 1. OpSlot guard for the fused RMSNorm.
@config.override_method("Qwen3VLTextRMSNorm.forward", description="OpSlot guard for the fused RMSNorm")
def qwen3_vl_text_rms_norm_forward_patched(self, hidden_states: torch.Tensor) -> torch.Tensor:
    # Modification: the kernel bound to this slot, if any; otherwise the upstream code below.
    if veomni_rms_norm.use_non_eager_impl:
        return veomni_rms_norm(hidden_states, self.weight, self.variance_epsilon)
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)


# Patch: apply_rotary_pos_emb
# 1. OpSlot guard for the fused RoPE.
@config.replace_function("apply_rotary_pos_emb", description="OpSlot guard for the fused RoPE")
def apply_rotary_pos_emb_patched(q, k, cos, sin, unsqueeze_dim=1):
    """Applies Rotary Position Embedding to the query and key tensors.

    Args:
        q (`torch.Tensor`): The query tensor.
        k (`torch.Tensor`): The key tensor.
        cos (`torch.Tensor`): The cosine part of the rotary embedding.
        sin (`torch.Tensor`): The sine part of the rotary embedding.
        unsqueeze_dim (`int`, *optional*, defaults to 1):
            The 'unsqueeze_dim' argument specifies the dimension along which to unsqueeze cos[position_ids] and
            sin[position_ids] so that they can be properly broadcasted to the dimensions of q and k. For example, note
            that cos[position_ids] and sin[position_ids] have the shape [batch_size, seq_len, head_dim]. Then, if q and
            k have the shape [batch_size, heads, seq_len, head_dim], then setting unsqueeze_dim=1 makes
            cos[position_ids] and sin[position_ids] broadcastable to the shapes of q and k. Similarly, if q and k have
            the shape [batch_size, seq_len, heads, head_dim], then set unsqueeze_dim=2.
    Returns:
        `tuple(torch.Tensor)` comprising of the query and key tensors rotated using the Rotary Position Embedding.
    """
    # Modification: the kernel bound to this slot, if any; otherwise the upstream code below.
    if veomni_apply_rotary_pos_emb.use_non_eager_impl:
        return veomni_apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


# Patch: Qwen3VLTextMLP.forward
# 1. OpSlot guard for the fused SwiGLU MLP.
@config.override_method("Qwen3VLTextMLP.forward", description="OpSlot guard for the fused SwiGLU MLP")
def qwen3_vl_text_mlp_forward_patched(self, x):
    # Modification: the kernel bound to this slot, if any; otherwise the upstream code below.
    if veomni_swiglu_mlp.use_non_eager_impl:
        return veomni_swiglu_mlp(self, x)
    down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
    return down_proj


# Patch: Qwen3VLCausalLMOutputWithPast
# 1. an output that carries what a fused loss returns.
@config.add_helper_after("Qwen3VLCausalLMOutputWithPast")
@dataclass
class Qwen3VLCausalLMOutputWithLogProbs(FusedLinearAuxOutputMixin, Qwen3VLCausalLMOutputWithPast):
    """Upstream's output, with what a fused loss returns.

    Args:
        fused_linear_aux (`FusedLinearAuxOutput`, *optional*):
            What a fused loss returns beside loss and logits.
    """


# Patch: Qwen3VLForConditionalGeneration.forward
# 1. VeOmni's loss contract: fused cross entropy through the OpSlot, or its loss function.
@config.override_method(
    "Qwen3VLForConditionalGeneration.forward",
    description="VeOmni's loss contract: fused cross entropy through the OpSlot, or its loss function",
)
def qwen3_vl_for_conditional_generation_forward_patched(
    self,
    input_ids: torch.LongTensor = None,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.LongTensor | None = None,
    past_key_values: Cache | None = None,
    inputs_embeds: torch.FloatTensor | None = None,
    labels: torch.LongTensor | None = None,
    pixel_values: torch.Tensor | None = None,
    pixel_values_videos: torch.FloatTensor | None = None,
    image_grid_thw: torch.LongTensor | None = None,
    video_grid_thw: torch.LongTensor | None = None,
    mm_token_type_ids: torch.IntTensor | None = None,
    logits_to_keep: int | torch.Tensor = 0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple | Qwen3VLCausalLMOutputWithLogProbs:
    r"""
    labels (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
        Labels for computing the masked language modeling loss. Indices should either be in `[0, ...,
        config.vocab_size]` or -100 (see `input_ids` docstring). Tokens with indices set to `-100` are ignored
        (masked), the loss is only computed for the tokens with labels in `[0, ..., config.vocab_size]`.
    image_grid_thw (`torch.LongTensor` of shape `(num_images, 3)`, *optional*):
        The temporal, height and width of feature shape of each image in LLM.
    video_grid_thw (`torch.LongTensor` of shape `(num_videos, 3)`, *optional*):
        The temporal, height and width of feature shape of each video in LLM.

    Example:

    ```python
    >>> from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

    >>> model = Qwen3VLForConditionalGeneration.from_pretrained("Qwen/Qwen3-VL-8B-Instruct")
    >>> processor = AutoProcessor.from_pretrained("Qwen/Qwen3-VL-8B-Instruct")

    >>> messages = [
        {
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "image": "https://huggingface.co/datasets/huggingface/documentation-images/resolve/main/pipeline-cat-chonk.jpeg",
                },
                {"type": "text", "text": "Describe the image."},
            ],
        }
    ]

    >>> inputs = processor.apply_chat_template(
        messages,
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt"
    )

    >>> # Generate
    >>> generated_ids = model.generate(**inputs, max_new_tokens=1024)
    >>> generated_ids_trimmed = [out_ids[len(in_ids) :] for in_ids, out_ids in zip(inputs.input_ids, generated_ids)]
    >>> output_text = processor.batch_decode(generated_ids_trimmed, skip_special_tokens=True, clean_up_tokenization_spaces=False)[0]
    >>> print(output_text)
    ```
    """

    outputs = self.model(
        input_ids=input_ids,
        pixel_values=pixel_values,
        pixel_values_videos=pixel_values_videos,
        image_grid_thw=image_grid_thw,
        video_grid_thw=video_grid_thw,
        position_ids=position_ids,
        attention_mask=attention_mask,
        past_key_values=past_key_values,
        inputs_embeds=inputs_embeds,
        mm_token_type_ids=mm_token_type_ids,
        **kwargs,
    )

    hidden_states = outputs[0]

    # Only compute necessary logits, and do not upcast them to float if we are not computing the loss
    slice_indices = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
    # Modification: with labels, the bound kernel or VeOmni's loss function gives (loss, logits, fused_linear_aux) from
    # the hidden states; a fused kernel never makes the logits.
    hidden_states = hidden_states[:, slice_indices, :]
    loss = None
    logits = None
    fused_linear_aux = None
    if labels is not None:
        if veomni_causal_lm_loss.use_non_eager_impl:
            loss, logits, fused_linear_aux = veomni_causal_lm_loss(
                logits=logits,
                labels=labels,
                vocab_size=self.config.text_config.vocab_size,
                hidden_states=hidden_states,
                weights=self.lm_head.weight,
                **kwargs,
            )
        else:
            logits = self.lm_head(hidden_states)
            loss, _, fused_linear_aux = self.loss_function(
                logits=logits,
                labels=labels,
                vocab_size=self.config.text_config.vocab_size,
                hidden_states=hidden_states,
                weights=self.lm_head.weight,
                **kwargs,
            )
            if fused_linear_aux is not None:
                logits = None
    else:
        logits = self.lm_head(hidden_states)

    return Qwen3VLCausalLMOutputWithLogProbs(
        loss=loss,
        logits=logits,
        past_key_values=outputs.past_key_values,
        hidden_states=outputs.hidden_states,
        attentions=outputs.attentions,
        rope_deltas=outputs.rope_deltas,
        fused_linear_aux=fused_linear_aux,
    )


# Patch: Qwen3VLModel.forward
# 1. VeOmni's masks of placeholders, dummy media, and each process's own features.
@config.override_method(
    "Qwen3VLModel.forward", description="VeOmni's masks of placeholders, dummy media, and each process's own features"
)
def qwen3_vl_model_forward_patched(
    self,
    input_ids: torch.LongTensor = None,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.LongTensor | None = None,
    past_key_values: Cache | None = None,
    inputs_embeds: torch.FloatTensor | None = None,
    pixel_values: torch.Tensor | None = None,
    pixel_values_videos: torch.FloatTensor | None = None,
    image_grid_thw: torch.LongTensor | None = None,
    video_grid_thw: torch.LongTensor | None = None,
    mm_token_type_ids: torch.IntTensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple | Qwen3VLModelOutputWithPast:
    r"""
    image_grid_thw (`torch.LongTensor` of shape `(num_images, 3)`, *optional*):
        The temporal, height and width of feature shape of each image in LLM.
    video_grid_thw (`torch.LongTensor` of shape `(num_videos, 3)`, *optional*):
        The temporal, height and width of feature shape of each video in LLM.
    """
    # Modification: VeOmni's pipeline blanks placeholders and passes masks of them; see media.py.
    metadata = kwargs.pop("multimodal_metadata", None)
    media, input_ids, position_ids, kwargs = from_pipeline(self, input_ids, position_ids, kwargs, metadata)
    if position_ids is None and media.sp_enabled:
        raise ValueError("each process has a part of the tokens: the data pipeline must pass position_ids")
    if pixel_values is None and media.needs_dummy("image"):
        pixel_values, image_grid_thw = media.dummy("image")
    if pixel_values_videos is None and media.needs_dummy("video"):
        pixel_values_videos, video_grid_thw = media.dummy("video")
    if (input_ids is None) ^ (inputs_embeds is not None):
        raise ValueError("You must specify exactly one of input_ids or inputs_embeds")

    if inputs_embeds is None:
        inputs_embeds = self.get_input_embeddings()(input_ids)

    image_mask = None
    video_mask = None

    if pixel_values is not None:
        image_outputs: BaseModelOutputWithDeepstackFeatures = self.get_image_features(
            pixel_values, image_grid_thw, return_dict=True, **tower_arguments(kwargs)
        )
        image_embeds = image_outputs.pooler_output
        deepstack_image_embeds = image_outputs.deepstack_features
        deepstack_image_embeds = [media.own("image", layer) for layer in deepstack_image_embeds]
        image_embeds = torch.cat(image_embeds, dim=0).to(inputs_embeds.device, inputs_embeds.dtype)
        image_embeds = media.own("image", image_embeds)
        image_mask, _ = self.get_placeholder_mask(input_ids, inputs_embeds=inputs_embeds, image_features=image_embeds)
        inputs_embeds = inputs_embeds.masked_scatter(image_mask, image_embeds)

    if pixel_values_videos is not None:
        video_outputs: BaseModelOutputWithDeepstackFeatures = self.get_video_features(
            pixel_values_videos, video_grid_thw, return_dict=True, **tower_arguments(kwargs)
        )
        video_embeds = video_outputs.pooler_output
        deepstack_video_embeds = video_outputs.deepstack_features
        deepstack_video_embeds = [media.own("video", layer) for layer in deepstack_video_embeds]
        video_embeds = torch.cat(video_embeds, dim=0).to(inputs_embeds.device, inputs_embeds.dtype)
        video_embeds = media.own("video", video_embeds)
        _, video_mask = self.get_placeholder_mask(input_ids, inputs_embeds=inputs_embeds, video_features=video_embeds)
        inputs_embeds = inputs_embeds.masked_scatter(video_mask, video_embeds)

    visual_pos_masks = None
    deepstack_visual_embeds = None
    if image_mask is not None and video_mask is not None:
        # aggregate visual_pos_masks and deepstack_visual_embeds
        image_mask = image_mask[..., 0]
        video_mask = video_mask[..., 0]
        visual_pos_masks = image_mask | video_mask
        deepstack_visual_embeds = []
        image_mask_joint = image_mask[visual_pos_masks]
        video_mask_joint = video_mask[visual_pos_masks]
        for img_embed, vid_embed in zip(deepstack_image_embeds, deepstack_video_embeds):
            embed_joint = img_embed.new_zeros(visual_pos_masks.sum(), img_embed.shape[-1]).to(img_embed.device)
            embed_joint[image_mask_joint, :] = img_embed
            embed_joint[video_mask_joint, :] = vid_embed
            deepstack_visual_embeds.append(embed_joint)
    elif image_mask is not None:
        image_mask = image_mask[..., 0]
        visual_pos_masks = image_mask
        deepstack_visual_embeds = deepstack_image_embeds
    elif video_mask is not None:
        video_mask = video_mask[..., 0]
        visual_pos_masks = video_mask
        deepstack_visual_embeds = deepstack_video_embeds

    if position_ids is None:
        position_ids = self.compute_3d_position_ids(
            input_ids=input_ids,
            image_grid_thw=image_grid_thw,
            video_grid_thw=video_grid_thw,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            mm_token_type_ids=mm_token_type_ids,
        )

    outputs = self.language_model(
        input_ids=None,
        position_ids=position_ids,
        attention_mask=attention_mask,
        past_key_values=past_key_values,
        inputs_embeds=inputs_embeds,
        visual_pos_masks=visual_pos_masks,
        deepstack_visual_embeds=deepstack_visual_embeds,
        **kwargs,
    )

    return Qwen3VLModelOutputWithPast(
        **outputs,
        rope_deltas=self.rope_deltas,
    )


# Patch: Qwen3VLForConditionalGeneration.__init__
# 1. embeddings are tied if the top-level config says so.
@config.override_method(
    "Qwen3VLForConditionalGeneration.__init__", description="embeddings are tied if the top-level config says so"
)
def qwen3_vl_for_conditional_generation_init(self, config):
    super().__init__(config)
    # Modification: VeOmni ties embeddings where the config of the text says so, too.
    config.get_text_config(decoder=True).tie_word_embeddings = config.tie_word_embeddings
    self.model = Qwen3VLModel(config)
    self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)

    self.post_init()


# Patch: Qwen3VLForConditionalGeneration.get_position_id_func
# 1. Added: VeOmni's data pipeline computes positions with it in its worker processes.
@config.override_method(
    "Qwen3VLForConditionalGeneration.get_position_id_func",
    description="Added: VeOmni's data pipeline computes positions with it in its worker processes",
)
def qwen3_vl_for_conditional_generation_get_position_id_func(self):
    return positions_of(Qwen3VLModel, self.config)


# Patch: Qwen3VLForConditionalGeneration.get_extra_collate_infos
# 1. Added: how VeOmni's collator joins the media of several samples.
@config.override_method(
    "Qwen3VLForConditionalGeneration.get_extra_collate_infos",
    description="Added: how VeOmni's collator joins the media of several samples",
)
def qwen3_vl_for_conditional_generation_get_extra_collate_infos(self):
    return collate_infos()


# Patch: Qwen3VLForConditionalGeneration.get_metadata_collate_func
# 1. Added: VeOmni's collator counts placeholders with it.
@config.override_method(
    "Qwen3VLForConditionalGeneration.get_metadata_collate_func",
    description="Added: VeOmni's collator counts placeholders with it",
)
def qwen3_vl_for_conditional_generation_get_metadata_collate_func(self):
    return collate_metadata
