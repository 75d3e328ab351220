"""Every tensor is the one that follows from the original."""

from pathlib import Path

import torch
from omni_evals.grader import Grader
from safetensors.torch import load_file


def tensors(place: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, whatever its shards."""
    return {name: tensor for file in sorted(place.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Return whether dtype, shape and bits are the same."""
    return one is not None and one.dtype == other.dtype and torch.equal(one, other)


def grade(g: Grader) -> None:
    g.untouched()
    answer = g.layout("checkpoints/osprey-stacked")
    g.need(answer.data["verdict"] == "native", f"the experts are not canonical: {answer.data['verdict']}")
    old, new = tensors(g.app / "checkpoints/osprey"), tensors(g.app / "checkpoints/osprey-stacked")
    kept = {name: tensor for name, tensor in old.items() if ".experts." not in name}
    g.need(all(name in new and same(tensor, new[name]) for name, tensor in kept.items()), "something else was changed")
    for prefix in {name.partition(".experts.")[0] + ".experts" for name in old if ".experts." in name}:
        parts = {
            w: torch.stack([old[f"{prefix}.{j}.{w}_proj.weight"] for j in range(6)]) for w in ("gate", "up", "down")
        }
        gate_up = torch.cat([parts["gate"], parts["up"]], dim=1)
        g.need(same(new.get(f"{prefix}.gate_up_proj"), gate_up), f"{prefix}.gate_up_proj is not what it should be")
        g.need(same(new.get(f"{prefix}.down_proj"), parts["down"]), f"{prefix}.down_proj is not what it should be")
