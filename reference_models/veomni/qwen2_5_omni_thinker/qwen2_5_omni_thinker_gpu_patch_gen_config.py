# ruff: noqa: F821
"""What VeOmni changes in transformers' modeling_qwen2_5_omni, written for transformers 5.9.0.

Regenerate with:

    omni-kit patchgen run qwen2_5_omni_thinker/qwen2_5_omni_thinker_gpu_patch_gen_config.py

Every patched definition is upstream's own code with a guard where a kernel slot fits; code that was not recognised is left
as it is. The slots are declared in the generated module, which is why this file does not define them.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniThinkerConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import (
    Qwen2_5OmniAudioEncoder,
    Qwen2_5OmniThinkerCausalLMOutputWithPast,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen2_5OmniThinkerTextModel,
    Qwen2_5OmniVisionEncoder,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from veomni.patchgen.patch_spec import PatchConfig
from veomni.utils.model_outputs import FusedLinearAuxOutputMixin

config = PatchConfig(
    source_module="transformers.models.qwen2_5_omni.modeling_qwen2_5_omni",
    target_file="patched_modeling_qwen2_5_omni_thinker_gpu.py",
    description="Qwen25OmniThinker with OpSlot guards and VeOmni's loss contract",
)

# Training never builds these: what only generates speech, and heads without logits of every token.
config.exclude_from_output(
    "Qwen2_5OmniTalkerCausalLMOutputWithPast",
    "Qwen2_5OmniTalkerModel",
    "Qwen2_5OmniTalkerForConditionalGeneration",
    "Qwen2_5OmniDiTRotaryEmbedding",
    "TimeDelayNetBlock",
    "Res2NetBlock",
    "SqueezeExcitationBlock",
    "AttentiveStatisticsPooling",
    "SqueezeExcitationRes2NetBlock",
    "ECAPA_TimeDelayNet",
    "DiTInputEmbedding",
    "DiTCodecEmbedding",
    "Qwen2_5_OmniAdaLayerNormZero",
    "Qwen2_5_OmniAdaLayerNormZero_Final",
    "DiTMLP",
    "apply_rotary_pos_emb",
    "DiTAttention",
    "SinusPositionEmbedding",
    "DiTTimestepEmbedding",
    "DiTDecoderLayer",
    "SnakeBeta",
    "TorchActivation1d",
    "AMPBlock",
    "Qwen2_5OmniToken2WavBigVGANModel",
    "RungeKutta4ODESolver",
    "Qwen2_5OmniToken2WavDiTModel",
    "Qwen2_5OmniToken2WavModel",
    "Qwen2_5OmniForConditionalGeneration",
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
    veomni_swiglu_mlp = OpSlot("swiglu_mlp", "standard")
    veomni_causal_lm_loss = OpSlot("cross_entropy_loss", "causal")
    """
)


# Patch: Qwen2_5OmniRMSNorm.forward
# 1. OpSlot guard for the fused RMSNorm.
@config.override_method("Qwen2_5OmniRMSNorm.forward", description="OpSlot guard for the fused RMSNorm")
def qwen2_5_omni_rms_norm_forward_patched(self, hidden_states: torch.Tensor) -> torch.Tensor:
    # Modification: the kernel bound to this slot, if any; otherwise the upstream code below.
    if veomni_rms_norm.use_non_eager_impl:
        return veomni_rms_norm(hidden_states, self.weight, self.variance_epsilon)
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)


# Patch: Qwen2_5OmniMLP.forward
# 1. OpSlot guard for the fused SwiGLU MLP.
@config.override_method("Qwen2_5OmniMLP.forward", description="OpSlot guard for the fused SwiGLU MLP")
def qwen2_5_omni_mlp_forward_patched(self, hidden_state):
    # Modification: the kernel bound to this slot, if any; otherwise the upstream code below.
    if veomni_swiglu_mlp.use_non_eager_impl:
        return veomni_swiglu_mlp(self, hidden_state)
    return self.down_proj(self.act_fn(self.gate_proj(hidden_state)) * self.up_proj(hidden_state))


# Patch: Qwen2MLP.forward
# 1. OpSlot guard for the fused SwiGLU MLP.
@config.override_method("Qwen2MLP.forward", description="OpSlot guard for the fused SwiGLU MLP")
def qwen2_mlp_forward_patched(self, hidden_state):
    # Modification: the kernel bound to this slot, if any; otherwise the upstream code below.
    if veomni_swiglu_mlp.use_non_eager_impl:
        return veomni_swiglu_mlp(self, hidden_state)
    return self.down_proj(self.act_fn(self.gate_proj(hidden_state)) * self.up_proj(hidden_state))


# Patch: Qwen2_5OmniThinkerCausalLMOutputWithPast
# 1. an output that carries what a fused loss returns.
@config.add_helper_after("Qwen2_5OmniThinkerCausalLMOutputWithPast")
@dataclass
class Qwen2_5OmniThinkerCausalLMOutputWithLogProbs(FusedLinearAuxOutputMixin, Qwen2_5OmniThinkerCausalLMOutputWithPast):
    """Upstream's output, with what a fused loss returns.

    Args:
        fused_linear_aux (`FusedLinearAuxOutput`, *optional*):
            What a fused loss returns beside loss and logits.
    """


# Patch: Qwen2_5OmniThinkerForConditionalGeneration.forward
# 1. VeOmni's loss contract: fused cross entropy through the OpSlot, or its loss function.
@config.override_method(
    "Qwen2_5OmniThinkerForConditionalGeneration.forward",
    description="VeOmni's loss contract: fused cross entropy through the OpSlot, or its loss function",
)
def qwen2_5_omni_thinker_for_conditional_generation_forward_patched(
    self,
    input_ids: torch.LongTensor | None = None,
    input_features: torch.FloatTensor | None = None,
    pixel_values: torch.FloatTensor | None = None,
    pixel_values_videos: torch.FloatTensor | None = None,
    image_grid_thw: torch.LongTensor | None = None,
    video_grid_thw: torch.LongTensor | None = None,
    attention_mask: torch.Tensor | None = None,
    feature_attention_mask: torch.Tensor | None = None,
    audio_feature_lengths: torch.LongTensor | None = None,
    position_ids: torch.LongTensor | None = None,
    past_key_values: Cache | None = None,
    inputs_embeds: torch.FloatTensor | None = None,
    rope_deltas: torch.LongTensor | None = None,
    labels: torch.LongTensor | None = None,
    use_cache: bool | None = None,
    use_audio_in_video: bool | None = None,
    video_second_per_grid: torch.LongTensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple | Qwen2_5OmniThinkerCausalLMOutputWithLogProbs:
    r"""
    image_grid_thw (`torch.LongTensor` of shape `(num_images, 3)`, *optional*):
        The temporal, height and width of feature shape of each image in LLM.
    video_grid_thw (`torch.LongTensor` of shape `(num_videos, 3)`, *optional*):
        The temporal, height and width of feature shape of each video in LLM.
    feature_attention_mask (`torch.Tensor` of shape `(batch_size, feature_sequence_length)`, *optional*):
        Mask to avoid performing attention on padding feature indices. Mask values selected in `[0, 1]`:

        - 1 for tokens that are **not masked**,
        - 0 for tokens that are **masked**.
    audio_feature_lengths (`torch.LongTensor` of shape `(num_audios)`, *optional*):
        The length of feature shape of each audio in LLM.
    rope_deltas (`torch.LongTensor` of shape `(batch_size, )`, *optional*):
        The rope index difference between sequence length and multimodal rope.
    labels (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
        Labels for computing the masked language modeling loss. Indices should either be in `[0, ...,
        config.vocab_size]` or -100 (see `input_ids` docstring). Tokens with indices set to `-100` are ignored
        (masked), the loss is only computed for the tokens with labels in `[0, ..., config.vocab_size]`.
    use_audio_in_video (`bool`, *optional*):
        Whether or not use audio track in video, should same as the parameter in `process_audio_info`.
    video_second_per_grid (`torch.LongTensor` of shape `(num_videos)`, *optional*):
        Number of seconds per grid for each video, used for temporal feature mapping.

    Example:

    ```python
    >>> from io import BytesIO
    >>> from urllib.request import urlopen
    >>> import librosa
    >>> from qwen_vl_utils import process_vision_info
    >>> from transformers import Qwen2_5OmniProcessor, Qwen2_5OmniThinkerForConditionalGeneration

    >>> thinker = Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained("Qwen/Qwen2.5-Omni-7B")
    >>> processor = Qwen2_5OmniProcessor.from_pretrained("Qwen/Qwen2.5-Omni-7B")

    >>> conversations = [
    >>>         {'role': 'system', 'content': 'You are a helpful voice chat bot, and please respond to me in a casual conversation manner using random voice.'},
    >>>         {"role": "user", "content": [
    >>>             {"type": "image", "image_url": "https://www.ilankelman.org/stopsigns/australia.jpg"},
    >>>             {"type": "audio", "audio_url": "https://qianwen-res.oss-cn-beijing.aliyuncs.com/Qwen2-Audio/audio/glass-breaking-151256.mp3"},
    >>>         ]},
    >>> ]

    >>> text = processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
    >>> audios = [ librosa.load(BytesIO(urlopen( conversations[1]['content'][1]['audio_url'] ).read()), sr=self.processor.feature_extractor.sampling_rate) ]
    >>> images, videos = process_vision_info(conversations)
    >>> inputs = processor(text=text, audio=audios, images=images, videos=videos, return_tensors="pt", padding=True)

    >>> # Generate
    >>> inputs['use_audio_in_video'] = `True` or `False`
    >>> generation = thinker.generate(**inputs, max_new_tokens=2048)
    >>> generate_ids = generation[:, inputs.input_ids.size(1):]

    >>> response = processor.batch_decode(generate_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)[0]
    ```"""

    # Modification: VeOmni's pipeline blanks placeholders and passes masks of them; see media.py.
    metadata = kwargs.pop("multimodal_metadata", None)
    media, input_ids, position_ids, kwargs = from_pipeline(self, input_ids, position_ids, kwargs, metadata)
    if position_ids is None and media.sp_enabled:
        raise ValueError("each process has a part of the tokens: the data pipeline must pass position_ids")
    if audio_feature_lengths is not None and feature_attention_mask is None:
        input_features, feature_attention_mask = sounds_of(input_features, audio_feature_lengths)
    if input_features is None and media.needs_dummy("audio"):
        input_features, feature_attention_mask = media.dummy("audio")
    if pixel_values is None and media.needs_dummy("image"):
        pixel_values, image_grid_thw = media.dummy("image")
    if pixel_values_videos is None and media.needs_dummy("video"):
        pixel_values_videos, video_grid_thw = media.dummy("video")
    if inputs_embeds is None:
        # 1. Extract the input embeddings
        inputs_embeds = self.get_input_embeddings()(input_ids)

    # 2. Merge text , audios , image and video
    if input_features is not None:
        audio_features = self.get_audio_features(
            input_features, feature_attention_mask, audio_feature_lengths, return_dict=True, **tower_arguments(kwargs)
        ).last_hidden_state
        audio_features = audio_features.to(inputs_embeds.device, inputs_embeds.dtype)
        _, _, audio_mask = self.get_placeholder_mask(input_ids, inputs_embeds=inputs_embeds)
        audio_features = media.own("audio", audio_features)
        inputs_embeds = inputs_embeds.masked_scatter(audio_mask, audio_features)

    if pixel_values is not None:
        image_embeds = self.get_image_features(
            pixel_values, image_grid_thw, return_dict=True, **tower_arguments(kwargs)
        ).pooler_output
        image_embeds = image_embeds.to(inputs_embeds.device, inputs_embeds.dtype)
        image_embeds = media.own("image", image_embeds)
        image_mask, _, _ = self.get_placeholder_mask(
            input_ids, inputs_embeds=inputs_embeds, image_features=image_embeds
        )
        inputs_embeds = inputs_embeds.masked_scatter(image_mask, image_embeds)

    if pixel_values_videos is not None:
        video_embeds = self.get_video_features(
            pixel_values_videos, video_grid_thw, return_dict=True, **tower_arguments(kwargs)
        ).pooler_output
        video_embeds = video_embeds.to(inputs_embeds.device, inputs_embeds.dtype)
        video_embeds = media.own("video", video_embeds)
        _, video_mask, _ = self.get_placeholder_mask(
            input_ids, inputs_embeds=inputs_embeds, video_features=video_embeds
        )
        inputs_embeds = inputs_embeds.masked_scatter(video_mask, video_embeds)

    if feature_attention_mask is not None:
        audio_feature_lengths = torch.sum(feature_attention_mask, dim=1)
    else:
        audio_feature_lengths = None

    if attention_mask is not None and position_ids is None:
        past_key_values_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        if past_key_values_length == 0 or self.rope_deltas is None:
            delta0 = (1 - attention_mask).sum(dim=-1).unsqueeze(1)
            position_ids, rope_deltas = self.get_rope_index(
                input_ids,
                image_grid_thw,
                video_grid_thw,
                attention_mask,
                use_audio_in_video,
                audio_feature_lengths,
                video_second_per_grid,
            )
            rope_deltas = rope_deltas - delta0
            self.rope_deltas = rope_deltas
        else:
            batch_size, seq_length = input_ids.shape
            delta = (past_key_values_length + self.rope_deltas).to(input_ids.device)
            position_ids = torch.arange(seq_length, device=input_ids.device)
            position_ids = position_ids.view(1, -1).expand(batch_size, -1)
            position_ids = position_ids.add(delta)
            position_ids = position_ids.unsqueeze(0).expand(3, -1, -1)

    outputs = self.model(
        attention_mask=attention_mask,
        position_ids=position_ids,
        past_key_values=past_key_values,
        inputs_embeds=inputs_embeds,
        use_cache=use_cache,
        return_dict=True,
        **kwargs,
    )

    hidden_states = outputs[0]
    # Modification: with labels, the bound kernel or VeOmni's loss function gives (loss, logits, fused_linear_aux) from
    # the hidden states; a fused kernel never makes the logits.
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

    return Qwen2_5OmniThinkerCausalLMOutputWithLogProbs(
        loss=loss,
        logits=logits,
        past_key_values=outputs.past_key_values,
        hidden_states=outputs.hidden_states,
        attentions=outputs.attentions,
        rope_deltas=self.rope_deltas,
        fused_linear_aux=fused_linear_aux,
    )


# Patch: Qwen2_5OmniThinkerForConditionalGeneration.__init__
# 1. embeddings are tied if the top-level config says so.
@config.override_method(
    "Qwen2_5OmniThinkerForConditionalGeneration.__init__",
    description="embeddings are tied if the top-level config says so",
)
def qwen2_5_omni_thinker_for_conditional_generation_init(self, config: Qwen2_5OmniThinkerConfig):
    super().__init__(config)
    # Modification: VeOmni ties embeddings where the config of the text says so, too.
    config.get_text_config(decoder=True).tie_word_embeddings = config.tie_word_embeddings
    self.audio_tower = Qwen2_5OmniAudioEncoder._from_config(config.audio_config)
    self.visual = Qwen2_5OmniVisionEncoder._from_config(config.vision_config)
    self.vocab_size = config.text_config.vocab_size
    self.model = Qwen2_5OmniThinkerTextModel._from_config(config.text_config)
    self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
    self.spatial_merge_size = config.vision_config.spatial_merge_size
    self.rope_deltas = None
    self.post_init()


# Patch: Qwen2_5OmniThinkerForConditionalGeneration.get_position_id_func
# 1. Added: VeOmni's data pipeline computes positions with it in its worker processes.
@config.override_method(
    "Qwen2_5OmniThinkerForConditionalGeneration.get_position_id_func",
    description="Added: VeOmni's data pipeline computes positions with it in its worker processes",
)
def qwen2_5_omni_thinker_for_conditional_generation_get_position_id_func(self):
    return positions_of(Qwen2_5OmniThinkerForConditionalGeneration, self.config)


# Patch: Qwen2_5OmniThinkerForConditionalGeneration.get_extra_collate_infos
# 1. Added: how VeOmni's collator joins the media of several samples.
@config.override_method(
    "Qwen2_5OmniThinkerForConditionalGeneration.get_extra_collate_infos",
    description="Added: how VeOmni's collator joins the media of several samples",
)
def qwen2_5_omni_thinker_for_conditional_generation_get_extra_collate_infos(self):
    return collate_infos()


# Patch: Qwen2_5OmniThinkerForConditionalGeneration.get_metadata_collate_func
# 1. Added: VeOmni's collator counts placeholders with it.
@config.override_method(
    "Qwen2_5OmniThinkerForConditionalGeneration.get_metadata_collate_func",
    description="Added: VeOmni's collator counts placeholders with it",
)
def qwen2_5_omni_thinker_for_conditional_generation_get_metadata_collate_func(self):
    return collate_metadata
