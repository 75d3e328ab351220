"""Tiny pipelines of diffusers: every component its real class with random weights, saved by diffusers itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

_WORDS = ["a", "cat", "dog", "on", "the", "mat", "red", "user", "assistant", "system", *(f"w{i}" for i in range(40))]
_VOCABULARY = 64
_T5: dict[str, Any] = {
    "vocab_size": _VOCABULARY, "d_model": 32, "d_ff": 37, "d_kv": 8, "num_heads": 4, "num_layers": 2,
    "dropout_rate": 0.0,
}  # fmt: skip


def tokenizer(length: int) -> Any:
    """A tokenizer of words, whose sequences are at most `length` long."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", *_WORDS]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=length, **special)


def _t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(**_T5))


def _clip(width: int, projected: int = 0) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=_VOCABULARY, hidden_size=width, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4,
        projection_dim=projected or width, bos_token_id=1, eos_token_id=2, pad_token_id=0, max_position_embeddings=77,
    )  # fmt: skip
    return CLIPTextModelWithProjection(config) if projected else CLIPTextModel(config)


def _kl() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        sample_size=32, block_out_channels=(8, 8), layers_per_block=1, latent_channels=4, norm_num_groups=1,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, use_quant_conv=False,
        use_post_quant_conv=False, shift_factor=0.0609, scaling_factor=1.5035,
    )  # fmt: skip


def _flux() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    transformer = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8), guidance_embeds=True,
    )  # fmt: skip
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    return FluxPipeline(scheduler, _kl(), _clip(32), tokenizer(77), _t5(), tokenizer(48), transformer)


def _sd3() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

    transformer = SD3Transformer2DModel(
        sample_size=32, patch_size=1, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=4,
        joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=64, out_channels=4,
    )  # fmt: skip
    encoders = {
        "text_encoder": _clip(16, 32), "tokenizer": tokenizer(77), "text_encoder_2": _clip(16, 32),
        "tokenizer_2": tokenizer(77), "text_encoder_3": _t5(), "tokenizer_3": tokenizer(77),
    }  # fmt: skip
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    return StableDiffusion3Pipeline(transformer=transformer, scheduler=scheduler, vae=_kl(), **encoders)


def _sana() -> Any:
    from diffusers import AutoencoderDC, FlowMatchEulerDiscreteScheduler, SanaPipeline, SanaTransformer2DModel
    from transformers import Gemma2Config, Gemma2Model

    vae = AutoencoderDC(
        latent_channels=4, attention_head_dim=2, encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8), encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1), downsample_block_type="conv",
        upsample_block_type="interpolate", scaling_factor=0.41407,
    )  # fmt: skip
    encoder = Gemma2Config(
        head_dim=16, hidden_size=8, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1,
        num_key_value_heads=2, vocab_size=_VOCABULARY, attn_implementation="eager",
    )  # fmt: skip
    transformer = SanaTransformer2DModel(
        patch_size=1, in_channels=4, out_channels=4, num_layers=1, num_attention_heads=2, attention_head_dim=4,
        num_cross_attention_heads=2, cross_attention_head_dim=4, cross_attention_dim=8, caption_channels=8,
        sample_size=32,
    )  # fmt: skip
    scheduler = FlowMatchEulerDiscreteScheduler(shift=7.0)
    return SanaPipeline(tokenizer(300), Gemma2Model(encoder), vae, transformer, scheduler)


def _wan() -> Any:
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    transformer = WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=16, out_channels=16, text_dim=32, freq_dim=64,
        ffn_dim=32, num_layers=2, rope_max_seq_len=32,
    )  # fmt: skip
    vae = AutoencoderKLWan(base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)
    flow = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    encoder = UMT5EncoderModel(UMT5Config(**_T5))
    return WanPipeline(tokenizer(512), encoder, vae, UniPCMultistepScheduler(**flow), transformer)


def _ltx() -> Any:
    from diffusers import (
        AutoencoderKLLTXVideo,
        FlowMatchEulerDiscreteScheduler,
        LTXPipeline,
        LTXVideoTransformer3DModel,
    )

    vae = AutoencoderKLLTXVideo(
        latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1), patch_size=1, patch_size_t=1,
        spatio_temporal_scaling=(True, True, False, False), decoder_spatio_temporal_scaling=(True, True, False, False),
        decoder_inject_noise=(False,) * 5, upsample_residual=(False,) * 4, upsample_factor=(1,) * 4,
    )  # fmt: skip
    transformer = LTXVideoTransformer3DModel(
        in_channels=8, out_channels=8, num_attention_heads=4, attention_head_dim=8, cross_attention_dim=32,
        num_layers=1, caption_channels=32,
    )  # fmt: skip
    shift = {"use_dynamic_shifting": True, "base_shift": 0.95, "max_shift": 2.05, "shift_terminal": 0.1}
    return LTXPipeline(FlowMatchEulerDiscreteScheduler(**shift), vae, _t5(), tokenizer(128), transformer)


def _qwen_image() -> Any:
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImagePipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1e6}
    text = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "rope_parameters": rope, "vocab_size": _VOCABULARY, "bos_token_id": 1,
        "eos_token_id": 2,
    }  # fmt: skip
    eyes = {"depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    encoder = Qwen2_5_VLConfig(text_config=text, vision_config={**eyes, "patch_size": 14})
    vae = AutoencoderKLQwenImage(
        base_dim=8, z_dim=4, dim_mult=[1, 2, 4], num_res_blocks=1, temperal_downsample=[False, True],
        latents_mean=[0.1, 0.2, 0.3, 0.4], latents_std=[1.0, 1.5, 0.5, 2.0],
    )  # fmt: skip
    transformer = QwenImageTransformer2DModel(
        in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=3,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    return QwenImagePipeline(scheduler, vae, Qwen2_5_VLForConditionalGeneration(encoder), tokenizer(2000), transformer)


def _z_image() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel
    from transformers import Qwen3Config, Qwen3Model

    transformer = ZImageTransformer2DModel(
        all_patch_size=(2,), all_f_patch_size=(1,), in_channels=4, dim=32, n_layers=2, n_refiner_layers=1, n_heads=2,
        n_kv_heads=2, cap_feat_dim=16, axes_dims=[8, 4, 4], axes_lens=[256, 32, 32],
    )  # fmt: skip
    for name, parameter in transformer.named_parameters():
        if name.endswith("pad_token"):  # upstream leaves what lies in memory there
            parameter.data.normal_(std=0.02)
    encoder = Qwen3Config(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=_VOCABULARY, max_position_embeddings=512, head_dim=8,
    )  # fmt: skip
    words = tokenizer(512)
    words.chat_template = "{% for message in messages %}user {{ message['content'] }} assistant{% endfor %}"
    return ZImagePipeline(FlowMatchEulerDiscreteScheduler(shift=3.0), _kl(), Qwen3Model(encoder), words, transformer)


PIPELINES: dict[str, Callable[[], Any]] = {
    "flux": _flux, "ltx": _ltx, "qwen_image": _qwen_image, "sana": _sana, "sd3": _sd3, "wan": _wan,
    "z_image": _z_image,
}  # fmt: skip
VIDEOS = frozenset({"ltx", "wan"})


def save(name: str, into: Path) -> Path:
    """A pipeline with deterministic weights in a directory, as it would be published."""
    import torch

    torch.manual_seed(0)
    PIPELINES[name]().save_pretrained(into)
    return into
