"""The runs of VeOmni's trainer on the training files of an integration, with a small model and data set."""

import json
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.documents import read_mapping
from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import ADAPTED, ALONE, RESUMED, WHOLE, TrainingRun
from omni_kit.targets.veomni.runtime.trainer import (
    ONE_GPU,
    SAVED,
    STEPS,
    as_arguments,
    plain_settings,
    refused,
    several,
    small_settings,
)

FULL, LORA = ".yaml", "_lora.yaml"
_SAMPLES = 256
_LENGTH, _MEDIA_LENGTH = 64, 384  # tokens of a row
_UNKNOWN = "<unk>"
_AUX = "output_router_logits"
# What names the parts of stacked experts, which are no modules; VeOmni translates them into parameters.
_FUSED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class TextRuns:
    """The runs of one integration.

    Attributes:
        path: its directory; `package`, as it is imported.
        training_files: what the paths of its training files begin with.
        checkpoint: of the toy, in upstream's layout.
        modules: the last names of the model's modules.
        where: for models, data and what the trainer writes.
        processor: writes a processor of media into a directory; None for text alone.
    """

    path: Path
    training_files: str
    package: str
    checkpoint: Path
    modules: Set[str]
    where: Path
    processor: Callable[[Path], None] | None = None

    def planned(self) -> tuple[list[TrainingRun], list[str]]:
        """The runs, in order; and what is wrong with the training files."""
        if self.processor is None:
            self._make_model(self._model)
        self._make_model(self._plain_model, {_AUX: False})
        runs = list(self._runs())
        return runs, [*refused(runs), *self._unknown_modules()]

    def _unknown_modules(self) -> Iterator[str]:
        """Yield the modules in the adapters' training file that the model does not have: peft ignores them silently."""
        settings = read_mapping(self._own(LORA)).get("model") or {} if self._own(LORA).is_file() else {}
        named = (settings.get("lora_config") or {}).get("lora_modules") or []
        known = set(self.modules) | set(_FUSED)
        if isinstance(named, list) and (unknown := [one for one in named if str(one).rpartition(".")[2] not in known]):
            names = ", ".join(map(str, unknown))
            yield f"{self._own(LORA).name}: lora_modules names {names}, which the model does not have"

    def _own(self, ending: str) -> Path:
        """Return a training file as it is."""
        return Path(f"{self.training_files}{ending}")

    @property
    def _model(self) -> Path:
        """With media, without the router's loss: upstream takes it over a sample, VeOmni over those of a row."""
        return self.where / "model" if self.processor is None else self._plain_model

    @property
    def _plain_model(self) -> Path:
        """Without the router's loss, which VeOmni also takes over padding."""
        return self.where / "model_without_router_loss"

    @cached_property
    def _data(self) -> Path:
        """A data set by the integration's own maker."""
        made = self.where / "data.jsonl"
        made.parent.mkdir(parents=True, exist_ok=True)
        with replaced(sys, "argv", ["make_data", str(made), "--samples", str(_SAMPLES)]):
            runpy.run_path(str(self.path / "make_data.py"), run_name="__main__")
        return made

    @cached_property
    def _repeated(self) -> Path:
        """One sample of it, again and again; the second, because the first has no media."""
        made = self.where / "repeated.jsonl"
        second = self._data.read_text(encoding="utf-8").splitlines()[1]
        made.write_text(f"{second}\n" * _SAMPLES, encoding="utf-8")
        return made

    @cached_property
    def _words(self) -> list[str]:
        """Every word of the data, and those of VeOmni's chat template."""
        rows = [json.loads(line) for line in self._data.read_text(encoding="utf-8").splitlines()]
        said = [f"{message['role'].title()}: {message['content']}" for row in rows for message in row["messages"]]
        return sorted({word for line in said for word in line.split()})

    def _make_model(self, place: Path, more: Mapping[str, Any] | None = None) -> None:
        """The toy's checkpoint with a tokenizer or a processor next to it, as checkpoints are published."""
        shutil.copytree(self.checkpoint, place, dirs_exist_ok=True)
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        for part in (config, *_parts(config)):
            part |= {key: value for key, value in (more or {}).items() if key in part}
        (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if self.processor is not None:
            self.processor(place)
        else:
            size = next(int(part["vocab_size"]) for part in (config, *_parts(config)) if "vocab_size" in part)
            self._write_tokenizer(place, size)

    def _write_tokenizer(self, place: Path, size: int) -> None:
        """A tokenizer of the data's words."""
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        known = ["<eos>", _UNKNOWN, *self._words][:size]
        made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token=_UNKNOWN))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        own = {"eos_token": "<eos>", "unk_token": _UNKNOWN, "pad_token": "<eos>"}
        PreTrainedTokenizerFast(tokenizer_object=made, **own).save_pretrained(place)

    def _runs(self) -> Iterator[TrainingRun]:
        out = self.where / "out"
        saving = [f"--train.checkpoint.{name}={SAVED}" for name in ("save_steps", "hf_save_steps")]
        last = out / WHOLE / "checkpoints" / f"global_step_{STEPS}"
        yield self._run(WHOLE, FULL, several(), self._model, self._data, saving, export=str(last / "hf_ckpt"))
        middle = out / WHOLE / "checkpoints" / f"global_step_{SAVED}"
        resuming = [f"--train.checkpoint.load_path={middle}"]
        yield self._run(RESUMED, FULL, several(), self._model, self._data, resuming, first=SAVED + 1, resumes=WHOLE)
        alone = [*as_arguments(ONE_GPU), "--train.pad_to_length=true"]
        yield self._run(ALONE, FULL, 1, self._plain_model, self._repeated, alone)
        if self._own(LORA).is_file():
            adapter = str(out / ADAPTED / f"global_step_{STEPS}")
            yield self._run(ADAPTED, LORA, several(), self._model, self._data, saving[:1], adapter=adapter)
            middle = out / ADAPTED / "checkpoints" / f"global_step_{SAVED}"
            resuming = [f"--train.checkpoint.load_path={middle}"]
            more = {"first": SAVED + 1, "resumes": ADAPTED}
            yield self._run(f"{ADAPTED} and {RESUMED}", LORA, several(), self._model, self._data, resuming, **more)

    def _run(
        self, name: str, file: str, processes: int, model: Path, data: Path, more: Sequence[str], **fields: Any
    ) -> TrainingRun:
        told = small_settings(data, self.where / "out" / name) | {
            "model.model_path": model,
            "data.chat_template": "default",
            "data.max_seq_len": _LENGTH if self.processor is None else _MEDIA_LENGTH,
        }
        if self.processor is not None:  # what VeOmni's trainer takes to be a tower has a rate of its own
            told["train.vit_lr"] = told["train.optimizer.lr"]
        arguments = [str(self._own(file)), *as_arguments(told), *plain_settings(), *more]
        return TrainingRun(name, f"{self.package}.train", arguments, processes, str(model), **fields)


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (value for value in config.values() if isinstance(value, dict))
