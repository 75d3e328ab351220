"""Train qwen3_moe with VeOmni's text trainer: `torchrun --nproc_per_node=8 -m qwen3_moe.train qwen3_moe/train.yaml`."""

import qwen3_moe  # noqa: F401  registers the model with VeOmni
from veomni.arguments import VeOmniArguments, parse_args
from veomni.trainer.text_trainer import TextTrainer

if __name__ == "__main__":
    TextTrainer(parse_args(VeOmniArguments)).train()
