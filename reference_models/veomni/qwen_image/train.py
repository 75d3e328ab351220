"""Train qwen_image with VeOmni's DiT trainer: `torchrun --nproc_per_node=8 -m qwen_image.train qwen_image/train.yaml`."""

import qwen_image  # noqa: F401  registers the models with VeOmni
import qwen_image.qwen_image_condition.data  # noqa: F401  registers the preprocessor
from veomni.arguments import parse_args
from veomni.trainer.dit_trainer import DiTTrainer, VeOmniDiTArguments


class Trainer(DiTTrainer):
    """Noise of a step follows from its number, so that a resumed training draws what it would have drawn."""

    def on_step_begin(self, micro_batches=None):
        self.condition_model.begin_step(self.base.state.global_step)
        super().on_step_begin(micro_batches)


if __name__ == "__main__":
    Trainer(parse_args(VeOmniDiTArguments)).train()
