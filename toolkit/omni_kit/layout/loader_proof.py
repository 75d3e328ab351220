"""The proof that a checkpoint fills a model: transformers' own loader, on the meta device, in a process of its own.

The loader gets a tensor without data for every key of the headers, so it does all that it does when it loads, but for
moving bytes: renaming, stacking, transposing, comparing shapes.
"""

import importlib.util
from dataclasses import dataclass

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.requests import run_worker
from omni_kit.isolation.worker import StepError
from omni_kit.layout.accounting import Accounting
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.upstream.transformers.models import UpstreamModel

_TIMEOUT = 600.0
_WORKER = "omni_kit.layout.loader_worker"


@dataclass(frozen=True)
class LoadProof:
    """The result of loading the keys with transformers' own loader.

    Attributes:
        missing: parameters that would be newly initialised.
        unexpected: what keys became that no parameter takes.
        mismatched: parameters that get another shape.
        twice: parameters that two keys feed.
        error: the loader's own error, if it raised one.
    """

    parameters: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    twice: tuple[str, ...]
    error: str

    @property
    def complete(self) -> bool:
        """Return whether the loader raised nothing, filled every parameter once and in its shape, and had no key
        left.
        """
        return not (self.missing or self.unexpected or self.mismatched or self.twice or self.error)


def prove_loading(checkpoint: Checkpoint, model: UpstreamModel, accounting: Accounting) -> LoadProof:
    """Load the headers into the model on the meta device.

    Keys that the accounting ignores for a reason are not given to the loader.

    Raises:
        MissingRequirement: torch is not installed.
        BadInput: only an index is there, or the model cannot be built.
    """
    if checkpoint.names_only:
        raise BadInput("--against-model needs shapes, and an index has none", "pass the shards")
    if importlib.util.find_spec("torch") is None:
        raise MissingRequirement("--against-model needs torch", "pip install torch accelerate")
    ignored = accounting.ignored_keys
    tensors = {
        key: [info.dtype, list(info.shape)] for key, info in checkpoint.tensors.items() if info and key not in ignored
    }
    job = {"class": model.class_name, "config": dict(model.config.given) | {"model_type": model.config.model_type}}
    try:
        answer = run_worker(
            f"{_WORKER}:load", {**job, "tensors": tensors}, timeout=_TIMEOUT, modules=["torch", _WORKER],
            path=[model.library.root.parent],
        )  # fmt: skip
    except StepError as error:
        raise BadInput(f"{model.class_name} cannot be built from this config: {error}") from error
    lists = {name: tuple(answer[name]) for name in ("missing", "unexpected", "mismatched", "twice")}
    return LoadProof(parameters=answer["parameters"], error=answer["error"], **lists)
