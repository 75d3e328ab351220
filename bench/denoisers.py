"""A training step of a generated wrapper compared with diffusers' own, at a real width: time and peak memory.

    omni-kit new-model wan --target veomni --from WanTransformer3DModel --into packages
    python bench/denoisers.py packages wan
    python bench/denoisers.py packages qwen_image

Each variant runs in a process of its own, one after the other, for as many rounds as are asked for; medians are
printed. Weights are random. Batches are of one sample, as VeOmni's trainer makes them. The optimizer is left out: it is
the same.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

# name -> class of diffusers, arguments of its constructor, latents, length and width of the text.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "wan": (
        "WanTransformer3DModel",  # the published 1.3B model
        {"num_attention_heads": 12, "attention_head_dim": 128, "ffn_dim": 8960, "num_layers": 30},
    ),
    "qwen_image": ("QwenImageTransformer2DModel", {"num_layers": 12}),  # the published width, a fifth of the layers
}
VARIANTS = ("diffusers", "wrapper", "diffusers checkpointed", "wrapper checkpointed")
_WARM, _STEPS = 3, 8


def inputs(name: str, torch: Any) -> dict[str, Any]:
    """One sample: 7,800 tokens of video, or 4,096 of a picture."""
    where = {"device": "cuda", "dtype": torch.bfloat16}
    if name == "wan":
        return {
            "hidden_states": torch.randn(1, 16, 5, 60, 104, **where),
            "timestep": torch.tensor([500], device="cuda"),
            "encoder_hidden_states": torch.randn(1, 512, 4096, **where),
        }
    return {
        "hidden_states": torch.randn(1, 4096, 64, **where),
        "timestep": torch.tensor([0.5], **where),
        "encoder_hidden_states": torch.randn(1, 128, 3584, **where),
        "img_shapes": [[(1, 64, 64)]],
    }


def measure(packages: Path, name: str, variant: str) -> dict[str, float]:
    """One variant: milliseconds of forward and backward, and the peak of allocated memory in GB."""
    import diffusers
    import torch

    class_name, arguments = MODELS[name]
    torch.manual_seed(0)
    if variant.startswith("diffusers"):
        with torch.device("cuda"):
            model = getattr(diffusers, class_name)(**arguments).to(torch.bfloat16).train()
        enable = model.enable_gradient_checkpointing
    else:
        sys.path.insert(0, str(packages))
        package = importlib.import_module(f"{name}.{name}_transformer")
        config = getattr(package, f"register_{name}_transformer_config")()(**arguments)
        config._attn_implementation = "sdpa"
        with torch.device("cuda"):
            model = getattr(package, f"register_{name}_transformer_modeling")()(config).to(torch.bfloat16).train()
        enable = model.gradient_checkpointing_enable
    if variant.endswith("checkpointed"):
        enable()
    sample = inputs(name, torch)
    target = torch.randn_like(step_of(model, variant, sample, None)[0].detach().float())
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(_WARM + _STEPS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        _, loss = step_of(model, variant, sample, target)
        loss.backward()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
        model.zero_grad(set_to_none=True)
    peak = torch.cuda.max_memory_allocated() / 1e9
    return {"ms": statistics.median(times[_WARM:]), "gb": peak, "loss": float(loss.detach())}


def step_of(model: Any, variant: str, sample: dict[str, Any], target: Any) -> tuple[Any, Any]:
    """The prediction, and the loss where there is a target."""
    import torch.nn.functional as functional

    if variant.startswith("diffusers"):
        prediction = model(**sample, return_dict=False)[0]
        return prediction, functional.mse_loss(prediction.float(), target) if target is not None else None
    given = {key: [value] for key, value in sample.items()}
    answer = model(**given, training_target=[target] if target is not None else None)
    return answer.predictions[0], answer.loss["mse_loss"] if target is not None else None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, help="where the generated package lies")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one here, and print it as JSON")
    given = parser.parse_args()
    if given.variant:
        print(json.dumps(measure(given.packages, given.name, given.variant)))
        return
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(given.rounds):
        for variant in VARIANTS:
            command = [sys.executable, __file__, str(given.packages), given.name, "--variant", variant]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{variant}: {done.stderr[-2000:]}")
            found[variant].append(json.loads(done.stdout.splitlines()[-1]))
    for variant, runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in ("ms", "gb", "loss")}
        print(f"{given.name:12} {variant:24} {middle['ms']:8.1f} ms {middle['gb']:7.2f} GB  loss {middle['loss']:.4f}")


if __name__ == "__main__":
    main()
