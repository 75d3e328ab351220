"""Converts a checkpoint of Lumen to diffusers: the transformer alone, or a whole pipeline with its VAE.

python -m lumen.convert_lumen_to_diffusers --checkpoint model.safetensors --config config.json --output out
"""

import argparse
import json
from pathlib import Path

import torch
from lumen import LumenTransformer2DModel, convert_lumen_transformer_checkpoint_to_diffusers
from safetensors.torch import load_file


def converted(checkpoint: Path, config: dict) -> LumenTransformer2DModel:
    """The model with the authors' weights: every tensor of theirs has a place, and every parameter a tensor."""
    if checkpoint.suffix != ".safetensors":
        raise SystemExit(f"{checkpoint} is no safetensors file: save it as one first, pickles can run code")
    model = LumenTransformer2DModel(**config)
    model.load_state_dict(
        convert_lumen_transformer_checkpoint_to_diffusers(load_file(checkpoint), config=model.config), strict=True
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the authors' weights, a safetensors file")
    parser.add_argument("--config", type=Path, help="JSON with the arguments of the model; defaults without it")
    parser.add_argument("--output", type=Path, required=True, help="where the transformer is written")
    parser.add_argument("--dtype", default="bfloat16", help="of the weights that are written")
    given = parser.parse_args()
    config = json.loads(given.config.read_text(encoding="utf-8")) if given.config else {}
    model = converted(given.checkpoint, {key: value for key, value in config.items() if not key.startswith("_")})
    model.to(getattr(torch, given.dtype)).save_pretrained(given.output)


if __name__ == "__main__":
    main()
