"""Serve one request with and without SGLang's caches: python caches_probe.py CHECKPOINT PLUGIN OUT."""

import sys
from pathlib import Path
from typing import Any

import torch

from omni_kit.targets.sglang_diffusion.runtime.engine import open_pipeline

_STEPS = 6
_ASKED = {"prompt": "a cat", "negative_prompt": "red dog", "guidance_scale": 4.0, "height": 64, "width": 64,
          "num_frames": 5, "num_inference_steps": _STEPS, "seed": 0}  # fmt: skip
# Compute two steps, reuse two, twice: whatever the outputs are.
_CACHED = {"Fn_compute_blocks": 1, "max_warmup_steps": 0, "residual_diff_threshold": 100.0}
_REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cached": {"enable_cache_dit": True, "cache_dit_params": _CACHED},
    "gated": {"cfg_gate_step": 0.5},
    "plain again": {},
}

if __name__ == "__main__":
    checkpoint, plugin, out = map(Path, sys.argv[1:])
    opened = open_pipeline(checkpoint, plugin)
    model = opened.pipeline.get_module("transformer")
    counts = {"denoiser": 0, "last block": 0}

    def count(name: str, module: torch.nn.Module) -> None:
        module.register_forward_hook(lambda *_: counts.update({name: counts[name] + 1}))

    count("denoiser", model)
    count("last block", list(model.blocks)[-1])
    found: dict[str, Any] = {}
    for name, more in _REQUESTS.items():
        counts.update(dict.fromkeys(counts, 0))
        found[name] = {"picture": opened.generate(**_ASKED, **more).float(), **counts}
    for name in ("enable_teacache", "enable_spectrum"):
        try:
            opened.generate(**_ASKED, **{name: True})
        except ValueError as error:
            found[name] = str(error)
    torch.save(found, out)
