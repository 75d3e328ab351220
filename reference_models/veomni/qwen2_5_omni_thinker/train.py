"""Train qwen2_5_omni_thinker with VeOmni's trainer for vision-language models.

`torchrun --nproc_per_node=8 -m qwen2_5_omni_thinker.train qwen2_5_omni_thinker/train.yaml`
"""

import qwen2_5_omni_thinker  # noqa: F401  registers the model with VeOmni
from veomni.arguments import parse_args
from veomni.models import build_processor
from veomni.trainer.vlm_trainer import MAX_PIXELS, VeOmniVLMArguments, VLMTrainer

TOWERS = (
    "audio_tower",
    "visual",
)


class Trainer(VLMTrainer):
    """Read conversations in upstream's format, and freeze the towers by upstream's names."""

    def _build_model_assets(self):
        self.base.processor = build_processor(self.base.args.model.tokenizer_path, max_pixels=MAX_PIXELS)
        self.base.chat_template = None
        self.base.model_assets = [self.base.model_config, self.base.processor]

    def _freeze_model_module(self):
        args = self.base.args
        if args.model.lora_config:
            self.base._setup_lora()
        elif getattr(args.train, "freeze_vit", False):
            for name, parameter in self.base.model.named_parameters():
                if set(TOWERS) & set(name.split(".")):
                    parameter.requires_grad_(False)


if __name__ == "__main__":
    Trainer(parse_args(VeOmniVLMArguments)).train()
