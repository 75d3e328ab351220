"""Components of pipelines, against what the real classes ask for."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.pipelines import Pipeline, find_pipeline
from tests.diffusers_models import model_class

DIFFUSERS = find_library("diffusers")
LOOKED_AT = ["WanPipeline", "FluxPipeline", "StableDiffusion3Pipeline", "LTX2Pipeline", "QwenImageControlNetPipeline"]

SETTINGS = {"boundary_ratio", "expand_timesteps"}  # arguments that are no components


def asked_for(name: str) -> dict[str, bool]:
    """The components that a real pipeline takes, and whether it works without."""
    cls = model_class(name)
    parts, _ = cls._get_signature_keys(cls)
    parameters = inspect.signature(cls.__init__).parameters
    return {
        part: part in cls._optional_components or parameters[part].default is not inspect.Parameter.empty
        for part in parts
    }


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_class_alone_declares_its_components(name: str) -> None:
    found = find_pipeline(DIFFUSERS, name, {})
    real = {part: optional for part, optional in asked_for(name).items() if part not in SETTINGS}
    assert {part.name: part.optional for part in found.components} == real
    assert found.denoiser.name == "transformer"


def test_the_order_of_running_decides_among_several_denoisers() -> None:
    """The index names them the other way round; the class says which one runs first."""
    values = {name: ["diffusers", "WanTransformer3DModel"] for name in ("transformer_2", "transformer")}
    assert find_pipeline(DIFFUSERS, "WanPipeline", values).denoiser.name == "transformer"
    only = find_pipeline(DIFFUSERS, "WanPipeline", {"transformer_2": ["diffusers", "WanTransformer3DModel"]})
    assert only.denoiser.name == "transformer_2"


def test_a_class_of_one_pipeline_alone_is_found() -> None:
    found = find_pipeline(
        DIFFUSERS, "LTX2Pipeline",
        {"transformer": ["diffusers", "LTX2VideoTransformer3DModel"], "connectors": ["ltx2", "LTX2TextConnectors"]},
    )  # fmt: skip
    evidence = {one.name: one.evidence for one in found.components}
    assert evidence["connectors"] == "model_index.json: connectors; diffusers/pipelines/ltx2/connectors.py"
    with pytest.raises(BadInput, match="connectors is of class Nobodys"):
        _ = find_pipeline(DIFFUSERS, "LTX2Pipeline", {"connectors": ["ltx2", "Nobodys"]}).components


def real_pipelines() -> Iterator[tuple[str, Any]]:
    """Those that can be imported with what is installed."""
    import diffusers

    for name in sorted(name for name in dir(diffusers) if name.endswith("Pipeline") and name != "DiffusionPipeline"):
        try:
            cls = getattr(diffusers, name)
        except RuntimeError:
            continue
        if issubclass(cls, diffusers.DiffusionPipeline):
            yield name, cls


def opened(name: str) -> Pipeline | None:
    found = find_pipeline(DIFFUSERS, name, {})
    try:
        assert found.denoiser
    except BadInput:
        return None
    return found


@pytest.mark.sweep
def test_every_pipeline_with_a_transformer_is_opened_and_no_other() -> None:
    for name, cls in real_pipelines():
        types = [kind for kinds in cls._get_signature_types().values() for kind in kinds if inspect.isclass(kind)]
        has = any(kind.__module__.startswith("diffusers.models.transformers.") for kind in types)
        assert (opened(name) is not None) == has, name
