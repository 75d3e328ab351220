"""Toys in which a size is again the multiple of another that it is in the real config."""

from omni_kit.targets.references.transformers import _completed
from omni_kit.toys.configs.relations import related

REAL = {
    "out_size": 512,
    "audio_config": {"hidden_size": 128, "num_mel_bins": 100, "channels": [12, 128]},
    "text_config": {"hidden_size": 384},
}


def toy(out_size: int, channels: int) -> dict[str, object]:
    return {
        "out_size": out_size,
        "audio_config": {"hidden_size": 72, "num_mel_bins": 20, "channels": [12, channels]},
        "text_config": {"hidden_size": 96},
    }


def test_a_width_that_a_part_repeats_under_another_name_is_restored() -> None:
    found = list(related(REAL, toy(100, 72)))

    assert toy(288, 72) in found
    assert all(one["text_config"] == {"hidden_size": 96} for one in found)


def test_an_item_of_a_list_is_restored() -> None:
    assert toy(288, 72) in list(related(REAL, toy(288, 128)))


def test_a_toy_whose_relations_hold_has_no_other_that_repeats_a_width() -> None:
    assert not list(related(REAL, toy(288, 72)))


def test_a_large_size_that_no_rule_knows_becomes_small() -> None:
    real = {"vision_config": {"positions": 1120}, "text_config": {"vocab_size": 5000}}
    (found,) = related(real, real)
    assert found == {"vision_config": {"positions": 64}, "text_config": {"vocab_size": 5000}}


def test_a_config_is_completed_in_its_parts_and_nowhere_else() -> None:
    whole = {"audio_config": {"hidden_size": 72, "head_config": {"width": 72}}, "rope": {"a": 1}, "audio_token_id": 9}
    values = {"audio_config": {"hidden_size": 60}, "rope": {"b": 2}}

    found = _completed(values, whole)

    assert found["audio_config"] == {"hidden_size": 60, "head_config": {"width": 72}}
    assert found["rope"] == {"b": 2}
    assert found["audio_token_id"] == 9
