"""SGLang's engine in this process, on a CPU: one worker with one pipeline."""

import importlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from omni_kit.errors import BadInput
from omni_kit.targets.sglang_diffusion.runtime.stand_ins import register_stand_ins
from omni_kit.upstream.diffusers.pipelines import INDEX
from omni_kit.upstream.places import read_json

_PACKAGE = "SGLANG_EXTERNAL_MODEL_PACKAGE"
_PRECISION = {"dit_precision": "fp32", "vae_precision": "fp32"}


@dataclass(frozen=True)
class Opened:
    """A pipeline that is loaded.

    Attributes:
        pipeline: SGLang's, with its stages and its modules.
        arguments: the server's.
        stand_ins: packages that something stands in for.
    """

    pipeline: Any
    arguments: Any
    stand_ins: list[str]

    def generate(self, **asked: Any) -> torch.Tensor:
        """Pictures or films of one request, from 0 to 1; `asked` are fields of SamplingParams.

        Of several processes that serve together, some answer nothing: an empty tensor.
        """
        from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams
        from sglang.multimodal_gen.runtime.entrypoints.utils import prepare_request

        parameters = SamplingParams.from_user_sampling_params_args(
            self.arguments.model_path, server_args=self.arguments, save_output=False, **asked
        )
        answer = self.pipeline.forward(prepare_request(self.arguments, parameters), self.arguments)
        if getattr(answer, "error", None):
            raise BadInput(f"SGLang: {answer.error}")
        return torch.as_tensor([] if answer.output is None else answer.output)


def open_pipeline(
    checkpoint: Path, package: Path | None, options: Mapping[str, Any] | None = None, rank: int = 0
) -> Opened:
    """Load a pipeline of diffusers with SGLang, in float32, on a CPU.

    Args:
        package: the plugin that serves it; None for SGLang's own pipeline.
        options: more arguments of the server.
        rank: of this process, where several serve and have found each other.

    Raises:
        BadInput: the pipeline that SGLang chose is not that of the plugin.
    """
    stand_ins = prepare(package)
    from sglang.multimodal_gen.runtime.managers.cpu_worker import CPUWorker

    encoders = {"text_encoder_precisions": ("fp32",) * _encoders(checkpoint)}
    arguments = server_arguments(checkpoint, {**_PRECISION, **encoders, **(options or {})})
    pipeline = CPUWorker(rank, rank, free_port(), arguments).pipeline
    if package is not None and type(pipeline).__module__.partition(".")[0] != package.name:
        raise BadInput(f"SGLang chose {type(pipeline).__module__} for {checkpoint}, not the pipeline of {package.name}")
    return Opened(pipeline, arguments, stand_ins)


def _encoders(checkpoint: Path) -> int:
    """Return the number of text encoders in the config of the checkpoint's pipeline."""
    from sglang.multimodal_gen import registry

    name = read_json(checkpoint / INDEX)["_class_name"]
    known = registry._PIPELINE_CONFIG_REGISTRY.get(name)
    return len(known[0]().text_encoder_configs) if known is not None else 1


def prepare(package: Path | None) -> list[str]:
    """Make SGLang importable on a CPU, and the plugin known to it; return the packages that have a stand-in."""
    stand_ins = register_stand_ins()
    os.environ.setdefault("SGLANG_DIFFUSION_PLATFORM_OVERRIDE", "cpu")
    if package is not None:
        os.environ[_PACKAGE] = package.name
        sys.path.insert(0, str(package.resolve().parent))
        importlib.import_module(package.name)
    return stand_ins


def server_arguments(checkpoint: Path, options: Mapping[str, Any]) -> Any:
    """Return the arguments of a server, of one process by default, made known to SGLang."""
    from sglang.multimodal_gen.runtime.server_args import ServerArgs, set_global_server_args

    known = {"num_gpus": 1, "backend": "sglang", **options}
    arguments = ServerArgs.from_kwargs(model_path=str(checkpoint), **known)
    set_global_server_args(arguments)
    return arguments


def free_port() -> int:
    """Return a port of this machine that nobody listens to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
