"""Scenarios of whole pipelines: of sizes and numbers that upstream draws."""

from omni_kit.targets.references import pipelines
from omni_kit.targets.references.pipelines import PipelineBuilder, pictured, read_pipeline
from omni_kit.toys.batches.pipeline import ENLARGED, PipelineBatchBuilder, Scenario, scenarios_of
from omni_kit.toys.tensors import Tensors


def found(least: int = 0, most: int = 2, images: bool = True) -> list[Scenario]:
    """The scenarios for an upstream that draws pictures of at least so many rows, and at most so many in one call.

    Args:
        images: whether it can start from images.
    """

    def run(batch: Tensors) -> Tensors:
        one = scenarios_of(batch)[0]
        if one.rows < least or one.pictures > most or (one.images and not images):
            raise RuntimeError("the reference raises")
        return {}

    return scenarios_of(PipelineBatchBuilder().batch(None, run))


def test_several_pictures_are_asked_for_where_upstream_draws_several() -> None:
    assert [one.pictures for one in found()] == [1, 1, 1, 2]
    assert [one.pictures for one in found(most=1)] == [1, 1, 1]


def test_pictures_are_as_large_as_upstream_needs_them_and_no_larger() -> None:
    assert {(one.rows, one.columns) for one in found()} == {(64, 64), (64, 96)}
    assert {(one.rows, one.columns) for one in found(least=128)} == {(128, 128), (128, 192)}


def test_sizes_that_a_toy_was_fitted_to_are_not_tried_again() -> None:
    builder, asked = PipelineBatchBuilder(), list[Scenario]()
    builder.change = ENLARGED[0]

    def run(batch: Tensors) -> Tensors:
        asked.extend(scenarios_of(batch))
        return {}

    rows = builder.batch(None, run)
    assert [one.rows for one in scenarios_of(rows)] == [128] * 4
    assert [one.pictures for one in asked] == [2]


def test_a_pipeline_that_raises_at_every_size_is_asked_for_the_smallest() -> None:
    assert found(least=10_000)[0].rows == 64


def test_images_are_left_out_where_upstream_raises_for_them_alone() -> None:
    assert [one.images for one in found(images=False)] == [False] * 4
    assert all(one.images for one in found(least=128))
    start = read_pipeline("GlmImagePipeline")
    assert [bool(pictured(start, one)) for one in (found()[1], found(images=False)[1])] == [True, False]


def test_what_is_left_out_is_noted_and_nothing_else() -> None:
    builder = PipelineBuilder()
    assert builder.notes() == []
    texts, images = read_pipeline("FluxPipeline"), read_pipeline("GlmImagePipeline")
    assert [*pipelines._left_out(texts, found())] == []
    assert [*pipelines._left_out(texts, found(most=1))] == ["several pictures in a call"]
    assert [*pipelines._left_out(images, found(images=False))] == ["images to start from"]
