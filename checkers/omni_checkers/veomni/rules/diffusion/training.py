"""The rule about files that training begins with: VEO637."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.checkout import training_configs
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.sides import COMPANION
from omni_kit.documents import read_json, read_yaml
from omni_kit.files import files_matching
from omni_kit.targets.veomni.model_dir import ModelDir
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.kinds import Kind

_MODES = ("ddp", "fsdp2")
_TYPES = frozenset({"_class_name", "_diffusers_version", "model_type", COMPANION})
_YAML = """\
model:
  config_path: wan.json
data:
  data_type: diffusion
  text_keys: prompt
train:
  init_device: meta
  accelerator:
    fsdp_config:
      fsdp_mode: fsdp2
"""
_JSON = '{"_class_name": "WanTransformer3DModel", "model_type": "WanTransformer3DModel", "num_layers": 2}\n'


class TrainingFilesFitModel(Rule):
    """Write training files and model configs that the trainer and diffusers' class accept.

    `fsdp_mode` is ddp or fsdp2, the latter with `init_device: meta`. `data_type` is diffusion, with `text_keys`. A
    model config in JSON names a registered type and only parameters of diffusers' class.

    Why: VeOmni has removed FSDP1 and rejects it at start, as it rejects FSDP2 with another device. A misspelled
    parameter in JSON goes into `**kwargs`, and the model is built with the default.

    Fine when: the file is for another trainer; then keep it out of the model's directory.
    """

    id = "VEO637"
    name = "training-files-fit-diffusion-model"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-40", "DIT-41")
    failure_modes = ("weights-path-not-forwarded",)
    example_of = "wan_t2v"
    BAD = (
        {"wan.yaml": _YAML.replace("fsdp2", "fsdp1")},
        {"wan.yaml": _YAML.replace("  text_keys: prompt\n", "")},
        {"wan.json": _JSON.replace("num_layers", "n_layers")},
    )
    GOOD = ({"wan.yaml": _YAML, "wan.json": _JSON},)

    def check(self, model_dir: ModelDir, diffusion: Diffusion) -> Findings:
        trained = [*files_matching(model_dir.path, "**/*.y*ml"), *training_configs(model_dir)]
        built = [file for file in files_matching(model_dir.path, "**/*.json") if _of_model(file)]
        if not trained and not built:
            raise NotApplicable("the model's directory has no training configuration and no model config")
        for file in trained:
            yield from _training(file)
        for file in built:
            yield from _model(file, diffusion)


def _training(file: Path) -> Iterator[Finding]:
    try:
        text = file.read_text(encoding="utf-8")
        values = read_yaml(text)
    except (OSError, ValueError):
        return
    train, data = _inside(values, "train"), _inside(values, "data")
    if not isinstance(train, dict) or not train:
        return
    fsdp = _inside(train, "accelerator", "fsdp_config")
    mode, device = fsdp.get("fsdp_mode", "fsdp2"), train.get("init_device")
    if mode not in _MODES:
        yield Finding(f"fsdp_mode is '{mode}': VeOmni takes {' or '.join(_MODES)}", file, _line(text, "fsdp_mode"))
    elif mode == "fsdp2" and device not in {None, "meta"}:
        yield Finding(f"init_device is '{device}': FSDP2 needs meta", file, _line(text, "init_device"))
    if data and data.get("data_type") != "diffusion":
        message = f"data_type is {data.get('data_type')!r}, but the model is a diffusion model"
        yield Finding(message, file, _line(text, "data_type"), severity=Severity.warning)
    elif data and not data.get("text_keys"):
        message = "data.text_keys is missing: VeOmni has no default for diffusion and rejects the file"
        yield Finding(message, file, _line(text, "data_type"))


def _model(file: Path, diffusion: Diffusion) -> Iterator[Finding]:
    text = file.read_text(encoding="utf-8")
    values: dict[str, Any] = read_json(text)
    keys, upstream = {side.key for side in diffusion.sides}, diffusion.upstream
    named = values.get("model_type", values.get("_class_name"))
    if named not in keys:
        yield Finding(f"'{named}' is not a key that the model registers", file, _line(text, str(named)))
    elif upstream is not None and diffusion.transformer is not None and named == diffusion.transformer.key:
        for key in values:
            if key not in arguments(upstream) and key not in _TYPES:
                yield Finding(f"{upstream.node.name} takes no '{key}'", file, _line(text, f'"{key}"'))


def _of_model(file: Path) -> bool:
    """Return whether a file is the config of a diffusion model."""
    try:
        values = read_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and ("_class_name" in values or COMPANION in values)


def _inside(values: Any, *names: str) -> dict[str, Any]:
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _line(text: str, word: str) -> int:
    return next((number for number, line in enumerate(text.splitlines(), 1) if word in line), 1)
