"""Serves a checkpoint with what SGLang finds in its own package: python in_tree_probe.py CHECKPOINT OUT."""

import sys
from pathlib import Path

import torch

from omni_kit.targets.sglang_diffusion.runtime.engine import open_pipeline

if __name__ == "__main__":
    checkpoint, out = map(Path, sys.argv[1:])
    opened = open_pipeline(checkpoint, None)
    asked = {"prompt": "a cat", "height": 64, "width": 64, "num_inference_steps": 2, "num_frames": 9, "seed": 0}
    picture = opened.generate(**asked)
    torch.save({"picture": picture, "denoiser": type(opened.pipeline.get_module("transformer")).__module__}, out)
