"""--for: the account against whoever loads the checkpoint."""

import pytest

from omni_kit.errors import BadInput, Refusal
from omni_kit.layout import LayoutVerdict, check_layout
from omni_kit.layout.consumer import ConvertingConsumer
from omni_kit.layout.loading import Loading
from omni_kit.targets.consumers import consumer_names, consumer_of
from tests.conftest import Checkpoints


def test_libraries_and_targets_can_be_asked() -> None:
    assert consumer_names() == ["transformers", "diffusers", "sglang-diffusion", "veomni"]


@pytest.mark.parametrize("name", ["transformers", "veomni"])
def test_who_loads_the_class_takes_its_checkpoint(checkpoint: Checkpoints, name: str) -> None:
    verdict = check_layout(str(checkpoint("olmoe")), consumer=consumer_of(name))
    assert verdict.ok
    assert verdict.accounting is not None
    assert verdict.accounting.complete


def test_another_library_has_no_class_for_it(checkpoint: Checkpoints) -> None:
    with pytest.raises(BadInput, match="diffusers cannot load it"):
        check_layout(str(checkpoint("olmoe")), consumer=consumer_of("diffusers"))


def test_what_no_converter_reads_cannot_be_loaded(checkpoint: Checkpoints) -> None:
    def refuse(verdict: LayoutVerdict) -> Loading:
        raise Refusal("nothing reads that", "convert it")

    verdict = check_layout(str(checkpoint("olmoe")), consumer=ConvertingConsumer("somebody", refuse))
    said = [(one.code, one.message) for one in verdict.findings if one.severity == "error"]
    assert said == [("not-loadable", "somebody cannot load it: nothing reads that; convert it")]
    assert not verdict.ok


def test_a_name_without_weights_has_nothing_to_load() -> None:
    with pytest.raises(BadInput, match="no weights for veomni to load"):
        check_layout("olmoe", consumer=consumer_of("veomni"))


def test_a_name_that_nobody_loads_under() -> None:
    with pytest.raises(BadInput, match="no loader has that name"):
        consumer_of("nobody")
