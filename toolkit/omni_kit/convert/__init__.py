"""Converting checkpoints between the layout on the hub, the one in memory and the canonical one, losing nothing."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from omni_kit.convert.casts import CASTS
from omni_kit.convert.forms import Form
from omni_kit.convert.plan import ConversionPlan, make_plan, parse_size
from omni_kit.convert.renaming import RenamedCheckpoint, apply_renames
from omni_kit.convert.run import JOBS, Converted, Progress, run_plan, silent
from omni_kit.errors import BadInput
from omni_kit.layout import Checkpoint, judge, read_weights
from omni_kit.upstream.places import path_of, refuse_pickles
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.models import UpstreamModel

__all__ = ["ConversionPlan", "Converted", "Form", "RenamedCheckpoint", "apply_renames", "convert", "make_plan"]


def convert(
    source: str,
    destination: Path,
    *,
    to: str,
    dtype: str | None = None,
    shard_size: str = "5GB",
    verify: bool = False,
    resume: bool = False,
    jobs: int = JOBS,
    transformers: Path | None = None,
    diffusers: Path | None = None,
    progress: Progress = silent,
) -> Converted:
    """Convert a checkpoint.

    Args:
        source: a checkpoint directory, a safetensors file, or an index.
        destination: a directory that is empty or not there.
        to: "canonical", "memory" or "hub".
        dtype: what floating tensors are cast to ("bfloat16"); scales and routing buffers are not.
        shard_size: of one file ("5GB").
        verify: read everything again and compare content hashes.
        resume: finish an interrupted run of the same command.
        jobs: threads.
        transformers, diffusers: other unpacked libraries to read instead of the installed ones.
        progress: wraps the steps while they are waited for, with a word for what is done.

    Raises:
        BadInput: nothing was written: bad arguments, a damaged checkpoint, a layout that has no such form or not
            without loss; or reading or writing failed.
        MissingRequirement: several ranks without torch.
    """
    form = Form(_one_of(to, Form, "form"))
    target = CASTS[_one_of(dtype, CASTS, "dtype")] if dtype else None
    size = parse_size(shard_size)
    subject = open_source(source, transformers=transformers, diffusers=diffusers)
    if subject.weights is None or subject.directory is None:
        if (path := path_of(source)) is not None and path.is_dir():
            refuse_pickles(path)
        raise BadInput(
            f"{source} contains no safetensors files to convert", "pass a checkpoint directory, file or index"
        )
    checkpoint = read_weights(subject)
    notes = (*subject.notes, *_whole(checkpoint, subject.known_model))
    plan = replace(make_plan(checkpoint, subject.known_model, form, target, size), notes=notes)
    return run_plan(plan, subject.directory, destination, resume=resume, verify=verify, jobs=jobs, progress=progress)


def _whole(checkpoint: Checkpoint, model: UpstreamModel | None) -> tuple[str, ...]:
    """Return check-layout's messages on a checkpoint, and raise if experts are missing."""
    findings = judge(checkpoint, model).findings
    lost = next((finding for finding in findings if finding.code == "incomplete-experts"), None)
    if lost is not None:
        raise BadInput(lost.message, "download the checkpoint again")
    return tuple(finding.message for finding in findings if finding.code != "expert-biases")


def _one_of(value: str, known: Iterable[str], what: str) -> str:
    if value not in set(known):
        raise BadInput(f"unknown {what} '{value}'", f"one of {', '.join(known)}")
    return value
