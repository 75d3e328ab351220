"""Pipelines whose call raises for every argument."""

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.pipelines import find_pipeline
from omni_kit.upstream.diffusers.raising import always_raised, packages_built_with


def raised(name: str) -> list[str]:
    return [*always_raised(find_pipeline(find_library("diffusers"), name, {}))]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ChromaInpaintPipeline", "reads guidance_embeds of its transformer's config, which Chroma"),
        ("EasyAnimateControlPipeline", "passes text_encoder_index to encode_prompt, which does not take it"),
    ],
)
def test_a_name_that_its_parts_do_not_have_is_told_with_its_place(name: str, said: str) -> None:
    (found,) = raised(name)
    assert found.startswith(said)
    assert ".py:" in found


# FluxPipeline has the config's field, and WanVideoToVideoPipeline reads one after `or` alone.
@pytest.mark.parametrize("name", ["FluxPipeline", "ChromaPipeline", "EasyAnimatePipeline", "WanVideoToVideoPipeline"])
def test_a_call_that_can_run_is_left_alone(name: str) -> None:
    assert raised(name) == []


def test_a_package_whose_class_the_constructor_builds_is_needed_by_every_call() -> None:
    library = find_library("diffusers")
    assert packages_built_with(find_pipeline(library, "CosmosTextToWorldPipeline", {})) == ["cosmos_guardrail"]
    assert packages_built_with(find_pipeline(library, "OmniGenPipeline", {})) == []
