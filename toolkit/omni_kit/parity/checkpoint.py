"""Makes a toy checkpoint in upstream's own layout."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.isolation.limits import Limits
from omni_kit.isolation.worker import StepError, Worker
from omni_kit.parity.candidate import Layout, require
from omni_kit.parity.processes.workers import SERVICE, Sides, preloaded
from omni_kit.targets.sides import PIPELINE, PIPELINES, REFERENCES
from omni_kit.upstream.diffusers.local_pipelines import absolute
from omni_kit.upstream.subject import open_source


def make_toy_checkpoint(
    source: str | Path, out_dir: Path, *, layout: Layout = "hub", sides: Sides | None = None
) -> Path:
    """Write a small checkpoint as upstream saves one: sharded safetensors with an index, config.json.

    Every element of every weight differs, float32. The same source gives the same bytes.

    Args:
        source: a model_type, a class of diffusers, a file that defines a pipeline, a config.json to derive a toy from,
            or a toy_config.json to use as it is. A pipeline is written as a whole, with model_index.json.
        out_dir: the directory to write; must be empty or absent.
        layout: "hub" as upstream saves it; "memory" with the names and shapes that its model has, experts fused.
        sides: processes to use and to leave running; None starts one and ends it.

    Returns:
        `out_dir`.

    Raises:
        BadInput: `out_dir` holds something, or upstream cannot build the source.
        MissingRequirement: torch is not installed.
    """
    if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
        raise BadInput(f"{out_dir} is not empty", "pass a new directory")
    require({}, "a toy checkpoint")
    path = str(source.resolve()) if isinstance(source, Path) else absolute(source)
    subject = open_source(path)
    builder, batch_builder = REFERENCES[subject.library.name] if subject.pipeline is None else (PIPELINES, PIPELINE)
    from omni_kit.parity.processes.steps import Open, SaveToy  # which import torch

    with ExitStack() as stack:
        if sides is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            worker = stack.enter_context(
                Worker("reference", logs, limits=Limits.of_machine(), service=SERVICE, modules=preloaded(builder))
            )
        else:
            worker = sides.worker("reference")
        try:
            worker.ask(Open(builder, batch_builder=batch_builder))
            worker.ask(SaveToy(path, out_dir.resolve(), layout))
        except StepError as error:
            raise BadInput(f"no toy checkpoint of {source}: {error}") from error
    return out_dir
