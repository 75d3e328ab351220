"""The one way from a subject to its headers: checkpoints in the layout of a model's original authors are refused."""

from pathlib import Path

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.layout.checkpoint import Checkpoint, read_checkpoint
from omni_kit.pysource.library import Library, find_library
from omni_kit.upstream.diffusers.originals import Original, original_layout
from omni_kit.upstream.subject import DIFFUSERS, Subject


def read_weights(subject: Subject) -> Checkpoint:
    """Return the headers of a subject's weights.

    Raises:
        BadInput: it has none; as `read_checkpoint`; or they are in the layout of the original authors of a model of
            diffusers, which has a conversion for them.
    """
    if subject.weights is None:
        raise BadInput(f"{subject.given} contains no safetensors files", "pass a checkpoint directory or index")
    checkpoint = read_checkpoint(subject.weights)
    library = _diffusers(subject)
    if library is None:
        return checkpoint
    tensors = {key: checkpoint.shape(key) for key in checkpoint.tensors}
    found = original_layout(library, tensors, subject.component if subject.known_class else None)
    if found is not None:
        raise BadInput(
            f"{subject.given} is in its original authors' layout, which {DIFFUSERS} calls '{found.name}', "
            f"and not in that of {DIFFUSERS}",
            _way(found, checkpoint, subject),
        )
    return checkpoint


def refuse_original(subject: Subject) -> None:
    """Read the headers of a possible diffusers checkpoint before any other step, and raise for an original layout.

    Raises:
        BadInput: as `read_weights`, where there are weights.
    """
    if subject.weights is not None and _diffusers(subject) is not None:
        read_weights(subject)


def _diffusers(subject: Subject) -> Library | None:
    """Return the library whose originals it may be; None for models of another, and where it is not installed."""
    if subject.library.name == DIFFUSERS:
        return subject.library
    try:
        return None if subject.identified else find_library(DIFFUSERS, subject.diffusers)
    except MissingRequirement:
        return None


def _way(found: Original, checkpoint: Checkpoint, subject: Subject) -> str:
    """Return the instruction to convert with the existing conversion."""
    file = checkpoint.files[0] if len(checkpoint.files) == 1 else Path(subject.given)
    what = f"'{file}'" if len(checkpoint.files) == 1 else "a state dict of all its shards"
    loader = f"{found.class_name}.from_single_file" if found.class_name else "the pipeline's from_single_file"
    by = f" (by {found.converter})" if found.converter else ""
    config = f", with the config of {found.repository}" if found.repository else ""
    return f"convert it first: {DIFFUSERS}' {loader}({what}).save_pretrained(DIR){by}{config}"
