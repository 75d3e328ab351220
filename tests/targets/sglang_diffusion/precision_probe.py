"""Serves a checkpoint in float32 and in a plugin's own precisions: python precision_probe.py CHECKPOINT PLUGIN OUT."""

import sys
from pathlib import Path
from typing import Any

import torch

from omni_kit.targets.sglang_diffusion.runtime.engine import open_pipeline, prepare
from omni_kit.upstream.diffusers.pipelines import INDEX
from omni_kit.upstream.places import read_json

_OWN = ("dit_precision", "vae_precision", "text_encoder_precisions")


def own_precisions(checkpoint: Path, plugin: Path) -> dict[str, Any]:
    """Those that the plugin's config has."""
    prepare(plugin)
    from sglang.multimodal_gen import registry

    config = registry._PIPELINE_CONFIG_REGISTRY[read_json(checkpoint / INDEX)["_class_name"]][0]()
    return {name: getattr(config, name) for name in _OWN}


if __name__ == "__main__":
    checkpoint, plugin, out = map(Path, sys.argv[1:])
    found = {}
    for name, options in (("float32", {}), ("own", own_precisions(checkpoint, plugin))):
        opened = open_pipeline(checkpoint, plugin, options)
        asked = {"prompt": "a cat", "height": 64, "width": 64, "num_inference_steps": 2, "seed": 0}
        found[name] = opened.generate(**asked).float()
        encoder = opened.pipeline.get_module("text_encoder")
        found[f"{name} encoder"] = next(encoder.parameters()).dtype
    torch.save(found, out)
