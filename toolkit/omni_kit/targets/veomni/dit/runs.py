"""The runs of VeOmni's DiT trainer on the training files of an integration, with a small pipeline and data set."""

import json
import runpy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from omni_kit.documents import read_mapping
from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import ADAPTED, ALONE, EMBEDDED, OFFLINE, RESUMED, WHOLE, TrainingRun
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

_FULL, _LORA = ".yaml", "_lora.yaml"
_SAMPLES = 16


@dataclass(frozen=True)
class DitRuns:
    """The runs of one integration.

    Attributes:
        path: its directory; `package`, as it is imported.
        training_files: what the paths of its training files begin with.
        pipeline: a small pipeline on disk; `denoiser`, the folder of its transformer.
        signed: what VeOmni's config of the transformer says next to diffusers' own: the keys of the registry.
        where: for data and what the trainer writes.
        media: options of the data maker, for media that the pipeline draws.
    """

    path: Path
    training_files: str
    package: str
    pipeline: Path
    denoiser: str
    signed: Mapping[str, str]
    where: Path
    media: Mapping[str, object]

    def planned(self) -> tuple[list[TrainingRun], list[str]]:
        """The runs, in order; and what is wrong with the training files."""
        module = f"{self.package}.train"
        files = [self._own(name) for name in (_FULL, _LORA) if self._own(name).is_file()]
        own = [TrainingRun(file.name, module, [str(file), *plain_settings()], several(), "") for file in files]
        runs = list(self._runs(module))
        return runs, list(refused([*own, *runs]))

    @cached_property
    def _data(self) -> Path:
        """A data set by the integration's own maker."""
        made = self.where / "data.jsonl"
        made.parent.mkdir(parents=True, exist_ok=True)
        options = {"--samples": _SAMPLES, **self.media}
        text = (self.path / "make_data.py").read_text(encoding="utf-8")
        told = [part for name, value in options.items() if name in text for part in (name, str(value))]
        with replaced(sys, "argv", ["make_data", str(made), *told]):
            runpy.run_path(str(self.path / "make_data.py"), run_name="__main__")
        return made

    @cached_property
    def _repeated(self) -> Path:
        made = self.where / "repeated.jsonl"
        first = self._data.read_text(encoding="utf-8").splitlines()[0]
        made.write_text(f"{first}\n" * _SAMPLES, encoding="utf-8")
        return made

    @cached_property
    def _config(self) -> Path:
        """The transformer's config as VeOmni reads it."""
        values = json.loads((self.pipeline / self.denoiser / "config.json").read_text(encoding="utf-8"))
        made = self.where / "config" / "config.json"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps({**values, **self.signed}), encoding="utf-8")
        return made

    def _own(self, ending: str) -> Path:
        """Return a training file as it is."""
        return Path(f"{self.training_files}{ending}")

    def _file(self, name: str) -> Path:
        """Return a training file with the one setting that the command line cannot give: encoders in float32."""
        values = read_mapping(self._own(name))
        values["model"].setdefault("condition_model_cfg", {})["torch_dtype_of_encoders"] = "float32"
        made = self.where / "files" / self._own(name).name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(yaml.safe_dump(values), encoding="utf-8")
        return made

    def _runs(self, module: str) -> Iterator[TrainingRun]:
        out = self.where / "out"
        online: dict[str, object] = {"train.training_task": "online_training"}
        saving: dict[str, object] = {f"train.checkpoint.{name}": SAVED for name in ("save_steps", "hf_save_steps")}
        steps = out / WHOLE / "checkpoints"
        export = str(steps / f"global_step_{STEPS}" / "hf_ckpt")
        yield self._run(WHOLE, module, _FULL, several(), self._data, online | saving, export=export)
        middle: dict[str, object] = {"train.checkpoint.load_path": steps / f"global_step_{SAVED}"}
        yield self._run(RESUMED, module, _FULL, several(), self._data, online | middle, first=SAVED + 1, resumes=WHOLE)
        yield self._run(ALONE, module, _FULL, 1, self._data, {**online, **ONE_GPU})
        stored = self.where / "embeddings"
        storing = {
            "train.training_task": "offline_embedding",
            "data.offline_embedding_save_dir": stored,
            "train.max_steps": _SAMPLES,
        }
        yield self._run(EMBEDDED, module, _FULL, several(), self._data, storing)
        yield self._run(OFFLINE, module, _FULL, several(), stored, {"train.training_task": "offline_training"})
        if self._own(_LORA).is_file():
            adapter = str(out / ADAPTED / f"global_step_{STEPS}")
            saved: dict[str, object] = {"train.checkpoint.save_steps": SAVED}
            yield self._run(ADAPTED, module, _LORA, several(), self._data, online | saved, adapter=adapter)
            middle = {"train.checkpoint.load_path": out / ADAPTED / "checkpoints" / f"global_step_{SAVED}"}
            more = {"first": SAVED + 1, "resumes": ADAPTED}
            yield self._run(f"{ADAPTED} and {RESUMED}", module, _LORA, several(), self._data, online | middle, **more)

    def _run(
        self, name: str, module: str, file: str, processes: int, data: Path, more: Mapping[str, object], **fields: Any
    ) -> TrainingRun:
        told = small_settings(data, self.where / "out" / name) | {
            "model.model_path": self.pipeline / self.denoiser,
            "model.config_path": self._config,
            "model.condition_model_path": self.pipeline,
        }
        arguments = [str(self._file(file)), *as_arguments(told), *plain_settings(), *as_arguments(more)]
        return TrainingRun(name, module, arguments, processes, str(self.pipeline / self.denoiser), **fields)
