"""Choice of the diffusers pipeline that runs a transformer with the least input from a training sample."""

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.upstream.diffusers.calling import images_of
from omni_kit.upstream.diffusers.classes import PIPELINES, TRANSFORMERS, class_names, find_class, place_of
from omni_kit.upstream.diffusers.pipelines import SCHEDULER, Pipeline, find_pipeline
from omni_kit.upstream.diffusers.signatures import arguments

_PROMPT = "prompt"
_PREPARING = "prepare_latents"


def pipeline_of(library: Library, transformer: str) -> Pipeline | None:
    """Return the plainest pipeline whose denoiser is a class; None if there is none.

    It needs the fewest pictures next to a prompt, has no controlnet if another has none, and the shortest name. A
    pipeline without an autoencoder or a scheduler of its own does not qualify: what it denoises are not latents.
    Neither does one that requires something other than prompts and pictures, such as poses or musical notes.
    """
    found = []
    for name in class_names(library):
        place = place_of(library, name) or ""
        if not (place.startswith(f"{PIPELINES}/") and name.endswith("Pipeline")):
            continue
        if transformer not in (library.root / place).read_text(encoding="utf-8"):
            continue  # most files, which need not be parsed
        cls = find_class(library, name)
        if cls is None or transformer not in _classes_asked(cls):
            continue
        pipeline = Pipeline(library, cls)
        if _draws(pipeline) and pipeline.denoiser.class_name == transformer:
            beside = sum(one.role == "controlnet" for one in pipeline.components)
            found.append((len(_required(pipeline)), beside, len(name), name))
    return find_pipeline(library, min(found)[-1], {}) if found else None


def _classes_asked(cls: ClassRef) -> list[str]:
    return [name for one in arguments(cls).values() for name in one.names]


def _required(pipeline: Pipeline) -> set[str]:
    """Return the required arguments of a call, except its prompt."""
    return {one.name for one in arguments(pipeline.cls, "__call__").values() if one.required} - {_PROMPT}


def _draws(pipeline: Pipeline) -> bool:
    """Return whether a pipeline prepares latents for a prompt, or for a prompt and pictures."""
    roles = {one.role for one in pipeline.components}
    named = any(one.name == SCHEDULER for one in pipeline.components)
    folders = {
        place_of(pipeline.library, one.class_name) or "" for one in pipeline.components if one.role == "denoiser"
    }
    alone = all(folder.startswith(f"{TRANSFORMERS}/") for folder in folders)  # a prior stands beside a UNet
    prepares = pipeline.cls.method(_PREPARING) is not None
    asks = _PROMPT in arguments(pipeline.cls, "__call__") and _required(pipeline) <= set(images_of(pipeline))
    return {"denoiser", "autoencoder"} <= roles and alone and named and prepares and asks
