"""Train olmoe with VeOmni's text trainer: `torchrun --nproc_per_node=8 -m olmoe.train olmoe/train.yaml`."""

import olmoe  # noqa: F401  registers the model with VeOmni
from veomni.arguments import VeOmniArguments, parse_args
from veomni.trainer.text_trainer import TextTrainer


class Trainer(TextTrainer):
    """Raise before the first step if attention would see across the samples of a row."""

    def on_train_begin(self):
        train, attention = self.base.args.train, self.base.model_config._attn_implementation
        packs = train.dyn_bsz or train.micro_batch_size > 1
        if packs and not any(kernel in attention for kernel in ("flash", "magi", "varlen")):
            raise ValueError(
                f"{attention} attention sees across packed samples. Set --train.dyn_bsz false "
                "--train.micro_batch_size 1, or a flash attention in model.ops_implementation.attn_implementation."
            )
        super().on_train_begin()


if __name__ == "__main__":
    Trainer(parse_args(VeOmniArguments)).train()
