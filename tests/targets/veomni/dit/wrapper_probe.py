"""Looks at a generated wrapper, in a process of its own: VeOmni changes transformers for good.

python -m tests.targets.veomni.dit.wrapper_probe PACKAGES ANSWERS NAME CLASS
"""

import importlib
import json
import resource
import sys
from pathlib import Path
from typing import Any

import diffusers
import torch

from omni_kit.toys.batches.denoiser import TARGET, as_arguments, denoiser_inputs, samples_of

_LARGE = 10_000_000  # parameters: enough that a second model of them would show


def main(packages: Path, answers: Path, name: str, upstream: str) -> None:
    """Leaves what was found in one JSON file."""
    sys.path.insert(0, str(packages))
    theirs = getattr(diffusers, upstream)
    before = {key: getattr(theirs, key) for key in ("forward", "__init__", "save_pretrained", "from_pretrained")}
    package = importlib.import_module(f"{name}.{name}_transformer")
    cls = getattr(package, f"register_{name}_transformer_modeling")()
    config_class = getattr(package, f"register_{name}_transformer_config")()
    toy = json.loads((packages / name / "toy_config.json").read_text(encoding="utf-8"))
    config = config_class(**{key: value for key, value in toy.items() if not key.startswith("_")})
    found = {
        "untouched": all(getattr(theirs, key) == value for key, value in before.items()),
        "peak": _peak(cls, config_class),
        **_saved(cls, config, theirs, packages / "saved"),
        **_mixed(cls(config), theirs.from_config(config.to_diffuser_dict())),
        **_run(cls(config).train(), theirs.from_config(config.to_diffuser_dict())),
    }
    answers.write_text(json.dumps(found), encoding="utf-8")


def _peak(cls: Any, config_class: Any) -> float:
    """What building a model takes at most, as a multiple of its parameters' size; the default is many times larger."""
    config = config_class(num_layers=1, num_attention_heads=16, attention_head_dim=64, ffn_dim=4096)
    cls(config_class(num_layers=1, num_attention_heads=2, attention_head_dim=12, ffn_dim=32))  # imports are done
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = cls(config)
    size: int = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert size > 4 * _LARGE
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024 / size


def _saved(cls: Any, config: Any, theirs: Any, out: Path) -> dict[str, Any]:
    model = cls(config)
    model.save_pretrained(out)
    again, upstream = cls.from_pretrained(out), theirs.from_pretrained(out)
    renamed = type("Mine", (cls,), {})
    renamed(config).save_pretrained(out.with_name("renamed"))
    saved = json.loads((out.with_name("renamed") / "config.json").read_text(encoding="utf-8"))
    try:
        model.save_pretrained(out, safe_serialization=object(), variant=3)
    except Exception:  # whatever fails, the config must be back
        failed = True
    else:
        failed = False
    return {
        "files": sorted(file.name for file in out.iterdir()),
        "config_back": isinstance(model.config, type(config)),
        "failed": failed,
        "again": type(again) is cls and isinstance(again.config, type(config)),
        "equal": _equal(model, again) and _equal(model, upstream),
        "renamed": saved["_class_name"],
        "own_keys": sorted(key for key in saved if key not in dict(upstream.config) and not key.startswith("_")),
    }


def _equal(one: Any, other: Any) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def _run(model: Any, upstream: Any) -> dict[str, Any]:
    samples = samples_of(denoiser_inputs(upstream))
    fed = [{**as_arguments(sample), TARGET: sample[TARGET]} for sample in samples]
    batch = {key: [one[key] for one in fed] for key in fed[0]}
    answer = model(**batch)
    errors = [(one - sample[TARGET]).square().mean() for one, sample in zip(answer.predictions, samples, strict=True)]
    plain = _gradients(model, batch)
    model.gradient_checkpointing_enable()
    calls, inner = [], model._gradient_checkpointing_func

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return inner(*args, **kwargs)

    model._gradient_checkpointing_func = counted
    checkpointed = _gradients(model, batch)
    return {
        "loss": float(answer.loss["mse_loss"].detach()),
        "mean": float(torch.stack(errors).mean().detach()),
        "without_targets": model(**{key: values for key, values in batch.items() if key != TARGET}).loss is None,
        "checkpoints": len(calls),
        "checkpointed": all(torch.equal(plain[key], checkpointed[key]) for key in plain),
        "blocks": sorted({type(one).__name__ for one in model.modules()} & set(model._no_split_modules)),
        "declared": sorted(model._no_split_modules),
    }


def _mixed(model: Any, upstream: Any) -> dict[str, float]:
    """The loss of features and weights of different precisions, and of float32 throughout."""
    samples = samples_of(denoiser_inputs(upstream))
    fed = [{**as_arguments(sample), TARGET: sample[TARGET]} for sample in samples]
    batch = {key: [one[key] for one in fed] for key in fed[0]}
    low = {key: [_low(one) for one in values] if key != TARGET else values for key, values in batch.items()}
    runs = [("float32", model, batch), ("low features", model, low)]
    found = {name: float(one(**given).loss["mse_loss"].detach()) for name, one, given in runs}
    return {**found, "low weights": float(model.bfloat16()(**batch).loss["mse_loss"].detach())}


def _low(value: torch.Tensor) -> torch.Tensor:
    return value.bfloat16() if value.is_floating_point() and value.dim() > 1 else value


def _gradients(model: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.autograd.backward(torch.stack(list(model(**batch).loss.values())).sum())
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
