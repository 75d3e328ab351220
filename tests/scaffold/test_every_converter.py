"""Every converter that can be written, on what transformers saves: it must give the parameters that were saved.

The converters are run in one process of their own, since importing VeOmni patches transformers.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.layout import LayoutVerdict, check_layout
from omni_kit.layout.taxonomy import Converter
from omni_kit.scaffold.converter import write_converter
from tests.moe_models import build, modeling_files, moe_classes, saved

NONE = {None, Converter.none, Converter.unsupported}

RUN = """
import importlib.util, json, sys
from pathlib import Path
import torch, transformers
from safetensors.torch import load_file
import veomni.models
for directory, (module, name) in json.load(sys.stdin).items():
    directory = Path(directory)
    spec = importlib.util.spec_from_file_location("mine", directory / "mine.py")
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    config = getattr(importlib.import_module(module), name).from_pretrained(directory)
    modeling = importlib.import_module(module.replace("configuration_", "modeling_"))
    with torch.device("meta"):
        model = getattr(modeling, directory.name)(config)
    converter = mine.create_mine_checkpoint_tensor_converter(model)
    made, shards = {}, {}
    for file in sorted(directory.glob("*.safetensors")):
        for key, tensor in load_file(file).items():
            shards[key] = 1
            if not converter.can_handle(key):
                made[key] = tensor
            elif (done := converter.convert(key, tensor)) is not None:
                made[done.name] = done.tensor
    made |= {done.name: done.tensor for done in converter.finalize()}
    wanted = load_file(directory / "wanted" / "model.safetensors")
    prefix = (directory / "prefix").read_text()
    plain = {key.removeprefix(prefix): value for key, value in made.items()}
    lost = [key for key in wanted if key.removeprefix(prefix) not in plain]
    wrong = [k for k, v in wanted.items() if k not in lost and not torch.equal(v, plain[k.removeprefix(prefix)])]
    mapped = set(mine.convert_mine_fqn_to_index_mapping(shards))
    tied = set(model.all_tied_weights_keys)  # VeOmni saves no tied parameter that the mapping does not name
    unmapped = sorted(set(made) - mapped - tied)
    print(json.dumps({"of": str(directory), "lost": lost, "wrong": wrong, "unmapped": unmapped}))
"""


def loads_as_it_lies(verdict: LayoutVerdict, model: Any, tensors: dict[str, Any]) -> None:
    """Where no converter is needed, a key of experts is a parameter, element by element."""
    assert verdict.accounting is not None
    held = dict(model.named_parameters())
    for tree in verdict.subtrees:
        head = tree.prefix.partition("*")[0]
        fed = [(key, names) for key, names in verdict.accounting.feeds.items() if key.startswith(head)]
        for key, names in fed:
            if ".experts" in key and len(names) == 1 and names[0] in held:
                assert tensors[key].equal(held[names[0]]), key


@pytest.mark.sweep
def test_every_converter_gives_the_parameters(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    jobs: dict[str, tuple[str, str]] = {}
    refused: set[tuple[str, str]] = set()
    for cls in (cls for module in modeling_files() for cls in moe_classes(module)):
        directory = tmp_path / cls.__name__
        model = build(cls)
        tensors = saved(model, directory)
        verdict = check_layout(str(directory))
        if verdict.converter in NONE and verdict.verdict != "mixed":
            continue
        assert verdict.model is not None
        try:
            said = write_converter(verdict, directory / "mine.py")
        except BadInput as error:
            refused.add((verdict.model.name, error.message.partition(" by ")[2].partition("(")[0]))
            continue
        if said.startswith("no converter was written: the modules hold them"):
            loads_as_it_lies(verdict, model, tensors)
            continue
        assert said.startswith("wrote"), cls
        (directory / "wanted").mkdir()
        held = {name: value.detach().clone().contiguous() for name, value in model.named_parameters()}
        save_file(held, directory / "wanted" / "model.safetensors")
        (directory / "prefix").write_text(f"{cls.base_model_prefix}.")  # type: ignore[attr-defined]
        kind = cls.config_class  # type: ignore[attr-defined]
        jobs[str(directory)] = (kind.__module__, kind.__name__)
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(jobs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(jobs) >= 35
    assert {kind for kind, what in refused if not what} <= {"longcat_flash"}, "refused for no operation of the recipe"
    assert {what for _, what in refused} <= {"", "PermuteForRope", "Chunk", "Concatenate"}
    faults = [answer for answer in answers if answer["lost"] or answer["wrong"] or answer["unmapped"]]
    assert not faults, json.dumps(faults, indent=1)[:20000]
