"""The process of `prove_loading`, which imports torch and transformers."""

import logging
import re
from collections import Counter
from typing import Any

import torch
import transformers.modeling_utils  # which every modeling file imports: once, before the process is forked
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from omni_kit.layout.headers import TORCH_NAMES


def load(job: dict[str, Any]) -> dict[str, Any]:
    """Build the model, load the tensors without data, and return what the loader reports."""
    logging.disable(logging.ERROR)
    cls = getattr(transformers, job["class"])
    named = bool(job["config"]["model_type"])  # some parts have no model_type to be found by
    config = transformers.AutoConfig.for_model(**job["config"]) if named else cls.config_class(**job["config"])
    tensors = {
        key: torch.empty(shape, dtype=getattr(torch, TORCH_NAMES[dtype]), device="meta")
        for key, (dtype, shape) in job["tensors"].items()
    }
    with torch.device("meta"):
        built = cls._from_config(config)
    answer: dict[str, Any] = {
        "parameters": len(list(built.parameters())),
        "twice": _fed_twice(built, list(tensors)),
        "missing": [],
        "unexpected": [],
        "mismatched": [],
        "error": "",
    }
    try:
        _, info = cls.from_pretrained(
            None, config=config, state_dict=tensors, output_loading_info=True, device_map={"": "meta"},
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    except Exception as error:  # whatever the loader raises for these keys is the answer
        return answer | {"error": f"{type(error).__name__}: {error}".strip().splitlines()[0]}
    return answer | {
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(info["unexpected_keys"]),
        "mismatched": sorted(str(item[0]) for item in info["mismatched_keys"]),
    }


def _fed_twice(model: Any, keys: list[str]) -> list[str]:
    """Return parameters that two keys feed which no operation merges."""
    transforms = get_model_conversion_mapping(model)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    state = model.state_dict()
    counts: Counter[tuple[str, str | None, str]] = Counter()
    for key in keys:
        target, pattern = rename_source_key(key, renamings, converters, model.base_model_prefix, state)
        number = "".join(re.findall(r"\.[0-9]+(?=\.)", key)) if pattern else ""
        counts[target, pattern, number] += 1
    fused = {target for (target, pattern, _) in counts if pattern is None}
    merged = {target for (target, pattern, _) in counts if pattern is not None}
    repeated = {target for (target, _, _), count in counts.items() if count > 1}
    return sorted(repeated | (fused & merged))
