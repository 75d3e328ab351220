"""Runs in a process of its own, because importing VeOmni patches transformers.

Each line of stdin is a job: a plugin directory, a checkpoint and options. Feeds the checkpoint through the plugin's
converter, in shuffled order, and answers with a line: name -> digest of the bytes of what came out, or the error.
"""

import hashlib
import importlib.util
import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safetensors.torch import load_file


def load_converter(plugin: Path) -> Any:
    path = plugin / "checkpoint_tensor_converter.py"
    spec = importlib.util.spec_from_file_location("converter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(plugin: Path, checkpoint: Path, nested: bool, drop: str | None) -> dict[str, Any]:
    module = load_converter(plugin)
    config = SimpleNamespace(**json.loads((checkpoint / "config.json").read_text()))
    model = SimpleNamespace(config=SimpleNamespace(text_config=config) if nested else config)
    converter = getattr(module, f"create_{plugin.name}_checkpoint_tensor_converter")(model)
    tensors = {k: v for shard in sorted(checkpoint.glob("*.safetensors")) for k, v in load_file(shard).items()}
    names = [name for name in tensors if name != drop]
    random.Random(0).shuffle(names)
    out = {}
    for name in names:
        if not converter.can_handle(name):
            out[name] = tensors[name]
        elif (converted := converter.convert(name, tensors[name])) is not None:
            assert converted.name not in out
            out[converted.name] = converted.tensor
    try:
        error = ""
        out |= {converted.name: converted.tensor for converted in converter.finalize()}
    except RuntimeError as raised:
        error = str(raised)
    index = getattr(module, f"convert_{plugin.name}_fqn_to_index_mapping")({name: i for i, name in enumerate(tensors)})
    digests = {k: hashlib.sha256(v.contiguous().numpy().tobytes()).hexdigest() for k, v in out.items()}
    return {"tensors": digests, "shapes": {k: list(v.shape) for k, v in out.items()}, "error": error, "index": index}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        plugin, checkpoint, *options = json.loads(line)
        drop = next((option[5:] for option in options if option.startswith("drop=")), None)
        try:
            answer = main(Path(plugin), Path(checkpoint), "nested" in options, drop)
        except Exception as error:
            answer = {"failed": repr(error)}
        print(json.dumps(answer), file=answers, flush=True)
