"""Converts a checkpoint of Lumen to diffusers: the transformer alone, or a whole pipeline with its VAE.

python -m lumen.convert_lumen_to_diffusers --checkpoint model.safetensors --config config.json --output out
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from lumen import LumenTransformer2DModel, convert_lumen_transformer_checkpoint_to_diffusers
from safetensors.torch import load_file

_MOST_PREFIXES = 100


def weights(checkpoint: Path, ema: bool = True) -> list[dict[str, torch.Tensor]]:
    """The sets of tensors in the authors' file by their names, the largest first.

    Args:
        checkpoint: safetensors, a folder or an index of them, or a pickle of which torch reads nothing but tensors and
            plain values.
        ema: take the averaged weights where the file has both.
    """
    if checkpoint.is_dir() or checkpoint.name.endswith(".index.json"):
        return [in_parts(checkpoint)]
    if checkpoint.suffix == ".safetensors":
        return [load_file(checkpoint)]
    with torch.serialization.safe_globals([argparse.Namespace]):  # training scripts save their options, too
        read = torch.load(checkpoint, map_location="cpu", weights_only=True)
    sets = tensors_in(read, "")
    if not sets:
        raise SystemExit(f"{checkpoint} contains no tensors")
    for name, parameters in lists_in(read, "") if ema else ():
        if "shadow" in name:  # the averages of a library that keeps no names
            return [averaged(parameters, max(sets.values(), key=len))]
    fitting = {name: one for name, one in sets.items() if ("ema" in name) == ema} or sets
    return sorted(fitting.values(), key=len, reverse=True)


def in_parts(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The tensors of all files of a folder, or of those that an index names."""
    if checkpoint.is_dir():
        files = sorted(checkpoint.glob("*.safetensors"))
    else:
        named = json.loads(checkpoint.read_text(encoding="utf-8"))["weight_map"].values()
        files = [checkpoint.parent / name for name in sorted(set(named))]
    if not files:
        raise SystemExit(f"{checkpoint} contains no safetensors: pass one file of the authors' weights")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def tensors_in(value, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """Every set of tensors in a file: where it stands -> its tensors."""
    if not isinstance(value, Mapping):
        return {}
    own = {key: one for key, one in value.items() if isinstance(one, torch.Tensor)}
    found = {name: own} if own else {}
    for key, one in value.items():
        found.update(tensors_in(one, f"{name}.{key}"))
    return found


def lists_in(value, name: str) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Every list of tensors in a file, with where it stands."""
    if isinstance(value, list | tuple) and value and all(isinstance(one, torch.Tensor) for one in value):
        yield name, list(value)
    for key, one in value.items() if isinstance(value, Mapping) else ():
        yield from lists_in(one, f"{name}.{key}")


def averaged(parameters: list[torch.Tensor], trained: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The trained tensors, with averages instead of the parameters: a list has these in order, and no buffers."""
    names, first, last = list(trained), [], []
    for found, given, order in ((first, parameters, names), (last, parameters[::-1], names[::-1])):
        left = iter(order)
        for one in given:  # the next that has its shape, from the front and from the back
            found.append(next((name for name in left if trained[name].shape == one.shape), None))
    if None in first or first != last[::-1]:
        raise SystemExit(
            "the averaged weights are a list that fits the names in several ways, or in none: pass --no-ema"
        )
    return trained | dict(zip(first, parameters))


def converted(checkpoint: Path, config: dict, ema: bool = True) -> LumenTransformer2DModel:
    """The model with the authors' weights: every tensor of theirs has a place, and every parameter a tensor."""
    model = LumenTransformer2DModel(**config)
    model.load_state_dict(of_model(weights(checkpoint, ema), model), strict=True)
    return model


def of_model(sets: list[dict[str, torch.Tensor]], model: LumenTransformer2DModel) -> dict[str, torch.Tensor]:
    """The model's tensors: a whole set, or what stands below one prefix, as "module." or "diffusion.denoise_fn."."""
    wanted, first = model.state_dict().keys(), None
    for tensors in sets:
        heads = Counter(name[: at + 1] for name in tensors for at, letter in enumerate(name) if letter == ".")
        for head in ["", *(head for head, _ in heads.most_common(_MOST_PREFIXES))]:
            own = {name.removeprefix(head): one for name, one in tensors.items() if name.startswith(head)}
            found = convert_lumen_transformer_checkpoint_to_diffusers(own, config=model.config)
            if found.keys() == wanted:
                return found
            if first is None or len(wanted & found.keys()) > len(wanted & first.keys()):
                first = found  # what is missing there is named
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkpoint",
        type=Path,
        required=True,
        help="the authors' weights: safetensors, a folder or an index of them, .pt or .pth",
    )
    parser.add_argument(
        "--no-ema", action="store_true", help="take the weights that were trained, not the averaged ones"
    )
    parser.add_argument("--config", type=Path, help="JSON with the arguments of the model; defaults without it")
    parser.add_argument("--output", type=Path, required=True, help="where the transformer is written")
    parser.add_argument("--dtype", default="bfloat16", help="of the weights that are written")
    given = parser.parse_args()
    try:
        config = json.loads(given.config.read_text(encoding="utf-8")) if given.config else {}
    except json.JSONDecodeError as error:
        raise SystemExit(
            f"{given.config} is not JSON: pass the arguments of LumenTransformer2DModel as a JSON object"
        ) from error
    plain_config = {key: value for key, value in config.items() if not key.startswith("_")}
    model = converted(given.checkpoint, plain_config, ema=not given.no_ema)
    model.to(getattr(torch, given.dtype)).save_pretrained(given.output)


if __name__ == "__main__":
    main()
