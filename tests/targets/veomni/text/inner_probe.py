"""Runs in a process of its own, because importing VeOmni patches transformers.

Loads weights with VeOmni's loader into a registered class of a plugin, and prints as JSON which tensors then differ
from the expected ones, for each checkpoint.

Arguments: the plugin, the class, a file with what is expected, and checkpoints, the first with the whole's config.
"""

import importlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig
from veomni.models.loader import MODELING_REGISTRY
from veomni.models.module_utils import load_model_weights

plugin, name, expected, *checkpoints = sys.argv[1:]
sys.path.insert(0, str(Path(plugin).parent))
importlib.import_module(Path(plugin).name)
config = AutoConfig.from_pretrained(checkpoints[0])
made = MODELING_REGISTRY[config.model_type](name)
wrong = {}
for checkpoint in checkpoints:
    model = made._from_config(config if made.config_class is type(config) else config.get_text_config())
    load_model_weights(model, checkpoint, init_device="cpu")
    loaded = model.state_dict()
    differ = [key for key, held in load_file(expected).items() if not torch.equal(held, loaded[key])]
    wrong[Path(checkpoint).name] = differ
print(json.dumps(wrong))
