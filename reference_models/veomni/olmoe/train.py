"""Train olmoe with VeOmni's text trainer: `torchrun --nproc_per_node=8 -m olmoe.train olmoe/train.yaml`."""

import olmoe  # noqa: F401  registers the model with VeOmni
from veomni.arguments import VeOmniArguments, parse_args
from veomni.trainer.text_trainer import TextTrainer

if __name__ == "__main__":
    TextTrainer(parse_args(VeOmniArguments)).train()
