"""The sizes of a toy: a table for each kind of part, keyed by what configs call them."""

from collections.abc import Mapping
from typing import Any

HIDDEN = 96
HEAD_DIM = 16

# Every value differs from every other, from twice any other and from any product that one tensor could meet it in.
# Heads divide by 4 and experts by 2, so that a toy can also be spread over processes.
SIZES: Mapping[str, int] = {
    "vocab_size": 328,
    "decoder_vocab_size": 328,
    "encoder_hash_byte_group_vocab": 140,
    "hidden_size": HIDDEN,
    "hidden_size_global": HIDDEN,
    "emb_dim": HIDDEN,
    "embedding_dim": HIDDEN,
    "n_embd": HIDDEN,
    "d_model": HIDDEN,
    "intermediate_size": 112,
    "ffn_dim": 112,
    "ffn_hidden_size": 112,
    "n_inner": 112,
    "d_ff": 112,
    "dff": 112,
    "d_inner": 112,
    "intermediate_size_mlp": 120,
    "shared_intermediate_size": 44,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 44,
    "moe_shared_expert_intermediate_size": 44,
    "moe_latent_size": 68,
    "block_ff_dim": 112,
    "num_attention_heads": 8,
    "n_head": 8,
    "num_heads": 8,
    "n_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": HEAD_DIM,
    "attention_head_dim": HEAD_DIM,
    "kv_channels": HEAD_DIM,
    "q_lora_rank": 52,
    "kv_lora_rank": 36,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 14,
    "num_experts": 10,
    "num_local_experts": 10,
    "n_routed_experts": 10,
    "moe_num_experts": 10,
    "index_topk": 7,
    "index_head_dim": 24,
    "index_n_heads": 8,
    "indexer_n_heads": 8,
    "indexer_head_dim": 24,
    "indexer_budget": 14,
    "indexer_compress_ratio": 7,
    "kv_n_heads": 4,
    "moe_hidden_size": 76,
    "encoder_ffn_dim": 112,
    "decoder_ffn_dim": 112,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "linear_num_heads": 8,
    "linear_head_dim": 18,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 18,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "laurel_rank": 26,
    "audio_hidden_size": 72,
    "hidden_size_per_layer_input": 22,
    "vocab_size_per_layer_input": 328,
    "vision_vocab_size": 60,  # codes that a denoiser's toy has embeddings for
    "embedding_size": 60,
    "dim_feedforward": 112,
    "expert_ffn_hidden_size": 40,
    "rotary_dim": 8,
    "mamba_n_heads": 12,
    "mamba_num_heads": 12,
    "n_mamba_heads": 12,
    "mamba_d_head": 16,
    "mamba_head_dim": 16,
    "mamba_headdim": 16,
    "mamba_d_ssm": 2 * HIDDEN,
    "mamba_d_state": 18,
    "ssm_state_size": 18,
    "state_size": 18,
    "mamba_chunk_size": 8,
    "chunk_size": 8,
    "attention_hidden_size": 2 * HIDDEN,
    "time_step_rank": 6,
    "alignment_intermediate_size": 136,
    "mm_tokens_per_image": 9,
    "num_embeddings": 60,
    "base_channels": 32,
    "resolution": 32,
    "image_token_embed_dim": 52,
    "num_query_tokens": 6,
}
# What a tower is given instead; its width is not the text model's, so that a missing projection shows.
VISION: Mapping[str, int] = {
    "hidden_size": 80,
    "embed_dim": 80,
    "d_model": 80,
    "width": 80,
    "intermediate_size": 104,
    "moe_intermediate_size": 36,
    "num_local_experts": 6,
    "part_features": 20,
    "hidden_sizes": 80,
    "mlp_dim": 104,
    "num_heads": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "attention_heads": 4,
    "head_dim": 20,
    "patch_size": 4,
    "image_size": 24,
    "max_img_size": 48,
    "num_position_embeddings": 64,
    "max_position_embeddings": 64,
}
AUDIO: Mapping[str, int] = {
    "num_key_value_heads": 4,
    "d_model": 72,
    "hidden_size": 72,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_attention_heads": 4,
    "encoder_ffn_dim": 108,
    "decoder_ffn_dim": 108,
    "intermediate_size": 108,
    "num_mel_bins": 20,
    "max_source_positions": 64,
    "downsample_hidden_size": 24,
    "audio_hidden_size": 72,
    "n_window": 6,
    "n_window_infer": 12,
    "conv_chunksize": 50,
    "hidden_sizes": 72,
    "hidden_dim": 72,
    "input_dim": 20,
    "dim_head": 18,
    "num_heads": 4,
}
# One word for each of `num_embeddings`: its digits are letters.
_AS_LETTERS = str.maketrans("0123456789", "ABCDEFGHIJ")
_IMAGE_WORDS = {f"IMGIMG{str(number).translate(_AS_LETTERS)}Z": 4 + number for number in range(60)}
# What real configs of these types carry and their classes do not default to, although their models need it.
# By model_type, or by the name of the part where parts have none.
COMPLETED: Mapping[str, Mapping[str, Any]] = {
    "qwen2_5_omni_thinker": {"vision_start_token_id": 151652, "vision_end_token_id": 151653},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 151652, "vision_end_token_id": 151653},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 768},
    "blip-2": {"image_token_index": 50265},
    "chameleon": {"image_token_id": 300, "vocabulary_map": {"<image>": 300, **_IMAGE_WORDS}},
    "instructblip": {"image_token_index": 50265},
    "attn_config": {"rope_theta": 500000.0, "clip_qkv": 8.0},
    "talker_config": {"spatial_merge_size": 2},
    "lfm2_moe": {"layer_types": (["conv", "conv", "full_attention"] * 11)[:32]},
    "hunyuan_vl_text": {"head_dim": 128},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", *["sparse"] * 31]},
    "diffusion_gemma_text": {"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
    "qwen4_exp_text": {
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
        "indexer_compress_ratio": 16,
    },
}  # fmt: skip
# Their positions have three axes, and the config must say how the head is divided among them: in these proportions.
_AXES = (2, 3, 3)
THREE_AXES: Mapping[str, tuple[int, int, int]] = {
    "qwen2_vl_text": _AXES,
    "qwen2_5_vl_text": _AXES,
    "qwen2_5_omni_text": _AXES,
    "qwen2_5_omni_talker": _AXES,
    "glm4v_text": _AXES,
    "glm4v_moe_text": _AXES,
    "glm_image_text": _AXES,
    "glm_ocr_text": _AXES,
    "paddleocr_vl_text": _AXES,
    "ernie4_5_vl_moe_text": (3, 3, 2),
    "hunyuan_vl_text": _AXES,
}
# transformers counts the tokens of these encoders for windows of a hundred frames, whatever the config says.
FIXED: Mapping[str, Mapping[str, int]] = {
    "qwen3_omni_moe_audio_encoder": {"n_window": 50, "n_window_infer": 100},
    "qwen3_asr_encoder": {"n_window": 50, "n_window_infer": 100},
    # its adapter joins four patches of 80 into one
    "llama4_vision_model": {
        "intermediate_size": 320, "projector_input_dim": 64, "projector_output_dim": 64, "vision_output_dim": 64,
    },
}  # fmt: skip
# A tower ends in the width of the text model, whatever its own.
TO_TEXT_WIDTH = (
    "out_hidden_size",
    "output_dim",
    "projection_dim",
    "projector_hidden_size",
    "text_hidden_size",
    "adapter_out_dim",
)
# What a projection behind the tower takes in is the tower's own width.
INPUT_WIDTH = ("adapter_in_dim", "adapter_input_size")
# A model keeps its own number where it is smaller still; larger ones are cut to this.
AT_MOST: Mapping[str, int] = {
    "num_experts_per_tok": 3,
    "num_experts_per_token": 3,
    "moe_k": 3,
    "moe_topk": 3,
    "top_k_experts": 3,
    "n_shared_experts": 2,
    "moe_num_shared_experts": 2,
    "num_shared_experts": 2,
    "n_group": 2,
    "num_expert_group": 2,
    "topk_group": 1,
    "moe_top_k": 3,
    "index_kpool": 7,
    "sliding_window": 6,
    "attention_chunk_size": 8,
    "window_size": 6,
    "downsample_rate": 3,
    "local_attention": 6,
    "num_nextn_predict_layers": 1,
    "zero_expert_num": 2,
    "n_groups": 2,
    "mamba_n_groups": 2,
    "mamba_ngroups": 2,
}
# Sizes that some config classes leave open although their model cannot be built without them.
OPEN = ("head_dim", "num_key_value_heads", "n_routed_experts", "n_shared_experts", "num_experts_per_tok")
# Their output projection is square: heads times head_dim has to be the hidden size.
SQUARE = frozenset({"helium", "blt_local_encoder", "blt_local_decoder", "blt_global_transformer", "blt_patcher"})
# Queries, keys and values are in one tensor of three equal parts on disk.
EVEN_HEADS = frozenset({"nemotron3_5_transcribe_word_timestamp"})
# transformers fails on its own router loss there: the router's logits are never recorded.
NO_ROUTER_LOSS = frozenset({"granitemoe", "granitemoeshared", "granitemoehybrid"})
DROPPED = (
    "stage_names",
    "out_features",
    "out_indices",
    "output_attentions",
    "quantization_config",
    "auto_map",
    "_name_or_path",
    "transformers_version",
    "id2label",
    "label2id",
)
NOISE = (
    "dropout",
    "dropout_prob",
    "_pdrop",
    "_drop",
    "layerdrop",
    "jitter_noise",
    "jitter_eps",
    "drop_rate",
    "drop_path_rate",
)
