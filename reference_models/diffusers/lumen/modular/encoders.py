import torch
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..transformer_lumen import LumenTransformer2DModel
from .modular_pipeline import LumenModularPipeline


def encode_prompt(
    components,
    prompt: str | list[str],
    num_images_per_prompt: int = 1,
    max_sequence_length: int = 256,
    device: torch.device | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Embeds prompts.

    Args:
        prompt (`str` or `list[str]`): one or several.
        num_images_per_prompt (`int`, defaults to 1): number of images per prompt; rows of one prompt are adjacent.
        max_sequence_length (`int`, defaults to 256): longer prompts are truncated.
        device (`torch.device`, *optional*): device of the embedding.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: the embedding and its mask, one row per image.
    """
    device = device or components._execution_device
    prompt = [prompt] if isinstance(prompt, str) else prompt
    tokens = components.tokenizer(
        prompt, padding="max_length", max_length=max_sequence_length, truncation=True, return_tensors="pt"
    )
    mask = tokens.attention_mask.to(device)
    prompt_embeds = components.text_encoder(tokens.input_ids.to(device), attention_mask=mask)[0]
    prompt_embeds = prompt_embeds.to(dtype=components.transformer.dtype, device=device)
    return (
        prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0),
        mask.repeat_interleave(num_images_per_prompt, dim=0).bool(),
    )


class LumenTextEncoderStep(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Embeds the prompts."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("transformer", LumenTransformer2DModel),
            ComponentSpec("text_encoder", PreTrainedModel),
            ComponentSpec("tokenizer", PreTrainedTokenizerBase),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("max_sequence_length", type_hint=int, default=256),
            InputParam("negative_prompt", type_hint=str | list[str] | None),
            InputParam("negative_prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("num_images_per_prompt", type_hint=int, default=1),
            InputParam("prompt", type_hint=str | list[str] | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("device"),
            OutputParam("negative_prompt_embeds"),
            OutputParam("prompt_embeds"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        block_state.device = components._execution_device

        if block_state.prompt_embeds is None:
            block_state.prompt_embeds, _ = encode_prompt(
                components,
                block_state.prompt,
                block_state.num_images_per_prompt,
                block_state.max_sequence_length,
                block_state.device,
            )
        if components.do_classifier_free_guidance and block_state.negative_prompt_embeds is None:
            if components.text_encoder is None:
                block_state.negative_prompt_embeds = torch.zeros_like(block_state.prompt_embeds)
            else:
                count = len(block_state.prompt_embeds) // block_state.num_images_per_prompt
                negative = (
                    block_state.negative_prompt
                    if isinstance(block_state.negative_prompt, list)
                    else [block_state.negative_prompt or ""] * count
                )
                block_state.negative_prompt_embeds, _ = encode_prompt(
                    components,
                    negative,
                    block_state.num_images_per_prompt,
                    block_state.max_sequence_length,
                    block_state.device,
                )
        self.set_block_state(state, block_state)
        return components, state
