"""Expert layouts of checkpoints: reading headers, telling the layout, accounting for every key."""

from dataclasses import replace
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import Checkpoint, read_checkpoint
from omni_kit.layout.consumer import Consumer
from omni_kit.layout.expected import expect
from omni_kit.layout.findings import LayoutFinding
from omni_kit.layout.original_layouts import read_weights, refuse_original
from omni_kit.layout.verdict import LayoutVerdict, as_layout, judge, prove
from omni_kit.pysource.source import without_collection
from omni_kit.upstream.places import path_of, refuse_pickles
from omni_kit.upstream.subject import Subject, open_source

__all__ = ["Checkpoint", "LayoutVerdict", "check_layout", "judge", "read_checkpoint", "read_weights", "refuse_original"]


def check_layout(
    source: str,
    *,
    model_type: str | None = None,
    config: Path | None = None,
    assume: str | None = None,
    against_model: bool = False,
    consumer: Consumer | None = None,
    transformers: Path | None = None,
    diffusers: Path | None = None,
) -> LayoutVerdict:
    """Tell the expert layout of the checkpoint at `source`; of a model without weights, the one that it will have.

    Args:
        source: a checkpoint directory, a safetensors file, an index, a config.json, a model_type, a class of diffusers,
            a model_index.json or a pipeline's directory, of which the denoiser is looked at.
        model_type: instead of the one in the config.
        config: a config.json to use instead of the one next to the weights.
        assume: the layout to take where the file leaves it open.
        against_model: prove it with transformers' own loader on the meta device; needs torch.
        consumer: who loads it, where that is another than the library whose classes it is of.
        transformers, diffusers: other unpacked libraries to read instead of the installed ones.

    Raises:
        BadInput: neither weights nor a model that is known, damaged files, an unknown model_type, or a checkpoint in
            the layout of a model's original authors; or a consumer that takes no such model.
        MissingRequirement: `against_model` without torch, or a consumer that is not installed.
    """
    assumed = as_layout(assume)
    subject = open_source(source, transformers=transformers, diffusers=diffusers, config=config, model_type=model_type)
    if subject.weights is None and consumer is not None:
        raise BadInput(
            f"{subject.given} contains no weights for {consumer.name} to load", "pass a checkpoint directory"
        )
    if subject.weights is None:
        if (path := path_of(source)) is not None and path.is_dir():
            refuse_pickles(path)
        return _expected(subject, against_model)
    with without_collection():
        checkpoint = read_weights(subject)
        verdict = judge(checkpoint, subject.loaded, assumed)
    said = tuple(LayoutFinding("whole-checkpoint", "info", note) for note in subject.notes)
    verdict = replace(verdict, findings=(*said, *verdict.findings))
    if consumer is not None:
        verdict = consumer.consume(subject, checkpoint, verdict)
    return prove(verdict, checkpoint) if against_model else verdict


def _expected(subject: Subject, against_model: bool) -> LayoutVerdict:
    """Return the layout that the library declares for a model without weights to read."""
    if against_model:
        raise BadInput(
            f"{subject.given} contains no safetensors files to load with --against-model", "pass a checkpoint directory"
        )
    if (model := subject.loaded) is None:
        raise BadInput(f"{subject.given} contains no safetensors files", "pass a checkpoint directory or index")
    with without_collection():
        return expect(model)
